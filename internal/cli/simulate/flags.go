package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/apply"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// changeFlag is a flag that adds a change each time. The changes keep the order of the flags.
type changeFlag struct {
	name, kind, usage string
	parse             func(text string) error
	faults            *session.Faults
}

// Set implements pflag.Value. It keeps a fault for a later error that lists all of them.
func (c *changeFlag) Set(text string) error {
	if err := c.parse(text); err != nil {
		c.faults.Add("--%s %s: %s", c.name, text,
			strings.TrimPrefix(strings.TrimPrefix(session.ErrorText(err), strconv.Quote(text)+": "), text+": "))
	}
	return nil
}

// String implements pflag.Value.
func (c *changeFlag) String() string { return "" }

// Type implements pflag.Value.
func (c *changeFlag) Type() string { return c.kind }

// changeFlags returns the flags that add changes.
func (s *simulation) changeFlags() []*changeFlag {
	add := func(c api.SimulateChange) error { //nolint:unparam // the flags return its result
		s.request.Changes = append(s.request.Changes, c)
		return nil
	}
	object := func(text string) api.SimulateObject {
		kind, in, name := splitOwner(text)
		return api.SimulateObject{Kind: kind, Cluster: in, Name: name}
	}
	all := []*changeFlag{
		{
			name: "add-nodes", kind: "NODES",
			usage: "add nodes, such as 3:cpu=8,memory=32GiB; may be repeated, as all changes",
			parse: func(text string) error {
				n, err := parseNodes(text)
				if err != nil {
					return err
				}
				return add(api.SimulateChange{AddNodes: n})
			},
		},
		{
			name: "remove-node", kind: "NODE", usage: "remove a machine that fails and never returns",
			parse: func(text string) error { return add(api.SimulateChange{RemoveNode: text}) },
		},
		{name: "drain-node", kind: "NODE", usage: "drain a node", parse: func(text string) error {
			return add(api.SimulateChange{DrainNode: text})
		}},
		{name: "cordon-node", kind: "NODE", usage: "cordon a node", parse: func(text string) error {
			return add(api.SimulateChange{CordonNode: text})
		}},
		{
			name: "run", kind: "FILE", usage: "apply a manifest: a file, a folder or - for standard input",
			parse: s.addManifest,
		},
		{name: "scale", kind: "SERVICE=N", usage: "set the count of a service", parse: func(text string) error {
			service, number, _ := strings.Cut(text, "=")
			n, err := strconv.Atoi(number)
			if service == "" || err != nil {
				return fmt.Errorf("%q: want a service and its count, such as web=5", text)
			}
			o := object(service)
			return add(api.SimulateChange{Scale: &api.SimulateScale{Cluster: o.Cluster, Service: o.Name, Count: n}})
		}},
		{
			name: "restart", kind: "SERVICE", usage: "replace all tasks of a service",
			parse: func(text string) error {
				o := object(text)
				return add(api.SimulateChange{Restart: &o})
			},
		},
		{name: "delete", kind: "NAME", usage: "delete a service, or job/NAME", parse: func(text string) error {
			o := object(text)
			return add(api.SimulateChange{Delete: &o})
		}},
		{
			name: "changes", kind: "FILE",
			usage: "make a list of changes, as YAML or JSON in the form of POST /v1/simulate; file in a " +
				"change names a manifest to apply", parse: s.addFile,
		},
	}
	for _, c := range all {
		c.faults = &s.faults
	}
	return all
}

// splitOwner parses [CLUSTER/]KIND/NAME, or [CLUSTER/]NAME of a service.
func splitOwner(text string) (kind cluster.Kind, in, name string) {
	kind = cluster.KindService
	parts := strings.Split(text, "/")
	of := map[string]cluster.Kind{
		wording.KindService: cluster.KindService, wording.KindJob: cluster.KindJob,
		wording.KindCron: cluster.KindCron,
	}
	name = parts[len(parts)-1]
	if at := len(parts) - 2; at >= 0 {
		if k, ok := of[parts[at]]; ok {
			kind, parts = k, slices.Delete(parts, at, at+1)
		}
	}
	return kind, strings.Join(parts[:len(parts)-1], "/"), name
}

// addManifest adds a change that runs a manifest.
func (s *simulation) addManifest(path string) error {
	objects, err := apply.ReadManifests(s.Session, []string{path})
	if err != nil {
		return err
	}
	run, err := encodeObjects(objects)
	if err != nil {
		return err
	}
	if len(run) == 0 {
		return fmt.Errorf("%s contains no objects", path)
	}
	s.objects[len(s.request.Changes)] = objects
	s.request.Changes = append(s.request.Changes, api.SimulateChange{Run: run})
	return nil
}

// fileChange is a change in a file of changes.
type fileChange struct {
	api.SimulateChange
	// File is the manifest to run.
	File string `json:"file,omitempty"`
}

// addFile adds the changes in a file.
func (s *simulation) addFile(path string) error {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(s.Stdin)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return err
	}
	var raw []json.RawMessage
	plain, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = json.Unmarshal(plain, &raw)
	}
	if err != nil {
		return fmt.Errorf("%s: want a list of changes: %w", path, err)
	}
	var wrong []error
	for i, one := range raw {
		var c fileChange
		d := json.NewDecoder(bytes.NewReader(one))
		d.DisallowUnknownFields()
		err := d.Decode(&c)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: change %d: %w", path, i+1, err))
		case c.File != "":
			if err := s.addManifest(c.File); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: change %d: %w", path, i+1, err))
			}
		default:
			s.request.Changes = append(s.request.Changes, c.SimulateChange)
		}
	}
	return errors.Join(wrong...)
}

// parseNodes parses "3", "2:like=n3" and "4:cpu=16,memory=64GiB,label.zone=a".
func parseNodes(text string) (*api.SimulateNodes, error) {
	number, rest, more := strings.Cut(text, ":")
	count, err := strconv.Atoi(number)
	if err != nil || count < 1 {
		return nil, fmt.Errorf("%q: want the number of nodes, and after a colon their properties, such as "+
			"3:cpu=8,memory=32GiB",
			text)
	}
	n := &api.SimulateNodes{Count: count}
	if !more {
		return n, nil
	}
	var wrong []error
	for part := range strings.SplitSeq(rest, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			wrong = append(wrong, fmt.Errorf("%q: want key=value", part))
			continue
		}
		label, isLabel := strings.CutPrefix(key, "label.")
		device, isDevice := strings.CutPrefix(key, "device.")
		switch {
		case isLabel:
			if n.Labels == nil {
				n.Labels = cluster.Labels{}
			}
			n.Labels[label] = value
		case isDevice, key == cluster.DefaultDeviceType:
			if !isDevice {
				device = key
			}
			g, err := parseDevices(device, value)
			if err != nil {
				wrong = append(wrong, err)
			}
			n.Devices = append(n.Devices, g)
		case key == "taint":
			n.Taints = append(n.Taints, value)
		default:
			to := map[string]*string{
				"name": &n.Name, "like": &n.Like, "cpu": &n.CPU, "memory": &n.Memory, "disk": &n.Disk, "arch": &n.Arch,
				"pool": &n.Pool,
			}[key]
			if to == nil {
				wrong = append(wrong, fmt.Errorf(
					"%q is not known: want name, like, cpu, memory, disk, arch, pool, label.KEY, taint, gpu "+
						"or device.TYPE", key))
				continue
			}
			*to = value
		}
	}
	return n, errors.Join(wrong...)
}

// parseDevices parses "4", "4:A100" and "4:A100:80GiB".
func parseDevices(kind, text string) (api.SimulateGPUs, error) {
	parts := strings.SplitN(text, ":", 3)
	n, err := strconv.Atoi(parts[0])
	if err != nil {
		return api.SimulateGPUs{},
			fmt.Errorf("%s=%s: want a number, and after colons model and memory, such as 4:A100:80GiB", kind, text)
	}
	g := api.SimulateGPUs{Type: kind, Count: n}
	if len(parts) > 1 {
		g.Model = parts[1]
	}
	if len(parts) > 2 {
		g.Memory = parts[2]
	}
	return g, nil
}

package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/nameserver"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/pins"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Labels of the containers that an agent makes.
const (
	LabelTask      = "berth.task"
	LabelAttempt   = "berth.attempt"
	LabelUUID      = "berth.uuid"
	LabelContainer = "berth.container"
	LabelNode      = "berth.node"
)

// Specs makes the executor's specs of containers. Its methods may be called concurrently.
type Specs struct {
	Node    *node.Node
	Facts   func() cluster.Facts
	Devices *machine.Devices
	Pins    *pins.Pins
	Folders *volumes.Folders
	Names   *nameserver.Server
	// Credentials, unless nil, returns the node's own login for a registry.
	Credentials func(registry string) (user, secret string)
}

// Spec returns the executor's spec of a container; serviceEnv holds the variables of its services. The error names
// devices and volumes that the node lacks.
func (b *Specs) Spec(d *cluster.Desired, def *cluster.TaskDefinition, i int, id executor.ID,
	serviceEnv map[string]string,
) (executor.Spec, error) {
	c := def.Containers[i]
	grant, err := b.grantDevices(d, def, i)
	if err != nil {
		return executor.Spec{ID: id, Container: c}, err
	}
	env := map[string]string{}
	maps.Copy(env, d.Parameters) // Berth's own variables precede them
	maps.Copy(env, b.environment(d, def))
	maps.Copy(env, grant.env)
	if len(d.Parameters) > 0 {
		text, err := json.MarshalIndent(d.Parameters, "", "  ")
		if err != nil {
			return executor.Spec{ID: id, Container: c}, fmt.Errorf("parameters: %w", err)
		}
		c.Files = append(slices.Clone(c.Files),
			cluster.File{Path: cluster.ParametersFile, Content: string(text) + "\n"})
		env["BERTH_PARAMETERS"] = cluster.ParametersFile
	}
	maps.Copy(env, serviceEnv)
	own := maps.Clone(env)
	for name, value := range c.Env {
		if _, taken := env[name]; !taken {
			own[name] = expand(value, env)
		}
	}
	for name, value := range grant.hints {
		if _, taken := own[name]; !taken {
			own[name] = value
		}
	}
	c.Env = nil
	c.Command, c.Args = expandAll(c.Command, own), expandAll(c.Args, own)
	spec := executor.Spec{
		ID: id,
		Labels: map[string]string{
			LabelTask: string(d.Task), LabelUUID: d.UUID, LabelAttempt: strconv.Itoa(d.Attempt),
			LabelContainer: c.Name, LabelNode: b.Node.Name,
		},
		Container: c,
		Dir:       b.Node.RunDir(d.UUID, id),
		LogDir:    b.Node.LogDir(d.UUID, c.Name),
		Devices:   grant.devices, CDI: grant.cdi, CPUs: grant.cpus, NumaNodes: grant.numaNodes,

		Credentials: b.Credentials,
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		spec.Env = append(spec.Env, name+"="+own[name])
	}
	spec.Mounts = b.Names.ResolverMount(d, def, &c)
	for _, m := range c.Mounts {
		for j := range def.Volumes {
			if def.Volumes[j].Name == m.Volume {
				dir, readOnly, err := b.Folders.Dir(d, &def.Volumes[j])
				if err != nil {
					return spec, fmt.Errorf("volume %s: %w", m.Volume, err)
				}
				spec.Mounts = append(spec.Mounts,
					executor.Mount{Source: dir, Path: m.Path, ReadOnly: m.ReadOnly || readOnly})
			}
		}
	}
	return spec, nil
}

// environment returns the variables that describe the task to each of its containers. The manifest cannot replace them.
// PORT_x is the number to listen on, ADDR_x the address for other programs.
func (b *Specs) environment(d *cluster.Desired, def *cluster.TaskDefinition) map[string]string {
	address := b.Facts().Address
	env := map[string]string{
		"BERTH_TASK":         string(d.Task),
		"BERTH_CLUSTER":      d.Owner.Cluster,
		"BERTH_COUNT":        strconv.Itoa(d.Count),
		"BERTH_ATTEMPT":      strconv.Itoa(d.Attempt),
		"BERTH_ATTEMPT_ID":   d.UUID,
		"BERTH_NODE":         b.Node.Name,
		"BERTH_NODE_ADDRESS": address,
		"BERTH_NETWORK":      string(cmp.Or(def.Network, cluster.NetworkHost)),
	}
	parts, _ := d.Task.Parts()
	env["BERTH_INDEX"] = strconv.Itoa(parts.Index)
	if d.Batch() {
		env["BERTH_JOB"], env["BERTH_STEP"] = d.Owner.Name, parts.Step
	} else {
		env["BERTH_SERVICE"] = d.Owner.Name
	}
	for name, port := range d.Ports {
		suffix := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
		env["PORT_"+suffix] = strconv.Itoa(def.PortInside(name, port))
		env["ADDR_"+suffix] = net.JoinHostPort(address, strconv.Itoa(port))
	}
	return env
}

// expand replaces each $(NAME) by its value and leaves unknown names as they are. $$ becomes $.
func expand(s string, env map[string]string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		s = after
		switch {
		case strings.HasPrefix(s, "$("):
			out.WriteString("$(")
			s = s[2:]
			continue
		case strings.HasPrefix(s, "("):
			name, rest, closed := strings.Cut(s[1:], ")")
			if value, known := env[name]; closed && known {
				out.WriteString(value)
				s = rest
				continue
			}
		}
		out.WriteByte('$')
	}
}

func expandAll(list []string, env map[string]string) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = expand(s, env)
	}
	return out
}

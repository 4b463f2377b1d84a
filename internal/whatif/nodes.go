package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/traces"
)

// maxDevices limits the devices of an added node.
const maxDevices = 256

// nodeSpec is the specification of added nodes. Nil or zero fields are unset.
type nodeSpec struct {
	cpu          cluster.MilliCPU
	memory, disk cluster.Bytes
	arch         string
	labels       cluster.Labels
	pool         string
	taints       []cluster.Taint
	devices      []cluster.Device
}

// parseNodeSpec parses the specification of added nodes and returns all its faults.
func parseNodeSpec(n *api.SimulateNodes) (s nodeSpec, faults cluster.Faults) {
	fault := func(path, format string, args ...any) {
		faults = append(faults, cluster.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if n.Count < 0 || n.Count > api.MaxSimulateNodes {
		fault("count", "is %d, want 1 to %d", n.Count, api.MaxSimulateNodes)
	}
	if n.Name != "" && !cluster.ValidNodeName(n.Name) {
		fault("name", "%q is not a name for a node", n.Name)
	}
	if n.Like != "" && !cluster.ValidNodeName(n.Like) {
		fault("like", "%q is not the name of a node", n.Like)
	}
	var err error
	if n.CPU != "" {
		if s.cpu, err = cluster.ParseMilliCPU(n.CPU); err != nil {
			fault("cpu", "%v", err)
		}
	}
	size := func(field, text string) (b cluster.Bytes) {
		if text == "" {
			return 0
		}
		if b, err = cluster.ParseBytes(text); err != nil {
			fault(field, "%v", err)
		}
		return b
	}
	s.memory, s.disk = size("memory", n.Memory), size("disk", n.Disk)
	s.arch, s.labels, s.pool = n.Arch, n.Labels, n.Pool
	for i, text := range n.Taints {
		t, err := cluster.ParseTaint(text)
		if err != nil {
			fault(fmt.Sprintf("taints[%d]", i), "%v", err)
		}
		s.taints = append(s.taints, t)
	}
	for i, g := range n.Devices {
		if g.Count < 1 || g.Count > maxDevices {
			fault(fmt.Sprintf("devices[%d].count", i), "is %d, want 1 to %d", g.Count, maxDevices)
			continue
		}
		memory := size(fmt.Sprintf("devices[%d].memory", i), g.Memory)
		kind := cmp.Or(g.Type, cluster.DefaultDeviceType)
		for k := range g.Count {
			s.devices = append(s.devices, cluster.Device{
				ID: fmt.Sprintf("%s-%02d-%03d", kind, i, k), Type: kind, Model: g.Model, Memory: memory, Numa: -1,
			})
		}
	}
	host := cluster.Host{Name: "n", Labels: s.labels, Pool: s.pool, Taints: s.taints}
	host.SetDefaults()
	if len(faults) == 0 {
		for _, f := range cluster.FaultsOf(host.Validate()) {
			fault(f.Path, "%s", f.Message)
		}
	}
	return s, faults
}

// nodeNames returns the names of added nodes.
func nodeNames(n *api.SimulateNodes) []string {
	count, base := max(1, n.Count), cmp.Or(n.Name, "new")
	if count == 1 && n.Name != "" {
		return []string{base}
	}
	width := len(strconv.Itoa(count))
	out := make([]string, count)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%0*d", base, width, i+1)
	}
	return out
}

// addNodes registers new nodes with the operator's settings for them.
func (w *World) addNodes(ctx context.Context, n *api.SimulateNodes) error {
	s, faults := parseNodeSpec(n)
	if len(faults) > 0 {
		return prefixFaults(faults, "add_nodes")
	}
	facts, host, err := w.modelNode(n.Like)
	if err != nil {
		return err
	}
	if s.cpu != 0 {
		facts.CPU = s.cpu
	}
	if s.memory != 0 {
		facts.Memory = s.memory
	}
	if s.disk != 0 {
		facts.Disk = s.disk
	}
	if s.devices != nil {
		facts.Devices = s.devices
	}
	facts.Arch = cmp.Or(s.arch, facts.Arch)
	host.Pool = cmp.Or(s.pool, host.Pool)
	if s.taints != nil {
		host.Taints = s.taints
	}
	host.Labels = maps.Clone(host.Labels)
	if host.Labels == nil {
		host.Labels = cluster.Labels{}
	}
	maps.Copy(host.Labels, s.labels)
	for _, name := range nodeNames(n) {
		if err := w.addNode(ctx, name, facts, host); err != nil {
			return err
		}
	}
	return nil
}

// addNode registers one node.
func (w *World) addNode(ctx context.Context, name string, facts cluster.Facts, host cluster.Host) error {
	snap, prefix := w.tables.Snapshot(), w.tables.Prefix()
	if _, there := snap.Node(name); there {
		return cluster.Faults{{
			Path:    "add_nodes.name",
			Message: fmt.Sprintf("there is a node %s already: name another", name),
		}}
	}
	if _, there := snap.NodeStatus(name); there {
		return cluster.Faults{{
			Path:    "add_nodes.name",
			Message: fmt.Sprintf("a node %s has registered already: name another", name),
		}}
	}
	over := uint64(0)
	// existing settings of the operator stay unless the change overrides them
	if e, ok := snap.Host(name); ok {
		if host.Pool == "" {
			host.Pool = e.Value.Pool
		}
		labels := maps.Clone(e.Value.Labels)
		if labels == nil {
			labels = cluster.Labels{}
		}
		maps.Copy(labels, host.Labels)
		host.Labels, over = labels, e.Modified
		if host.Taints == nil {
			host.Taints = e.Value.Taints
		}
	}
	host.Name = name
	if w.config.Domain != cluster.DefaultDomain {
		host.Domain = w.config.Domain
	}
	host.SetDefaults()
	if over != 0 || len(host.Labels)+len(host.Taints) > 0 || host.Pool != "" || host.Domain != "" {
		if err := w.writeRecord(ctx, prefix.Host(name), over, &host); err != nil {
			return err
		}
	}
	facts.Hostname = name
	status := cluster.NodeStatus{Name: name, Session: 1, Registered: w.clock.wall, Facts: facts, Synced: true}
	if err := w.writeRecord(ctx, prefix.NodeStatus(name), 0, &status); err != nil {
		return err
	}
	w.agents.connect(name, 1)
	return nil
}

// modelNode returns the unspecified properties of an added node. They are those of the named node, or else the most
// frequent ones in the domain.
func (w *World) modelNode(like string) (facts cluster.Facts, host cluster.Host, err error) {
	snap := w.tables.Snapshot()
	if like != "" {
		status, ok := snap.NodeStatus(like)
		if !ok {
			return facts, host, cluster.Faults{{Path: "add_nodes.like", Message: "there is no node " + like}}
		}
		if e, ok := snap.Host(like); ok {
			host = cluster.Host{Labels: e.Value.Labels, Pool: e.Value.Pool, Taints: slices.Clone(e.Value.Taints)}
		}
		return withoutIdentity(status.Value.Facts), host, nil
	}
	type size struct {
		demand cluster.Demand
		arch   string
		rest   string // executors, devices and networks
	}
	count, best := map[size]int{}, size{}
	of := map[size]cluster.Facts{}
	for e := range snap.NodeStatuses() {
		n, ok := snap.Node(e.Value.Name)
		if !ok || n.Value.Domain != w.config.Domain {
			continue
		}
		f := withoutIdentity(e.Value.Facts)
		rest, err := json.Marshal([]any{f.Executors, describeDevices(f.Devices), f.Networks})
		if err != nil {
			return facts, host, err
		}
		s := size{cluster.Demand{CPU: f.CPU, Memory: f.Memory, Disk: f.Disk}, f.Arch, string(rest)}
		if _, seen := of[s]; !seen {
			of[s] = f
		}
		if count[s]++; count[s] > count[best] { // of equal counts the first by name
			best = s
		}
	}
	if facts, ok := of[best]; ok {
		facts.Labels = nil
		return facts, host, nil
	}
	return cluster.Facts{
		OS: "linux", Arch: "amd64", CPU: 4000, Memory: 16 * cluster.GiB, Disk: 100 * cluster.GiB,
		Executors: []cluster.ExecutorFact{{Name: "containerd"}, {Name: "process"}},
	}, host, nil
}

// describeDevices describes devices without their ids.
func describeDevices(devices []cluster.Device) []string {
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = fmt.Sprint(d.Type, " ", d.Model, " ", d.Memory)
	}
	return out
}

// withoutIdentity returns the facts of a machine, except for facts that identify it.
func withoutIdentity(f cluster.Facts) cluster.Facts {
	f.Hostname, f.BootID, f.Address, f.Addresses = "", "", "", nil
	return f
}

// describeNodes describes added nodes.
func describeNodes(n *api.SimulateNodes) string {
	all := nodeNames(n)
	text := "add node " + all[0]
	if len(all) > 1 {
		text = fmt.Sprintf("add %d nodes %s to %s", len(all), all[0], all[len(all)-1])
	}
	var of []string
	for _, p := range []struct{ word, value string }{
		{"like", n.Like}, {"cpu", n.CPU}, {"memory", n.Memory}, {"disk", n.Disk}, {"arch", n.Arch}, {"pool", n.Pool},
	} {
		if p.value != "" {
			of = append(of, p.word+"="+p.value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		of = append(of, "label."+key+"="+n.Labels[key])
	}
	for _, t := range n.Taints {
		of = append(of, "taint="+t)
	}
	for _, g := range n.Devices {
		of = append(of, strings.TrimSuffix(
			fmt.Sprintf("%s=%d:%s", cmp.Or(g.Type, cluster.DefaultDeviceType), g.Count, g.Model), ":"))
	}
	if len(of) == 0 {
		return text
	}
	return text + " (" + strings.Join(of, ", ") + ")"
}

// joinNodes registers the machines of a trace, each with a disk and the usual executor.
func (w *World) joinNodes(ctx context.Context, nodes []traces.Node) error {
	for i := range nodes {
		n := &nodes[i]
		name := strings.ToLower(n.Name)
		if !cluster.ValidNodeName(name) {
			name = fmt.Sprintf("trace-%05d", i)
		}
		facts := cluster.Facts{
			OS: "linux", Arch: "amd64", CPU: n.CPU, Memory: n.Memory, Disk: cluster.TiB,
			Executors: []cluster.ExecutorFact{{Name: "containerd"}},
		}
		for k := range n.GPUs {
			facts.Devices = append(facts.Devices, cluster.Device{
				ID: fmt.Sprintf("%s-00-%03d", cluster.DefaultDeviceType, k), Type: cluster.DefaultDeviceType,
				Model: n.Model, Numa: -1,
			})
		}
		if err := w.addNode(ctx, name, facts, cluster.Host{}); err != nil {
			if faults, ok := errors.AsType[cluster.Faults](err); ok {
				return fmt.Errorf("the machines of the trace: %s", faults[0].Message)
			}
			return err
		}
	}
	return nil
}

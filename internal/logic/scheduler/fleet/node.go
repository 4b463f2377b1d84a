package fleet

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// classLabel is the label that the attribute node.class refers to.
const classLabel = "class"

// NodeName is an attribute in which nodes of one node class always differ, as they do in fine labels.
const NodeName = "node.name"

// Node is what the scheduler knows of a node.
type Node struct {
	Name  string
	State cluster.NodeState
	// Cordon keeps new tasks away, except those of daemons. With Drain it keeps those away, too.
	Cordon, Drain    bool
	Arch, OS, Kernel string
	// Executors by name, such as "containerd".
	Executors []string
	// Labels are the agent's labels, overridden by the operator's.
	Labels cluster.Labels
	// Pool is the pool of the node, or "".
	Pool     string
	Taints   []cluster.Taint
	Capacity cluster.Demand
	// Devices are the devices that tasks may reserve, with unique IDs.
	Devices []cluster.Device
	// Reserved are the reservations of the node that have not ended, ordered by their begin.
	Reserved []*cluster.Reservation
	// Images are references of images that the node has.
	Images []string
	// Volumes are the keys of volumes on the node that bind their tasks to it.
	Volumes []string
	// Folders is what the node lends of its folders, and its copies of sticky volumes.
	Folders *cluster.FolderFacts
	// ReservedPorts are never given to tasks: those that the agent and the operator reserve, ordered.
	ReservedPorts []int
	// Networks are the networks for tasks beside the node's own, with what each lacks.
	Networks []cluster.NetworkFact
}

// NodeOf joins the records of a node. A host or status that does not exist is nil. A node without a status has no
// capacity and no executor.
func NodeOf(host *cluster.Host, node *cluster.Node, status *cluster.NodeStatus) Node {
	n := Node{Name: node.Name, State: node.State, Labels: cluster.Labels{}}
	if status != nil {
		f := &status.Facts
		n.Arch, n.OS, n.Kernel = f.Arch, f.OS, f.Kernel
		n.Capacity = cluster.Demand{CPU: f.CPU, Memory: f.Memory, Disk: f.Disk}
		n.ReservedPorts, n.Devices, n.Images, n.Volumes, n.Networks = f.ReservedPorts, f.Devices, f.Images, f.Volumes,
			f.Networks
		n.Folders = f.Folders
		for _, e := range f.Executors {
			n.Executors = append(n.Executors, e.Name)
		}
		maps.Copy(n.Labels, f.Labels)
	}
	if host != nil {
		n.Drain = host.Drain != nil || host.Gone
		n.Cordon = host.Cordon || n.Drain
		n.Pool, n.Taints = host.Pool, host.Taints
		if own := cluster.Ports(host.ReservedPorts); len(own) > 0 {
			n.ReservedPorts = slices.Concat(n.ReservedPorts, own)
			slices.Sort(n.ReservedPorts)
			n.ReservedPorts = slices.Compact(n.ReservedPorts)
		}
		maps.Copy(n.Labels, host.Labels)
	}
	for _, name := range []string{
		cluster.LabelSecrets, cluster.LabelArtifacts, cluster.LabelImageSources, cluster.LabelObjectStore,
		cluster.LabelDiscovery, cluster.LabelIsolation,
	} {
		delete(n.Labels, name)
	}
	if status != nil {
		maps.Copy(n.Labels, status.Facts.CapabilityLabels())
	}
	if delete(n.Labels, cluster.LabelServices); status != nil && status.Facts.Services {
		n.Labels[cluster.LabelServices] = "true"
	}
	return n
}

// Attribute returns the node's value of an attribute; known is false if nodes have no such attribute.
func (n *Node) Attribute(name string) (value string, known bool) {
	switch name {
	case "node.name":
		return n.Name, true
	case "node.arch":
		return n.Arch, true
	case "node.os":
		return n.OS, true
	case "node.kernel":
		return n.Kernel, true
	case "node.class":
		return n.Labels[classLabel], true
	case "node.pool":
		return n.Pool, true
	}
	if key, ok := strings.CutPrefix(name, "label."); ok {
		return n.Labels[key], true
	}
	if kind, count, ok := cluster.DeviceAttribute(name); ok && count {
		devices := 0
		for i := range n.Devices {
			if n.Devices[i].Type == kind {
				devices++
			}
		}
		return strconv.Itoa(devices), true
	}
	return "", false
}

// Value returns the node's value of an attribute, as constraints name it; "" if it has none.
func (n *Node) Value(attribute string) string {
	v, _ := n.Attribute(attribute)
	return v
}

// Models returns the models of the node's devices of a type.
func (n *Node) Models(kind string) (models []string) {
	for i := range n.Devices {
		if d := &n.Devices[i]; d.Type == kind && !slices.Contains(models, d.Model) {
			models = append(models, d.Model)
		}
	}
	return models
}

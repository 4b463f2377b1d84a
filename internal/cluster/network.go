package cluster

import "slices"

// NetworkMode is the network of a task, which all of its containers share.
type NetworkMode string

// Networks of tasks.
const (
	NetworkHost NetworkMode = "host" // the node's own; the default
	// one of the task's own, behind a bridge of the node, with its ports published on the node
	NetworkBridge NetworkMode = "bridge"
	NetworkNone   NetworkMode = "none" // one of the task's own that leads nowhere
)

// Values returns every NetworkMode, in the order of the constants.
func (NetworkMode) Values() []NetworkMode {
	return []NetworkMode{NetworkHost, NetworkBridge, NetworkNone}
}

// NetworkFact says whether tasks of a node can have a network. An agent without such facts offers the node's own
// network only.
type NetworkFact struct {
	Mode NetworkMode `json:"mode"`
	// Lacks says what the machine lacks for the network and how to get it. It is empty if tasks can have it.
	Lacks string `json:"lacks,omitempty"`
	// Subnet is the address range of the tasks, for bridge.
	Subnet string `json:"subnet,omitempty"`
}

// MaxNetworkLacks limits NetworkFact.Lacks, in bytes.
const MaxNetworkLacks = 1000

// OwnNetwork returns the mode where tasks of the definition have a network of their own, else "".
func (d *TaskDefinition) OwnNetwork() NetworkMode {
	if d.Network == NetworkHost {
		return ""
	}
	return d.Network
}

// PortInside returns the number that the task's program listens on for a port, given its number on the node.
func (d *TaskDefinition) PortInside(port string, number int) int {
	if d.Network == NetworkBridge {
		if p := d.port(port); p != nil && p.To != 0 {
			return p.To
		}
	}
	return number
}

// LacksNetwork returns why tasks of a network cannot run on a node with these facts, or "" if they can.
func LacksNetwork(facts []NetworkFact, mode NetworkMode) string {
	if mode == "" || mode == NetworkHost {
		return ""
	}
	i := slices.IndexFunc(facts, func(f NetworkFact) bool { return f.Mode == mode })
	if i < 0 {
		return "network " + string(mode) + ": its agent offers no such network; the agent's log gives the reason"
	}
	if facts[i].Lacks == "" {
		return ""
	}
	return "network " + string(mode) + ": " + facts[i].Lacks
}

func (d *TaskDefinition) validateNetwork(k check) {
	if d.Network != "" {
		oneOf(k.at("network"), d.Network)
	}
	k.at("ports").must(d.Network != NetworkNone || len(d.Ports) == 0,
		"cannot be reached with network none: leave them out, or use network bridge")
	for i, p := range d.Ports {
		at := k.index("ports", i).at("to")
		at.must(p.To >= 0 && p.To <= 65535, "is %d, want a number from 1 to 65535, or none for the number on the node",
			p.To)
		at.must(p.To == 0 || d.Network != "" && d.Network != NetworkHost,
			"is for network bridge: on the node's own network the program listens on the port itself")
	}
}

package cluster

import "slices"

// NetworkMode says what network the containers of a task see. Those of one task always see the same.
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

// NetworkFact is whether tasks of a node can have a network. Of agents that tell of none, they cannot; the node's own
// they always can.
type NetworkFact struct {
	Mode NetworkMode `json:"mode"`
	// Lacks says what the machine lacks for it, and the way to get it. It is empty where tasks can have it.
	Lacks string `json:"lacks,omitempty"`
	// Subnet is what the addresses of the tasks are of, for bridge.
	Subnet string `json:"subnet,omitempty"`
}

// MaxNetworkLacks bounds what a NetworkFact says is lacking, in bytes.
const MaxNetworkLacks = 1000

// OwnNetwork returns the mode where tasks of the definition have a network of their own, else "".
func (d *TaskDefinition) OwnNetwork() NetworkMode {
	if d.Network == NetworkHost {
		return ""
	}
	return d.Network
}

// Inside returns the number that the task's program listens on for a port, given its number on the node.
func (d *TaskDefinition) Inside(port string, number int) int {
	if d.Network == NetworkBridge {
		if p := d.port(port); p != nil && p.To != 0 {
			return p.To
		}
	}
	return number
}

// LacksNetwork returns why tasks of a network cannot run on a node that told these facts, "" where they can.
func LacksNetwork(facts []NetworkFact, mode NetworkMode) string {
	if mode == "" || mode == NetworkHost {
		return ""
	}
	i := slices.IndexFunc(facts, func(f NetworkFact) bool { return f.Mode == mode })
	if i < 0 {
		return "network " + string(mode) + ": its agent is of a build that does not offer it; upgrade the agent"
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
		"are given, and network is none: nobody could reach them; leave them out, or take network bridge")
	for i, p := range d.Ports {
		at := k.index("ports", i).at("to")
		at.must(p.To >= 0 && p.To <= 65535, "is %d, want a number from 1 to 65535, or none for the number on the node",
			p.To)
		at.must(p.To == 0 || d.Network != "" && d.Network != NetworkHost,
			"is for network bridge: on the node's own network the program listens on the port itself")
	}
}

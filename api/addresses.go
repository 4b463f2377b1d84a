package api

// Address is the present address of a healthy task of a service. A task leaves the list when its stop is decided,
// before it receives the signal.
type Address struct {
	Task    TaskID `json:"task"`
	Attempt int    `json:"attempt"`
	Node    string `json:"node"`
	// Address is the node's; Ports are the numbers of the task's ports there, by name.
	Address string         `json:"address"`
	Ports   map[string]int `json:"ports,omitempty"`
	// Definition and Generation distinguish the versions of a rollout.
	Definition Ref    `json:"definition"`
	Generation uint64 `json:"generation"`
	// Canary says that the task's version waits to be promoted.
	Canary bool `json:"canary,omitempty"`
}

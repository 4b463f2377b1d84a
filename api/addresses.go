package api

// Address is where a healthy task of a service can be reached now. A task leaves the list as soon as it is to be
// stopped, before it is told so.
type Address struct {
	Task    TaskID `json:"task"`
	Attempt int    `json:"attempt"`
	Node    string `json:"node"`
	// Address is the node's; Ports are the numbers of the task's ports there, by name.
	Address string         `json:"address"`
	Ports   map[string]int `json:"ports,omitempty"`
	// Definition and Generation tell the versions of a rollout apart.
	Definition Ref    `json:"definition"`
	Generation uint64 `json:"generation"`
	// Canary says that the task is of a version that waits to be promoted.
	Canary bool `json:"canary,omitempty"`
}

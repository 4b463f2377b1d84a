package api

// EndpointView is an endpoint with its status.
type EndpointView struct {
	Endpoint
	Revision uint64         `json:"revision"`
	Status   EndpointStatus `json:"status"`
}

// EndpointStatus is the state of an endpoint.
type EndpointStatus struct {
	// DNS is the name that agents answer with the addresses.
	DNS string `json:"dns"`
	// Addresses counts the present addresses. Healthy and Failing count the tasks with the port and the tags that are
	// healthy, or that run without being healthy.
	Addresses int `json:"addresses"`
	Healthy   int `json:"healthy"`
	Failing   int `json:"failing"`
	// Message says why there is no address.
	Message string `json:"message,omitempty"`
}

// EndpointAddress is an address of an endpoint: the port of a task. It leaves the list when the stop of its task is
// decided, before the task receives the signal.
type EndpointAddress struct {
	// Address is Host and Port as "host:port". Host is the address of the node.
	Address string `json:"address"`
	Host    string `json:"host"`
	Port    int    `json:"port"`
	Node    string `json:"node"`
	Task    TaskID `json:"task"`
	Attempt int    `json:"attempt"`
	// Health is that of the task. It is failing while the node waits to start the task again after a failure.
	Health Health `json:"health"`
	// Definition and Generation distinguish the versions of a rollout.
	Definition Ref    `json:"definition"`
	Generation uint64 `json:"generation"`
	// Canary says that the task's version waits to be promoted.
	Canary bool `json:"canary,omitempty"`
}

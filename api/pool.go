package api

// PoolView is a pool of nodes: its settings and its nodes. The list has the pools with settings and those that nodes
// name.
type PoolView struct {
	Pool
	Status PoolStatus `json:"status"`
	// Revision is that of the pool's record, or 0 for a pool without a record.
	Revision uint64 `json:"revision"`
}

// PoolStatus is the state of a pool.
type PoolStatus struct {
	// Nodes counts the nodes that are in the pool.
	Nodes int `json:"nodes"`
}

package api

// ProfileView is a version of a profile of machines.
type ProfileView struct {
	Profile
	// Nodes are the nodes that were set up with it, by name.
	Nodes []string `json:"nodes,omitempty"`
	// Revision is that of the record.
	Revision uint64 `json:"revision"`
}

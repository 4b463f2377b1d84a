package datadir

// The ports of a server that other machines reach.
const (
	PortAPI   = 7071 // https: agents, servers, people from elsewhere
	PortPeers = 7072 // https: the members of the store among themselves
	PortEtcd  = 2379 // of an etcd that runs elsewhere
)

package datadir

// Ports of a server that other machines use.
const (
	PortAPI    = 7071 // https: agents, servers and remote users
	PortPeers  = 7072 // https: members of the store among themselves
	PortEtcd   = 2379 // an etcd that runs elsewhere
	PortConsul = 8500 // a Consul that runs elsewhere
)

package api

import "time"

// Messages for moving a node between a fleet and its own server. Both sides have the same operations: the present owner
// releases the node, and the next one adopts it.

// NodeObjects are the objects that move with a node: those whose tasks run on it alone, and what they refer to. They
// are as their records have them, with generations and versions, so that the ids of running tasks stay.
type NodeObjects struct {
	Node string `json:"node"`
	// Generation of the present ownership of the node. The next owner has a higher one.
	Generation uint64 `json:"generation"`
	// Labels, Taints and ReservedPorts are the operator's settings of the node.
	Labels        Labels           `json:"labels,omitempty"`
	Taints        []Taint          `json:"taints,omitempty"`
	ReservedPorts []PortRange      `json:"reserved_ports,omitempty"`
	Clusters      []Cluster        `json:"clusters,omitempty"`
	Definitions   []TaskDefinition `json:"definitions,omitempty"`
	Services      []Service        `json:"services,omitempty"`
	Crons         []Cron           `json:"crons,omitempty"`
	Endpoints     []Endpoint       `json:"endpoints,omitempty"`
	// Tasks is the number of attempts on the node.
	Tasks int `json:"tasks"`
	// Revisions are the revisions of the services, crons and endpoints, by "<kind>/<cluster>/<name>".
	Revisions map[string]uint64 `json:"revisions,omitempty"`
	// Stays lists in sentences what does not move, and why.
	Stays []string `json:"stays,omitempty"`
}

// NodeReleaseRequest asks the present owner of a node to release it.
type NodeReleaseRequest struct {
	// DryRun returns the objects and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Revisions are those of the objects that the next owner has adopted. The release is refused if an object differs
	// from them, or if there are others.
	Revisions map[string]uint64 `json:"revisions,omitempty"`
}

// NodeReleaseReply is the answer to a release.
type NodeReleaseReply struct {
	// Objects are those that move, empty for a node that was released before.
	Objects NodeObjects `json:"objects"`
	// Released says that the node has been released, now or before.
	Released bool `json:"released,omitempty"`
}

// NodeAdoptRequest asks the next owner of a node to take its objects.
type NodeAdoptRequest struct {
	// Domain of the node and of its clusters. Default "default".
	Domain string `json:"domain,omitempty"`
	// DryRun returns the changes and writes nothing.
	DryRun  bool        `json:"dry_run,omitempty"`
	Objects NodeObjects `json:"objects"`
}

// NodeAdoptReply has the changes of an adoption.
type NodeAdoptReply struct {
	Changes []Change `json:"changes"`
}

// HandoverPhase is how far a node is on its way between two owners.
type HandoverPhase string

// Phases of the way of a node that `berth standalone` runs.
const (
	// HandoverOwn: the node drives itself. The node has this phase, too, without any move so far.
	HandoverOwn HandoverPhase = "own"
	// HandoverPrepared: the node drives itself, and has a certificate of the servers that are to adopt it.
	HandoverPrepared HandoverPhase = "prepared"
	// HandoverReleasing: the node's own server is releasing it, which the process completes by itself.
	HandoverReleasing HandoverPhase = "releasing"
	// HandoverServers: the servers drive the node.
	HandoverServers HandoverPhase = "servers"
	// HandoverReturning: the servers drive the node, and its own new server has or takes its objects.
	HandoverReturning HandoverPhase = "returning"
)

// Values returns every HandoverPhase, in the order of the constants.
func (HandoverPhase) Values() []HandoverPhase {
	return []HandoverPhase{HandoverOwn, HandoverPrepared, HandoverReleasing, HandoverServers, HandoverReturning}
}

// HostHandover is the way of a node between its own server and the servers of a fleet, as the node itself knows it.
type HostHandover struct {
	Node  string        `json:"node"`
	Phase HandoverPhase `json:"phase"`
	// Number counts the changes of the owner.
	Number uint64 `json:"number"`
	// Servers drive the node, or are to adopt it.
	Servers []string `json:"servers,omitempty"`
	// Since is when the phase began.
	Since time.Time `json:"since,omitzero"`
	// Adopted says, in the phase returning, that the node's own server has the objects.
	Adopted bool `json:"adopted,omitempty"`
	// Problem says why the process cannot complete the phase; it tries again.
	Problem string `json:"problem,omitempty"`
}

// HostPrepareRequest prepares a node for its next owner: servers, or itself.
type HostPrepareRequest struct {
	// Servers are the https addresses of the servers that are to adopt the node, and JoinToken is a token of theirs for
	// the role node.
	Servers   []string `json:"servers,omitempty"`
	JoinToken string   `json:"join_token,omitempty"`
	// Objects, without servers, are the objects that the node's own server is to adopt.
	Objects *NodeObjects `json:"objects,omitempty"`
}

// HostCompleteRequest completes a move.
type HostCompleteRequest struct {
	// Revisions are those of the objects that the servers have adopted; the node's own server releases no others.
	Revisions map[string]uint64 `json:"revisions,omitempty"`
}

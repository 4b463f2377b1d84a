package transport

import (
	"context"
	"net/http"
	"time"
)

// PathAddresses is the path for the healthy addresses of services. The answer may take AddressesWait.
const PathAddresses = "/agent/v1/addresses"

// AddressesWait bounds the time that a server waits for a change.
const AddressesWait = 55 * time.Second

// addressesTimeout bounds the time that an agent waits for the answer.
const addressesTimeout = AddressesWait + 20*time.Second

// AddressesRequest names the services that an agent follows, each once, with the stamp of the agent's knowledge. The
// server answers once one of the services differs, or with an empty reply after AddressesWait. The request may be
// repeated at any time. Since the stamp describes the agent's knowledge, lost and duplicate answers do no harm.
type AddressesRequest struct {
	Node     string           `json:"node"`
	Session  uint64           `json:"session"`
	Services []ServiceRequest `json:"services"`
	// Differences says that the agent accepts differences. Otherwise it receives whole lists.
	Differences bool `json:"differences,omitempty"`
}

func (r AddressesRequest) node() string { return r.Node }

// ServiceRequest is a service of a cluster, with the Stamp of the agent's knowledge, empty for none.
type ServiceRequest struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	Stamp   string `json:"stamp,omitempty"`
	// Known is the stamp of old knowledge that the agent wants to confirm; Stamp is then empty. The server answers
	// immediately, even if nothing changed.
	Known string `json:"known,omitempty"`
}

// AddressesReply holds the services that differ from the agent's knowledge, in the order of the request. If they are
// too large for one reply it holds a part of them, and the next request is answered immediately.
type AddressesReply struct {
	Services []ServiceUpdate `json:"services,omitempty"`
}

// ServiceUpdate is the address list of a service, or a difference from an earlier one.
type ServiceUpdate struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Stamp is the stamp of the agent's knowledge after this update. Equal content has the same stamp at every server
	// (StampOf).
	Stamp string `json:"stamp"`
	// Missing says that there is no such service.
	Missing bool `json:"missing,omitempty"`
	// Since, unless empty, marks a difference from the list with that stamp, see Onto: Gone were removed, and Addresses
	// were added or changed. Only agents that accept Differences receive it.
	Since string         `json:"since,omitempty"`
	Gone  []ServicePlace `json:"gone,omitempty"`
	// Addresses holds the healthy tasks that are not about to end, ordered by task, then node.
	Addresses []ServiceAddress `json:"addresses,omitempty"`

	text, packed []byte
}

// ServiceAddress is the address of a healthy task of a service. Address is the address of its node, and Ports holds the
// numbers of its ports on the node, by name.
type ServiceAddress struct {
	Task    string         `json:"task"`
	Node    string         `json:"node"`
	Address string         `json:"address"`
	Ports   map[string]int `json:"ports,omitempty"`
}

// addressesDispatch is a Dispatch that serves the addresses of services.
type addressesDispatch interface {
	// Addresses waits until one of the services differs, at most AddressesWait.
	Addresses(ctx context.Context, r AddressesRequest) (AddressesReply, error)
}

// handleAddresses serves the requests of agents that follow services.
func handleAddresses(d Dispatch) http.HandlerFunc {
	t, ok := d.(addressesDispatch)
	if !ok {
		return http.NotFound
	}
	return func(w http.ResponseWriter, r *http.Request) {
		var in AddressesRequest
		if !read(w, r, &in) || !checkNode(w, r, in) {
			return
		}
		out, err := t.Addresses(r.Context(), in)
		if err != nil {
			fail(w, err)
			return
		}
		// The server does not wait for an agent that does not read. The agent repeats its request, and gets the list of
		// that time.
		if setWriteDeadline(http.NewResponseController(w), time.Now().Add(writeTimeout)) == nil {
			_ = out.write(w, r.Header.Get("Accept-Encoding") == packedEncoding)
		}
	}
}

// Addresses asks the server of the session for changes of the services' healthy addresses. It waits for a change, about
// a minute at most. Without a change the reply is empty.
func (c *Client) Addresses(ctx context.Context, r AddressesRequest) (AddressesReply, error) {
	var reply AddressesReply
	l, err := c.servers.currentLink()
	if err != nil {
		return reply, err
	}
	ctx, cancel := context.WithTimeout(ctx, addressesTimeout)
	defer cancel()
	if err := c.callPacked(ctx, l, PathAddresses, r, &reply); err != nil {
		return AddressesReply{}, c.servers.callFailed(ctx, l, err)
	}
	c.servers.callAnswered(l)
	return reply, nil
}

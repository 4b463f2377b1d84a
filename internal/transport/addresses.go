package transport

import (
	"context"
	"net/http"
	"time"
)

// PathAddresses is where an agent asks for the healthy addresses of services. The answer may take AddressesWait. A
// server of an earlier build answers 404.
const PathAddresses = "/agent/v1/addresses"

// AddressesWait is how long a server waits at most until it has something to tell.
const AddressesWait = 55 * time.Second

// addressesPatience is how long an agent waits for the answer.
const addressesPatience = AddressesWait + 20*time.Second

// AddressesRequest names the services that an agent follows, each once, with what it was told of them last. The server
// answers once it has something else to tell of one of them, or with nothing after AddressesWait. It may be sent again
// at any time: what is known is told by its stamp, so an answer that was lost, or that comes twice, does no harm.
type AddressesRequest struct {
	Node     string         `json:"node"`
	Session  uint64         `json:"session"`
	Services []ServiceAsked `json:"services"`
	// Differences says that the agent takes them in; one of an earlier build does not, and is told whole lists.
	Differences bool `json:"differences,omitempty"`
}

func (r AddressesRequest) node() string { return r.Node }

// ServiceAsked is a service of a cluster, with the Stamp of what the agent knows of it, empty for nothing.
type ServiceAsked struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	Stamp   string `json:"stamp,omitempty"`
	// Known is, where Stamp is empty, that of what the agent was told in earlier times and does not count on: it is
	// answered at once, also if nothing has changed. A server of an earlier build then tells the whole list.
	Known string `json:"known,omitempty"`
}

// AddressesReply tells of those services that the agent was told something else of, in the order of the request, or of
// a part of them where it is much: then the next request is answered at once.
type AddressesReply struct {
	Services []ServiceTold `json:"services,omitempty"`
}

// ServiceTold is what there is to say of a service.
type ServiceTold struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Stamp stands for what the agent knows once it has taken this in: the same content has the same stamp, whichever
	// server tells it (StampOf).
	Stamp string `json:"stamp"`
	// Missing says that there is no such service.
	Missing bool `json:"missing,omitempty"`
	// Since, unless empty, says that this is a difference from what had that stamp, see Onto: Gone went, and Addresses
	// came or changed. It is told only to agents that ask for Differences.
	Since string         `json:"since,omitempty"`
	Gone  []ServicePlace `json:"gone,omitempty"`
	// Addresses are those of the healthy tasks that are not about to end, by task, then node.
	Addresses []ServiceAddress `json:"addresses,omitempty"`

	text, packed []byte
}

// ServiceAddress is where a healthy task of a service is reached: Address is its node's, Ports are the numbers of its
// ports there, by name.
type ServiceAddress struct {
	Task    string         `json:"task"`
	Node    string         `json:"node"`
	Address string         `json:"address"`
	Ports   map[string]int `json:"ports,omitempty"`
}

// addressTeller is a Dispatch that tells where services are reached.
type addressTeller interface {
	// Addresses waits until there is something to tell of one of the services, at most AddressesWait.
	Addresses(ctx context.Context, r AddressesRequest) (AddressesReply, error)
}

// tellAddresses answers agents that follow services.
func tellAddresses(d Dispatch) http.HandlerFunc {
	t, ok := d.(addressTeller)
	if !ok {
		return http.NotFound
	}
	return func(w http.ResponseWriter, r *http.Request) {
		var in AddressesRequest
		if !read(w, r, &in) || !own(w, r, in) {
			return
		}
		out, err := t.Addresses(r.Context(), in)
		if err != nil {
			fail(w, err)
			return
		}
		// An agent that does not read is not waited for: it asks again, and is told what then stands.
		if bound(http.NewResponseController(w), time.Now().Add(writeMost)) == nil {
			_ = out.write(w, r.Header.Get("Accept-Encoding") == packing)
		}
	}
}

// Addresses asks the server of the session what differs of the services' healthy addresses, and waits until something
// does, about a minute at most: then the reply is empty. ErrUnknown says that the server cannot tell.
func (c *Client) Addresses(ctx context.Context, r AddressesRequest) (AddressesReply, error) {
	var reply AddressesReply
	l, err := c.servers.present()
	if err != nil {
		return reply, err
	}
	ctx, cancel := context.WithTimeout(ctx, addressesPatience)
	defer cancel()
	if err := c.callPacked(ctx, l, PathAddresses, r, &reply); err != nil {
		return AddressesReply{}, c.servers.failed(ctx, l, err)
	}
	c.servers.answered(l)
	return reply, nil
}

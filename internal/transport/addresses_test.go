package transport

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sessionDispatch is a server that begins sessions.
type sessionDispatch struct{ Dispatch }

func (sessionDispatch) Register(context.Context, Registration) (Welcome, error) {
	return Welcome{Session: 1, Wire: WireVersion}, nil
}

// answeringDispatch is a server that sends addresses.
type answeringDispatch struct{ sessionDispatch }

func (answeringDispatch) Addresses(_ context.Context, r AddressesRequest) (reply AddressesReply, err error) {
	if r.Session != 1 {
		return reply, &SessionError{Newest: 1, Detail: "another"}
	}
	update, err := ServiceUpdate{
		Cluster: r.Services[0].Cluster, Service: r.Services[0].Service, Stamp: "s2",
		Addresses: []ServiceAddress{
			{Task: "c.web.1.0", Node: "n1", Address: "192.0.2.1", Ports: map[string]int{"http": 8080}},
		},
	}.Encoded()
	missing := ServiceUpdate{Cluster: "c", Service: "db", Stamp: "none", Missing: true}
	return AddressesReply{Services: []ServiceUpdate{update, missing}}, err
}

// The addresses of services arrive, whether they were encoded before or not.
func TestAddressesOverTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		f.serve(t, "http://new:7071", answeringDispatch{})
		r := AddressesRequest{
			Node: "n1", Session: 1,
			Services: []ServiceRequest{{Cluster: "c", Service: "web", Stamp: "s1"}},
		}
		c := f.client(t, "http://new:7071")
		got, err := c.Addresses(t.Context(), r)
		want := AddressesReply{Services: []ServiceUpdate{
			{
				Cluster: "c", Service: "web", Stamp: "s2",
				Addresses: []ServiceAddress{
					{Task: "c.web.1.0", Node: "n1", Address: "192.0.2.1", Ports: map[string]int{"http": 8080}},
				},
			},
			{Cluster: "c", Service: "db", Stamp: "none", Missing: true},
		}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(ServiceUpdate{})); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		r.Session = 2
		if _, err := c.Addresses(t.Context(), r); !errors.Is(err, ErrSession) {
			t.Errorf("another session: got %v", err)
		}
	})
}

// The shared encoding of an update equals the encoding of its fields.
func TestServiceSentEncoded(t *testing.T) {
	update := ServiceUpdate{
		Cluster: "c", Service: "web", Stamp: "s",
		Addresses: []ServiceAddress{{Task: "t", Node: "n", Address: "a"}},
	}
	plain, err := json.Marshal(update)
	if err != nil {
		t.Fatal(err)
	}
	once, err := update.Encoded()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(once)
	if err != nil || string(text) != string(plain) || once.Size(false) != len(plain) {
		t.Errorf("%s and %s, %d bytes; %v", plain, text, once.Size(false), err)
	}
}

package addresses

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/berthd/berth/internal/transport"
)

// BenchmarkDirectoryTakes measures one change of an address of a service with 1,000 tasks, as a difference and as a
// whole list. It includes parsing and applying.
func BenchmarkDirectoryTakes(b *testing.B) {
	web := ServiceName{"default", "web"}
	list := make([]transport.ServiceAddress, 1000)
	for i := range list {
		list[i] = transport.ServiceAddress{
			Task: fmt.Sprintf("default.web.1.%03d", i), Node: fmt.Sprintf("node-%d", i),
			Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Ports: map[string]int{"http": 20000},
		}
	}
	other := slices.Clone(list)
	other[500].Ports = map[string]int{"http": 20001}
	text := func(since string, now, sent []transport.ServiceAddress) []byte {
		t, err := json.Marshal(transport.AddressesReply{Services: []transport.ServiceUpdate{{
			Cluster: "default", Service: "web", Stamp: transport.StampOf(false, now), Since: since, Addresses: sent,
		}}})
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	one, two := transport.StampOf(false, list), transport.StampOf(false, other)
	for name, texts := range map[string][2][]byte{
		"whole":      {text("", other, other), text("", list, list)},
		"difference": {text(one, other, other[500:501]), text(two, list, list[500:501])},
	} {
		b.Run(name, func(b *testing.B) {
			d := &Directory{dirty: make(chan struct{}, 1), services: map[ServiceName]*followed{}}
			f := &Following{directory: d, changed: make(chan struct{}), seen: map[ServiceName]uint64{web: 1}}
			d.services[web] = &followed{
				now:       Service{Known: true, Stamp: one, Addresses: list},
				followers: map[*Following]bool{f: true},
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var reply transport.AddressesReply
				if err := json.Unmarshal(texts[i%2], &reply); err != nil {
					b.Fatal(err)
				}
				d.apply(&reply)
				if d.wholeLists || len(d.services[web].now.Addresses) != len(list) {
					b.Fatal("it was not taken in")
				}
			}
		})
	}
}

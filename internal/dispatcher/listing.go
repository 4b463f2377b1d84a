package dispatcher

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

const (
	// maxVersions limits the remembered versions of a listing. An agent with one of them receives a difference.
	maxVersions = 256
	// minDepartures is the least number of removed addresses that a list remembers. A longer list remembers as many as
	// it has entries. More would make differences as long as the list.
	minDepartures = 64
)

// listing is the address list of a service, or of the endpoint with the name, with its recent changes. Each address has
// the version since which it is unchanged, so one pass over the list gives the difference from any remembered version.
// The directory's mutex guards it.
type listing struct {
	owner cluster.OwnerRef
	// reads is the service that the addresses are from: the owner, or the service of the endpoint. It is the zero value
	// if neither exists.
	reads   cluster.OwnerRef
	missing bool
	entries []entry // by place
	sum     transport.Sum
	stamp   string
	version uint64
	// versions are the remembered versions, the oldest first, the present one last. numbers maps a stamp to its newest
	// version.
	versions []version
	numbers  map[string]uint64
	gone     []departure // ordered by version, including addresses that came back

	whole *transport.ServiceUpdate // the encoded list; nil before its first use
	// since holds the encoded differences from versions to the present one; nil if the whole list is not longer.
	since map[uint64]*transport.ServiceUpdate

	waiting map[*waiter]bool
	idle    time.Duration // since when no agent waits
}

// entry is an address that exists since the version came, and is unchanged since the version since.
type entry struct {
	transport.ServiceAddress
	sum         transport.Sum
	came, since uint64
}

// version is a state of the listing that an agent may have.
type version struct {
	number uint64
	stamp  string
}

// departure is an address that existed from the version came on, and was removed with another version.
type departure struct {
	place         transport.ServicePlace
	came, version uint64
}

// newListing returns the present listing of a service.
func newListing(snap *store.Snapshot, owner cluster.OwnerRef) *listing {
	l := &listing{owner: owner, waiting: map[*waiter]bool{}, numbers: map[string]uint64{}}
	l.update(snap)
	return l
}

// update reads the present addresses, and reports whether the listing changed. It visits each task of the service;
// unchanged tasks cost nothing more.
func (l *listing) update(snap *store.Snapshot) bool {
	next := l.version + 1
	list := sortedByPlace(l.read(snap))
	found := l.reads != cluster.OwnerRef{}
	entries, old, sum := make([]entry, 0, len(list)), l.entries, l.sum
	left := len(l.gone)
	for i := range list {
		a := transport.ServiceAddress{
			Task: string(list[i].Task), Node: list[i].Node, Address: list[i].Address,
			Ports: list[i].Ports,
		}
		came := next
		for len(old) > 0 && old[0].Place().Compare(a.Place()) < 0 {
			sum, old = l.addDeparture(sum, &old[0], next), old[1:]
		}
		if len(old) > 0 && old[0].Place() == a.Place() {
			was := &old[0]
			if old = old[1:]; was.Equal(&a) {
				entries = append(entries, *was)
				continue
			}
			sum, came = sum.Minus(was.sum), was.came
		}
		e := entry{a, a.Sum(), came, next}
		sum, entries = sum.Plus(e.sum), append(entries, e)
	}
	for i := range old {
		sum = l.addDeparture(sum, &old[i], next)
	}
	stamp := sum.Stamp(!found)
	if l.version > 0 && stamp == l.stamp {
		l.gone = l.gone[:left] // nothing was removed, or all of it came back
		return false
	}
	l.missing, l.entries, l.sum, l.stamp, l.version = !found, entries, sum, stamp, next
	l.whole, l.since = nil, map[uint64]*transport.ServiceUpdate{}
	l.versions, l.numbers[stamp] = append(l.versions, version{next, stamp}), next
	l.trim()
	return true
}

// read returns the present addresses of the service or the endpoint, and sets the service that they are from.
func (l *listing) read(snap *store.Snapshot) []store.Address {
	if _, ok := snap.Service(l.owner.Cluster, l.owner.Name); ok {
		l.reads = l.owner
		return snap.HealthyAddresses(l.owner)
	}
	if e, ok := snap.Endpoint(l.owner.Cluster, l.owner.Name); ok {
		l.reads = e.Value.Target()
		return snap.EndpointAddresses(e.Value)
	}
	l.reads = cluster.OwnerRef{}
	return nil
}

// sortedByPlace sorts addresses by task, then node, and removes duplicates. The input is ordered by task, then attempt.
func sortedByPlace(list []store.Address) []store.Address {
	order := func(a, b store.Address) int { return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Node, b.Node)) }
	if !slices.IsSortedFunc(list, order) {
		slices.SortStableFunc(list, order)
	}
	return slices.CompactFunc(list, func(a, b store.Address) bool { return order(a, b) == 0 })
}

// addDeparture notes that an address is removed with a version, and returns the sum without it.
func (l *listing) addDeparture(sum transport.Sum, e *entry, with uint64) transport.Sum {
	l.gone = append(l.gone, departure{e.Place(), e.came, with})
	return sum.Minus(e.sum)
}

// trim drops the oldest versions, and the departures before the oldest one that is left.
func (l *listing) trim() {
	drop := max(0, len(l.versions)-maxVersions)
	if over := len(l.gone) - max(minDepartures, len(l.entries)); over > 0 { // only too old versions need these
		for drop < len(l.versions)-1 && l.versions[drop].number < l.gone[over-1].version {
			drop++
		}
	}
	if drop == 0 {
		return
	}
	for _, v := range l.versions[:drop] {
		if l.numbers[v.stamp] == v.number {
			delete(l.numbers, v.stamp)
		}
	}
	l.versions = slices.Clone(l.versions[drop:])
	first := l.versions[0].number
	l.gone = slices.Clone(l.gone[sort.Search(len(l.gone), func(i int) bool { return l.gone[i].version > first }):])
}

// answerFor returns the answer for an agent that has the version with a stamp, "" for none. It returns nil if the agent
// has the present version, unless confirm is set. differences says that the agent accepts differences.
func (l *listing) answerFor(e *transport.Encoder, stamp string, confirm, differences bool) (*transport.ServiceUpdate,
	error,
) {
	if stamp == l.stamp && !confirm {
		return nil, nil
	}
	if number, ok := l.numbers[stamp]; ok && differences {
		update, made := l.since[number]
		if !made {
			var err error
			if update, err = l.difference(e, number, stamp); err != nil {
				return nil, err
			}
			l.since[number] = update
		}
		if update != nil {
			return update, nil
		}
	}
	if l.whole == nil {
		t := l.header()
		for i := range l.entries {
			t.Addresses = append(t.Addresses, l.entries[i].ServiceAddress)
		}
		encoded, err := e.Encode(t)
		if err != nil {
			return nil, err
		}
		l.whole = &encoded
	}
	return l.whole, nil
}

func (l *listing) header() transport.ServiceUpdate {
	return transport.ServiceUpdate{Cluster: l.owner.Cluster, Service: l.owner.Name, Stamp: l.stamp, Missing: l.missing}
}

// difference returns the changes since a version, or nil if they are as long as the whole list.
func (l *listing) difference(e *transport.Encoder, number uint64, stamp string) (*transport.ServiceUpdate, error) {
	t := l.header()
	t.Since = stamp
	for i := range l.entries {
		if l.entries[i].since > number {
			t.Addresses = append(t.Addresses, l.entries[i].ServiceAddress)
		}
	}
	from := sort.Search(len(l.gone), func(i int) bool { return l.gone[i].version > number })
	for _, g := range l.gone[from:] {
		if g.came > number {
			continue // added and removed since that version
		}
		if _, back := slices.BinarySearchFunc(l.entries, g.place, func(e entry, p transport.ServicePlace) int {
			return e.Place().Compare(p)
		}); !back {
			t.Gone = append(t.Gone, g.place)
		}
	}
	slices.SortFunc(t.Gone, transport.ServicePlace.Compare)
	// A removed address takes about half the space of an added one.
	if stamp != l.stamp && len(t.Addresses)+len(t.Gone)/2 >= len(l.entries) {
		return nil, nil
	}
	encoded, err := e.Encode(t)
	return &encoded, err
}

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
	// mostVersions is how many versions of a listing are remembered: an agent that knows one of them is told what came
	// and went since.
	mostVersions = 256
	// leastGone is of how many addresses at least it is remembered that they went. Of long lists it is as many as are
	// there: more would make differences that are no shorter than the list.
	leastGone = 64
)

// listing is what is to be told of a service, and how it came to be so: of each address it is known since which version
// it is there as it is, so the difference from any version that is remembered is one look along the list. The mutex of
// the directory guards it.
type listing struct {
	owner   cluster.OwnerRef
	missing bool
	entries []entry // by place
	sum     transport.Sum
	stamp   string
	version uint64
	// versions are those that are remembered, the oldest first, the present one last; numbers are the newest with a
	// stamp.
	versions []version
	numbers  map[string]uint64
	gone     []departure // by version; what came back meanwhile is in it too

	whole *transport.ServiceTold // nil before somebody was told it
	// differences from versions to the present one; nil where the whole list is not longer
	since map[uint64]*transport.ServiceTold

	waiting map[*waiter]bool
	idle    time.Duration // since when nobody waits
}

// entry is an address that is there since the version came, as it is since another.
type entry struct {
	transport.ServiceAddress
	sum         transport.Sum
	came, since uint64
}

// version is one that was told, or could have been.
type version struct {
	number uint64
	stamp  string
}

// departure is an address that was there from the version came on, and went with another.
type departure struct {
	place         transport.ServicePlace
	came, version uint64
}

// newListing returns what there is to say of a service now.
func newListing(snap *store.Snapshot, owner cluster.OwnerRef) *listing {
	l := &listing{owner: owner, waiting: map[*waiter]bool{}, numbers: map[string]uint64{}}
	l.look(snap)
	return l
}

// look takes in how it is now, and reports whether that is something else than before. It costs a look at each task of
// the service, and no more than that for those that are as they were.
func (l *listing) look(snap *store.Snapshot) bool {
	next := l.version + 1
	_, found := snap.Service(l.owner.Cluster, l.owner.Name)
	var list []store.Address
	if found {
		list = inOrder(snap.HealthyAddresses(l.owner))
	}
	entries, old, sum := make([]entry, 0, len(list)), l.entries, l.sum
	left := len(l.gone)
	for i := range list {
		a := transport.ServiceAddress{
			Task: string(list[i].Task), Node: list[i].Node, Address: list[i].Address,
			Ports: list[i].Ports,
		}
		came := next
		for len(old) > 0 && old[0].Place().Compare(a.Place()) < 0 {
			sum, old = l.leave(sum, &old[0], next), old[1:]
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
		sum = l.leave(sum, &old[i], next)
	}
	stamp := sum.Stamp(!found)
	if l.version > 0 && stamp == l.stamp {
		l.gone = l.gone[:left] // nothing went, or what went came
		return false
	}
	l.missing, l.entries, l.sum, l.stamp, l.version = !found, entries, sum, stamp, next
	l.whole, l.since = nil, map[uint64]*transport.ServiceTold{}
	l.versions, l.numbers[stamp] = append(l.versions, version{next, stamp}), next
	l.forget()
	return true
}

// inOrder sorts addresses by task, then node, of which each is named once: they are by attempt where a task has
// several.
func inOrder(list []store.Address) []store.Address {
	order := func(a, b store.Address) int { return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Node, b.Node)) }
	if !slices.IsSortedFunc(list, order) {
		slices.SortStableFunc(list, order)
	}
	return slices.CompactFunc(list, func(a, b store.Address) bool { return order(a, b) == 0 })
}

// leave notes that an address goes with a version, and returns the sum without it.
func (l *listing) leave(sum transport.Sum, e *entry, with uint64) transport.Sum {
	l.gone = append(l.gone, departure{e.Place(), e.came, with})
	return sum.Minus(e.sum)
}

// forget forgets the oldest versions, and what went before the oldest that is left.
func (l *listing) forget() {
	drop := max(0, len(l.versions)-mostVersions)
	if over := len(l.gone) - max(leastGone, len(l.entries)); over > 0 { // so many are needed by too old versions
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

// tell returns what an agent is to be told that knows what has a stamp, "" for nothing; nil where there is nothing to
// tell. Confirm asks for an answer also then, and differences says that the agent takes them in.
func (l *listing) tell(e *transport.Encoder, stamp string, confirm, differences bool) (*transport.ServiceTold, error) {
	if stamp == l.stamp && !confirm {
		return nil, nil
	}
	if number, ok := l.numbers[stamp]; ok && differences {
		told, made := l.since[number]
		if !made {
			var err error
			if told, err = l.difference(e, number, stamp); err != nil {
				return nil, err
			}
			l.since[number] = told
		}
		if told != nil {
			return told, nil
		}
	}
	if l.whole == nil {
		t := l.told()
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

func (l *listing) told() transport.ServiceTold {
	return transport.ServiceTold{Cluster: l.owner.Cluster, Service: l.owner.Name, Stamp: l.stamp, Missing: l.missing}
}

// difference returns what came and went since a version, nil where that is as much as all.
func (l *listing) difference(e *transport.Encoder, number uint64, stamp string) (*transport.ServiceTold, error) {
	t := l.told()
	t.Since = stamp
	for i := range l.entries {
		if l.entries[i].since > number {
			t.Addresses = append(t.Addresses, l.entries[i].ServiceAddress)
		}
	}
	from := sort.Search(len(l.gone), func(i int) bool { return l.gone[i].version > number })
	for _, g := range l.gone[from:] {
		if g.came > number {
			continue // it came and went since
		}
		if _, back := slices.BinarySearchFunc(l.entries, g.place, func(e entry, p transport.ServicePlace) int {
			return e.Place().Compare(p)
		}); !back {
			t.Gone = append(t.Gone, g.place)
		}
	}
	slices.SortFunc(t.Gone, transport.ServicePlace.Compare)
	// The name of one that went is about half as long as one that came.
	if stamp != l.stamp && len(t.Addresses)+len(t.Gone)/2 >= len(l.entries) {
		return nil, nil
	}
	encoded, err := e.Encode(t)
	return &encoded, err
}

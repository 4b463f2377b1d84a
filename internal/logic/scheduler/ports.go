package scheduler

import (
	"math/bits"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// autoPorts is the number of ports that can be assigned.
const autoPorts = cluster.LastAutoPort - cluster.FirstAutoPort + 1

// portSet is the set of ports taken on a node. Records may show a port as taken more than once: it is free when all
// holders have released it.
type portSet struct {
	auto     [(autoPorts + 63) / 64]uint64 // assignable ports, as bits from FirstAutoPort
	autoUsed int                           // number of bits set in auto
	other    []int                         // other ports, ordered
	again    []int                         // further holders of ports, ordered
}

func (s *portSet) has(port int) bool {
	if i := port - cluster.FirstAutoPort; i >= 0 && i < autoPorts {
		return s.auto[i/64]&(1<<(i%64)) != 0
	}
	_, found := slices.BinarySearch(s.other, port)
	return found
}

func (s *portSet) add(port int) {
	if s.has(port) {
		at, _ := slices.BinarySearch(s.again, port)
		s.again = slices.Insert(s.again, at, port)
		return
	}
	if i := port - cluster.FirstAutoPort; i >= 0 && i < autoPorts {
		s.auto[i/64] |= 1 << (i % 64)
		s.autoUsed++
		return
	}
	at, _ := slices.BinarySearch(s.other, port)
	s.other = slices.Insert(s.other, at, port)
}

func (s *portSet) remove(port int) {
	if at, found := slices.BinarySearch(s.again, port); found {
		s.again = slices.Delete(s.again, at, at+1)
		return
	}
	if !s.has(port) {
		return
	}
	if i := port - cluster.FirstAutoPort; i >= 0 && i < autoPorts {
		s.auto[i/64] &^= 1 << (i % 64)
		s.autoUsed--
		return
	}
	at, _ := slices.BinarySearch(s.other, port)
	s.other = slices.Delete(s.other, at, at+1)
}

// clone returns a copy; nil of nil.
func (s *portSet) clone() *portSet {
	if s == nil {
		return nil
	}
	c := *s
	c.other, c.again = slices.Clone(s.other), slices.Clone(s.again)
	return &c
}

// next returns the first free assignable port at or after from. It continues at the first after the last, and returns 0
// if no port is free.
func (s *portSet) next(from int) int {
	if s.autoUsed == autoPorts {
		return 0
	}
	start := from - cluster.FirstAutoPort
	for i := start; i < autoPorts; {
		if free := ^s.auto[i/64] >> (i % 64); free != 0 {
			if i += bits.TrailingZeros64(free); i < autoPorts {
				return cluster.FirstAutoPort + i
			}
			break
		}
		i += 64 - i%64
	}
	if start == 0 {
		return 0
	}
	return s.next(cluster.FirstAutoPort)
}

// firstPort returns where the search for a task's ports starts. It differs between tasks and attempts: clients may
// still connect to a port that was just released, so it must not be assigned next.
func firstPort(task cluster.TaskID, attempt int) int {
	const offset, prime = 2166136261, 16777619 // FNV-1a, 32 bits
	h := uint32(offset)
	for i := range len(task) {
		h = (h ^ uint32(task[i])) * prime
	}
	for range 4 {
		h = (h ^ uint32(attempt&0xff)) * prime
		attempt >>= 8
	}
	return cluster.FirstAutoPort + int(h%autoPorts)
}

// assign takes ports for a task: the ports that it names, and free ports for the others. The caller has checked that
// there are enough.
func (s *portSet) assign(p *cluster.Pending) map[string]int {
	ports := make(map[string]int, len(p.Ports))
	for _, port := range p.Ports {
		if port.Port != 0 {
			s.add(port.Port)
			ports[port.Name] = port.Port
		}
	}
	from := firstPort(p.Task, p.Attempt)
	for _, port := range p.Ports {
		if port.Port == 0 {
			n := s.next(from)
			s.add(n)
			ports[port.Name] = n
		}
	}
	return ports
}

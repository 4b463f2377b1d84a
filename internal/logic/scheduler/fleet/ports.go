package fleet

import (
	"math/bits"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// AutoPorts is the number of ports that can be assigned.
const AutoPorts = cluster.LastAutoPort - cluster.FirstAutoPort + 1

// PortSet is the set of ports taken on a node. Records may show a port as taken more than once: it is free when all
// holders have released it.
type PortSet struct {
	auto     [(AutoPorts + 63) / 64]uint64 // assignable ports, as bits from FirstAutoPort
	AutoUsed int                           // number of bits set in auto
	other    []int                         // other ports, ordered
	again    []int                         // further holders of ports, ordered
}

// Has reports whether a port is taken.
func (s *PortSet) Has(port int) bool {
	if i := port - cluster.FirstAutoPort; i >= 0 && i < AutoPorts {
		return s.auto[i/64]&(1<<(i%64)) != 0
	}
	_, found := slices.BinarySearch(s.other, port)
	return found
}

// Add takes a port for one more holder.
func (s *PortSet) Add(port int) {
	if s.Has(port) {
		at, _ := slices.BinarySearch(s.again, port)
		s.again = slices.Insert(s.again, at, port)
		return
	}
	if i := port - cluster.FirstAutoPort; i >= 0 && i < AutoPorts {
		s.auto[i/64] |= 1 << (i % 64)
		s.AutoUsed++
		return
	}
	at, _ := slices.BinarySearch(s.other, port)
	s.other = slices.Insert(s.other, at, port)
}

// Remove releases a port by one holder. A port that is free stays so.
func (s *PortSet) Remove(port int) {
	if at, found := slices.BinarySearch(s.again, port); found {
		s.again = slices.Delete(s.again, at, at+1)
		return
	}
	if !s.Has(port) {
		return
	}
	if i := port - cluster.FirstAutoPort; i >= 0 && i < AutoPorts {
		s.auto[i/64] &^= 1 << (i % 64)
		s.AutoUsed--
		return
	}
	at, _ := slices.BinarySearch(s.other, port)
	s.other = slices.Delete(s.other, at, at+1)
}

// clone returns a copy; nil of nil.
func (s *PortSet) clone() *PortSet {
	if s == nil {
		return nil
	}
	c := *s
	c.other, c.again = slices.Clone(s.other), slices.Clone(s.again)
	return &c
}

// next returns the first free assignable port at or after from. It continues at the first after the last, and returns 0
// if no port is free.
func (s *PortSet) next(from int) int {
	if s.AutoUsed == AutoPorts {
		return 0
	}
	start := from - cluster.FirstAutoPort
	for i := start; i < AutoPorts; {
		if free := ^s.auto[i/64] >> (i % 64); free != 0 {
			if i += bits.TrailingZeros64(free); i < AutoPorts {
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

// FirstPort returns where the search for a task's ports starts. It differs between tasks and attempts: clients may
// still connect to a port that was just released, so it must not be assigned next.
func FirstPort(task cluster.TaskID, attempt int) int {
	const offset, prime = 2166136261, 16777619 // FNV-1a, 32 bits
	h := uint32(offset)
	for i := range len(task) {
		h = (h ^ uint32(task[i])) * prime
	}
	for range 4 {
		h = (h ^ uint32(attempt&0xff)) * prime
		attempt >>= 8
	}
	return cluster.FirstAutoPort + int(h%AutoPorts)
}

// Assign takes ports for a task: the ports that it names, and free ports for the others. The caller has checked that
// there are enough.
func (s *PortSet) Assign(p *cluster.Pending) map[string]int {
	ports := make(map[string]int, len(p.Ports))
	for _, port := range p.Ports {
		if port.Port != 0 {
			s.Add(port.Port)
			ports[port.Name] = port.Port
		}
	}
	from := FirstPort(p.Task, p.Attempt)
	for _, port := range p.Ports {
		if port.Port == 0 {
			n := s.next(from)
			s.Add(n)
			ports[port.Name] = n
		}
	}
	return ports
}

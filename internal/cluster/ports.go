package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxPort is the highest number of a port.
const maxPort = 65535

// MaxReservedPorts bounds the reserved ports of a node, by its agent and by the operator each. The leader keeps each of
// them in memory for each node.
const MaxReservedPorts = 4096

// PortRange is a port or a range of ports: "22", "8000-8100".
type PortRange string

// ParsePortRanges reads ranges that commas separate: "22,8000-8100". It does not check the ranges.
func ParsePortRanges(text string) (ranges []PortRange) {
	for part := range strings.SplitSeq(text, ",") {
		ranges = append(ranges, PortRange(strings.TrimSpace(part)))
	}
	return ranges
}

// Bounds returns the first and the last port of the range. The error is a sentence for users.
func (r PortRange) Bounds() (first, last int, err error) {
	from, to, isRange := strings.Cut(string(r), "-")
	if !isRange {
		to = from
	}
	first, ok := portNumber(from)
	last, ok2 := portNumber(to)
	if !ok || !ok2 || last < first {
		return 0, 0, fmt.Errorf("%q is not a port or a range of ports: want numbers from 1 to %d, such as 22 or "+
			"8000-8100", clip(string(r)), maxPort)
	}
	return first, last, nil
}

// portNumber reads a port in its only form: without a sign and leading zeros.
func portNumber(text string) (port int, ok bool) {
	port, err := strconv.Atoi(text)
	return port, err == nil && port >= 1 && port <= maxPort && strconv.Itoa(port) == text
}

// interval is a readable range.
type interval struct{ first, last int }

// merged returns the readable ranges in order, without overlaps and gaps of no port.
func merged(ranges []PortRange) (all []interval) {
	var read []interval
	for _, r := range ranges {
		if first, last, err := r.Bounds(); err == nil {
			read = append(read, interval{first, last})
		}
	}
	slices.SortFunc(read, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	for _, r := range read {
		if n := len(all); n > 0 && r.first <= all[n-1].last+1 {
			all[n-1].last = max(all[n-1].last, r.last)
			continue
		}
		all = append(all, r)
	}
	return all
}

// Ports returns the ports of ranges, ordered, each once. Ranges that cannot be read have none.
func Ports(ranges []PortRange) (ports []int) {
	for _, r := range merged(ranges) {
		for p := r.first; p <= r.last; p++ {
			ports = append(ports, p)
		}
	}
	return ports
}

// PortRangesOf returns the fewest ranges of ordered ports.
func PortRangesOf(ports []int) (ranges []PortRange) {
	for i := 0; i < len(ports); {
		j := i
		for j+1 < len(ports) && ports[j+1] == ports[j]+1 {
			j++
		}
		text := strconv.Itoa(ports[i])
		if j > i {
			text += "-" + strconv.Itoa(ports[j])
		}
		ranges = append(ranges, PortRange(text))
		i = j + 1
	}
	return ranges
}

// JoinPortRanges writes ranges in the form that ParsePortRanges reads.
func JoinPortRanges(ranges []PortRange) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = string(r)
	}
	return strings.Join(texts, ",")
}

// ports checks the ranges of reserved ports: each range, and the number of their ports.
func (c check) ports(ranges []PortRange) {
	c.must(len(ranges) <= MaxReservedPorts, "holds %d ranges, at most %d are allowed", len(ranges), MaxReservedPorts)
	for i, r := range ranges[:min(len(ranges), MaxReservedPorts)] {
		if _, _, err := r.Bounds(); err != nil {
			c.element(i).fault("%s", err)
		}
	}
	n := 0
	for _, r := range merged(ranges) {
		n += r.last - r.first + 1
	}
	c.must(n <= MaxReservedPorts, "names %d ports, at most %d are allowed", n, MaxReservedPorts)
}

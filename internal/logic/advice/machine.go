package advice

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// maxValues is how many values of an attribute are tried for a new node.
const maxValues = 32

// offers is what at least one node of a fleet has, so that a new node can be expected to have it, too.
type offers struct {
	images   bool // the executor of images, or the task needs none
	networks map[cluster.NetworkMode]bool
}

func offersOf(f *scheduler.Fleet, p *cluster.Pending) offers {
	all := offers{images: !p.NeedsImage, networks: map[cluster.NetworkMode]bool{}}
	for _, name := range f.Nodes() {
		n, _, _ := f.Node(name)
		all.images = all.images || slices.Contains(n.Executors, imageExecutor)
		for _, fact := range n.Networks {
			all.networks[fact.Mode] = all.networks[fact.Mode] || cluster.LacksNetwork(n.Networks, fact.Mode) == ""
		}
	}
	return all
}

// machine returns the smallest new node that would take the task; nil if none is found. It has exactly what the task
// requests, and meets its constraints.
func (s *search) machine(p *cluster.Pending) *cluster.Machine {
	m := &cluster.Machine{
		Capacity: p.Demand, Pool: p.Placement.Pool, Labels: cluster.Labels{},
		Executors: []string{imageExecutor},
	}
	if p.Plain {
		m.Executors = []string{imageExecutor, plainExecutor}
	}
	if p.Network != cluster.NetworkHost {
		m.Network = p.Network
	}
	if p.OnlyNode != "" {
		m.Name = p.OnlyNode
	}
	for i, r := range p.Devices {
		for range max(r.Count, 1) {
			d := cluster.Device{
				ID: fmt.Sprint("new-", i, "-", len(m.Devices)), Type: deviceType(r), Memory: r.Memory,
				Numa: -1,
			}
			if len(r.Models) > 0 {
				d.Model = r.Models[0]
			}
			m.Devices = append(m.Devices, d)
		}
	}
	for _, c := range p.Placement.Constraints {
		if n := nodeOf(m, m.Name); scheduler.Matches(c, &n) {
			continue
		}
		s.setMatchingValue(m, p.Placement.Constraints, c.Attribute)
	}
	if m.Name != "" {
		if _, _, taken := s.fleet.Node(m.Name); taken {
			return nil
		}
	}
	if !s.suits(m, p, 2) {
		return nil
	}
	if len(m.Labels) == 0 {
		m.Labels = nil
	}
	return m
}

// suits reports whether the machine would take the task. If tasks near it exclude the task, it tries other values of
// the attribute, for up to depth attributes.
func (s *search) suits(m *cluster.Machine, p *cluster.Pending, depth int) bool {
	undo := addMachines(s.fleet, m, 1)
	takes := s.places(*p)
	var attribute string
	if !takes && depth > 0 {
		attribute = s.nearAttribute(m, p)
	}
	undo()
	if takes || attribute == "" {
		return takes
	}
	before := *m
	named := namedValues(p.Placement.Constraints, attribute)
	for _, v := range slices.Concat([]string{"new"}, named, s.values(attribute)) {
		*m = before
		m.Labels = maps.Clone(before.Labels)
		setAttribute(m, attribute, v)
		n := nodeOf(m, m.Name)
		if slices.ContainsFunc(p.Placement.Constraints, func(c cluster.Constraint) bool {
			return !scheduler.Matches(c, &n)
		}) {
			continue
		}
		if s.suits(m, p, depth-1) {
			return true
		}
	}
	*m = before
	return false
}

// nearAttribute returns the attribute by which other tasks keep the task off the added machine, or "".
func (s *search) nearAttribute(m *cluster.Machine, p *cluster.Pending) string {
	name := m.Name
	for i := 0; name == ""; i++ { // find the name that addMachines chose: the last one taken
		if _, _, taken := s.fleet.Node(fmt.Sprintf("new-%d", i)); !taken {
			name = fmt.Sprintf("new-%d", i-1)
		}
	}
	for _, h := range s.ask(*p, name) {
		switch h.Code {
		case cluster.ReasonDistinct:
			return p.Placement.Distinct[h.Number].Attribute
		case cluster.ReasonSkew:
			return p.Placement.Spread[h.Number].Attribute
		case cluster.ReasonRelation:
			if h.Number >= 0 {
				return p.Placement.Relations[h.Number].Attribute
			}
			_, attribute, _ := strings.Cut(h.Detail, " in the same ")
			return attribute
		default:
		}
	}
	return ""
}

// values returns the nodes' values of an attribute, in order.
func (s *search) values(attribute string) []string {
	all := map[string]bool{}
	for _, name := range s.fleet.Nodes() {
		n, _, _ := s.fleet.Node(name)
		all[n.Value(attribute)] = true
	}
	values := slices.Sorted(maps.Keys(all))
	return values[:min(len(values), maxValues)]
}

// setMatchingValue gives the machine a value that meets all constraints on an attribute, if it finds one.
func (s *search) setMatchingValue(m *cluster.Machine, constraints []cluster.Constraint, attribute string) {
	own := slices.DeleteFunc(slices.Clone(constraints), func(c cluster.Constraint) bool {
		return c.Attribute != attribute
	})
	for _, v := range slices.Concat(namedValues(own, attribute), []string{"any", ""}, s.values(attribute)) {
		if _, _, taken := s.fleet.Node(v); attribute == "node.name" && taken {
			continue
		}
		try := *m
		try.Labels = maps.Clone(m.Labels)
		setAttribute(&try, attribute, v)
		n := nodeOf(&try, try.Name)
		if !slices.ContainsFunc(own, func(c cluster.Constraint) bool { return !scheduler.Matches(c, &n) }) {
			*m = try
			return
		}
	}
}

// namedValues returns the values of an attribute that constraints name, and numbers next to them.
func namedValues(constraints []cluster.Constraint, attribute string) (values []string) {
	const beside = 4
	for _, c := range constraints {
		if c.Attribute != attribute {
			continue
		}
		values = append(append(values, c.Value), c.Values...)
		if number, err := strconv.ParseInt(c.Value, 10, 32); err == nil {
			for away := int64(1); away <= beside; away++ {
				values = append(values, strconv.FormatInt(number+away, 10), strconv.FormatInt(number-away, 10))
			}
		}
	}
	return values
}

// setAttribute gives the machine a value of an attribute.
func setAttribute(m *cluster.Machine, attribute, v string) {
	switch attribute {
	case "node.name":
		m.Name = v
	case "node.arch":
		m.Arch = v
	case "node.os":
		m.OS = v
	case "node.kernel":
		m.Kernel = v
	case "node.pool":
		m.Pool = v
	case "node.class":
		m.Labels["class"] = v
	case "node.executor":
		m.Executors = slices.Compact([]string{imageExecutor, v})
	}
	if key, ok := strings.CutPrefix(attribute, "label."); ok {
		m.Labels[key] = v
	}
	kind, count, ok := cluster.DeviceAttribute(attribute)
	if !ok {
		return
	}
	if !count {
		m.Devices = slices.Clone(m.Devices)
		for i := range m.Devices {
			if m.Devices[i].Type == kind {
				m.Devices[i].Model = cmp.Or(m.Devices[i].Model, v)
			}
		}
		return
	}
	const most = 64
	want, err := strconv.Atoi(v)
	if err != nil || want > most {
		return
	}
	have := 0
	for i := range m.Devices {
		if m.Devices[i].Type == kind {
			have++
		}
	}
	m.Devices = slices.Clone(m.Devices)
	for ; have < want; have++ {
		m.Devices = append(m.Devices, cluster.Device{ID: fmt.Sprint("new-", len(m.Devices)), Type: kind, Numa: -1})
	}
}

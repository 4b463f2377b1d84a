package cluster

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of placements and of facts of nodes.
const (
	MaxSpreads     = 16 // of a placement, and so many relations and distincts
	MaxTolerations = 64
	MaxTaints      = 64 // of a node
	// MaxDevices limits the devices of a node, and so the request of a task.
	MaxDevices        = 1024
	MaxDeviceRequests = 16 // of a container
	// MaxGang bounds the tasks of a gang: they are written into one record, or none of them is.
	MaxGang = 1000
	// MinStay is the shortest time that a toleration can let a task stay.
	MinStay = Duration(time.Second)
	// MinGangDeadline is the shortest time that a gang can be given to find its places.
	MinGangDeadline = Duration(time.Second)
)

// placement checks all fields of a placement. A daemon's tasks have no choice of a node, so a daemon may have
// requirements only.
func (c check) placement(p Placement, daemon bool) {
	c.at("strategy").strategy(p.Strategy)
	oneOf(c.at("anti_affinity"), p.AntiAffinity)
	c.constraints("constraints", p.Constraints)
	if p.Pool != "" {
		c.at("pool").name(p.Pool)
	}
	if p.Reservation != "" {
		c.at("reservation").name(p.Reservation)
	}
	c.affinities(p.Affinities)
	c.spread(p.Spread)
	c.relations(p.Relations)
	c.distinct(p.Distinct)
	c.tolerations(p.Tolerations, daemon)
	if daemon {
		const why = "is not for a daemon, which has one task on each node that its constraints allow"
		c.at("affinities").must(len(p.Affinities) == 0, why)
		c.at("spread").must(len(p.Spread) == 0, why)
		c.at("distinct").must(len(p.Distinct) == 0, why)
		for i := range p.Relations {
			c.index("relations", i).must(p.Relations[i].Required,
				"is a preference, and the tasks of a daemon have no choice of nodes: set required, or leave it out")
		}
	}
}

func (c check) affinities(list []Affinity) {
	list = bounded(c.at("affinities"), list, maxConstraints, "affinities")
	for i := range list {
		a, at := &list[i], c.index("affinities", i)
		a.Constraint.validate(at)
		at.at("weight").must(a.Weight >= -MaxWeight && a.Weight <= MaxWeight && a.Weight != 0,
			"is %d, want a number from %d to %d, and not 0: a negative weight prefers other nodes", a.Weight,
			-MaxWeight, MaxWeight)
		for j := range list[:i] {
			if sameConstraint(a.Constraint, list[j].Constraint) {
				at.fault("says %q, as affinities[%d] does: keep one of them, with the sum of the weights",
					clip(a.String()), j)
				break
			}
		}
	}
}

func sameConstraint(a, b Constraint) bool {
	return a.Attribute == b.Attribute && a.Op == b.Op && a.Value == b.Value && slices.Equal(a.Values, b.Values)
}

// strategy requires a known strategy, or an empty one.
func (c check) strategy(s Strategy) {
	if s != "" {
		oneOf(c, s)
	}
}

func (c check) weight(n int) {
	c.at("weight").must(n >= 1 && n <= MaxWeight, "is %d, want a number from 1 to %d", n, MaxWeight)
}

func (c check) spread(list []Spread) {
	list = bounded(c.at("spread"), list, MaxSpreads, "spreads")
	for i := range list {
		s, at := &list[i], c.index("spread", i)
		at.at("attribute").single(s.Attribute)
		for j := range list[:i] {
			if list[j].Attribute == s.Attribute {
				at.at("attribute").fault("%q is already the attribute of spread[%d]", clip(s.Attribute), j)
				break
			}
		}
		at.weight(s.Weight)
		at.at("max_skew").within(s.MaxSkew, 0, MaxCount)
		at.at("max_skew").must(s.MaxSkew == 0 || len(s.Targets) == 0,
			"cannot be combined with targets: a skew wants equal numbers, targets want different shares")
		at.targets(s.Targets)
	}
}

func (c check) targets(list []SpreadTarget) {
	list = bounded(c.at("targets"), list, maxConstraints, "targets")
	first := make(map[string]int, len(list))
	sum := 0
	for i, t := range list {
		at := c.index("targets", i)
		at.at("value").label(t.Value)
		at.at("percent").within(t.Percent, 0, 100)
		sum += max(0, min(t.Percent, 100))
		if j, ok := first[t.Value]; ok {
			at.at("value").fault("%q is already the value of targets[%d]", clip(t.Value), j)
			continue
		}
		first[t.Value] = i
	}
	c.at("targets").must(sum <= 100,
		"are %d percent together, want at most 100: values that are not named share the rest", sum)
}

func (c check) relations(list []Relation) {
	list = bounded(c.at("relations"), list, MaxSpreads, "relations")
	for i := range list {
		r, at := &list[i], c.index("relations", i)
		at.at("labels").must(len(r.Labels) > 0, "is empty: want the labels of the other services or jobs")
		at.at("labels").labels(r.Labels)
		for j, name := range bounded(at.at("clusters"), r.Clusters, maxConstraints, "clusters") {
			at.index("clusters", j).name(name)
			at.index("clusters", j).must(!slices.Contains(r.Clusters[:j], name), "%q is repeated: write it once",
				clip(name))
		}
		at.at("attribute").single(r.Attribute)
		if r.Required {
			at.at("weight").must(r.Weight == 0,
				"is %d, but a required relation has no weight: leave out weight or required", r.Weight)
		} else {
			at.weight(r.Weight)
		}
		for j := range list[:i] {
			if other := &list[j]; sameRelated(r, other) {
				at.must(r.Away != other.Away, "has the same labels as relations[%d]: remove one of them", j)
				at.must(r.Away == other.Away,
					"contradicts relations[%d], which wants the opposite: remove one of them", j)
				break
			}
		}
	}
}

// sameRelated reports whether two relations are about the same workloads and the same nearness.
func sameRelated(a, b *Relation) bool {
	if a.Attribute != b.Attribute || len(a.Clusters) != len(b.Clusters) || len(a.Labels) == 0 ||
		!maps.Equal(a.Labels, b.Labels) {
		return false
	}
	return !slices.ContainsFunc(a.Clusters, func(name string) bool { return !slices.Contains(b.Clusters, name) })
}

func (c check) distinct(list []Distinct) {
	list = bounded(c.at("distinct"), list, MaxSpreads, "attributes")
	for i := range list {
		d, at := &list[i], c.index("distinct", i)
		at.at("attribute").single(d.Attribute)
		at.at("most").within(d.Most, 1, MaxCount)
		for j := range list[:i] {
			if list[j].Attribute == d.Attribute {
				at.at("attribute").fault("%q is already the attribute of distinct[%d]", clip(d.Attribute), j)
				break
			}
		}
	}
}

// tolerations requires that each toleration can match a taint, and that none repeats.
func (c check) tolerations(list []Toleration, daemon bool) {
	list = bounded(c.at("tolerations"), list, MaxTolerations, "tolerations")
	for i, t := range list {
		at := c.index("tolerations", i)
		if t.Key != "" {
			at.at("key").labelKey(t.Key)
		}
		at.at("value").label(t.Value)
		at.at("value").must(t.Value == "" || t.Key != "", "is %q without a key: want the key of the taint, too",
			clip(t.Value))
		if t.Effect != "" {
			at.at("effect").effect(t.Effect)
		}
		if t.For != 0 {
			at.at("for").span(t.For, MinStay, MaxDeadline)
			at.at("for").must(t.Effect == TaintEvict,
				"delays an eviction: want effect %s, too", TaintEvict)
			at.at("for").must(!daemon, "is not for a daemon, whose tasks tolerate a taint or end")
		}
		if j := slices.Index(list[:i], t); j >= 0 {
			at.fault("is the same as tolerations[%d]: remove one of them", j)
		}
	}
}

func (c check) effect(e TaintEffect) { oneOf(c, e) }

// taints checks the taints of a node: at most one for a key and effect.
func (c check) taints(list []Taint) {
	list = bounded(c.at("taints"), list, MaxTaints, "taints")
	for i, t := range list {
		at := c.index("taints", i)
		at.at("key").labelKey(t.Key)
		at.at("value").label(t.Value)
		at.at("effect").effect(t.Effect)
		j := slices.IndexFunc(list[:i], func(o Taint) bool { return o.Key == t.Key && o.Effect == t.Effect })
		at.must(j < 0, "has the key and the effect of taints[%d]: one of them is enough", j)
	}
}

func (c check) labelKey(key string) {
	c.must(validLabelKey(key), "%q is not a key: want 1 to %d of letters, digits, \"-\", \"_\", \".\" and \"/\"",
		clip(key), MaxName)
}

// label demands what can be the value of a label.
func (c check) label(value string) {
	c.must(len(value) <= MaxLabel && printable(value), "is longer than %d bytes or not printable text: shorten it",
		MaxLabel)
}

// nodeAttributes are the attributes of a node that constraints may name besides its labels and devices.
var nodeAttributes = [...]string{
	"node.name", "node.arch", "node.os", "node.kernel", "node.executor", "node.class", "node.pool",
}

// Prefixes and suffixes of the other attributes of nodes: "label.<key>", "device.<type>.model", "device.<type>.count".
const (
	attributeLabel  = "label."
	attributeDevice = "device."
	suffixModel     = ".model"
	suffixCount     = ".count"
)

// DeviceAttribute splits an attribute "device.<type>.model" or "device.<type>.count"; ok is false for any other. The
// first has a value for each model of the type on the node, as "node.executor" has one for each executor. The second is
// the number of the node's devices of the type, "0" without any.
func DeviceAttribute(attribute string) (kind string, count, ok bool) {
	rest, device := strings.CutPrefix(attribute, attributeDevice)
	kind, count = strings.CutSuffix(rest, suffixCount)
	if model := strings.HasSuffix(rest, suffixModel); model && !count {
		kind = strings.TrimSuffix(rest, suffixModel)
	} else if !count {
		return "", false, false
	}
	if !device || !ValidName(kind) {
		return "", false, false
	}
	return kind, count, true
}

// attribute demands what nodes have.
func (c check) attribute(name string) {
	if label, ok := strings.CutPrefix(name, attributeLabel); ok {
		c.must(validLabelKey(label), "%q does not name a label: want \"label.\" and the key of a label of nodes",
			clip(name))
		return
	}
	if _, _, ok := DeviceAttribute(name); ok || slices.Contains(nodeAttributes[:], name) {
		return
	}
	c.fault("%q is not known: want %s, \"device.<type>.model\", \"device.<type>.count\" or \"label.<key>\"",
		clip(name), strings.Join(nodeAttributes[:], ", "))
}

// single demands an attribute that has one value on each node.
func (c check) single(name string) {
	if name == "" {
		c.fault("is missing: want an attribute of nodes, such as \"label.rack\"")
		return
	}
	_, count, device := DeviceAttribute(name)
	c.must(name != "node.executor" && (!device || count),
		"%q may have several values on a node: want an attribute that has one, such as a label", clip(name))
	c.attribute(name)
}

func (g *Gang) validate(k check, count int) {
	k.must(count <= MaxGang, "is of %d tasks, at most %d can be placed together", count, MaxGang)
	if g.Deadline != 0 {
		k.at("deadline").span(g.Deadline, MinGangDeadline, MaxDeadline)
	}
}

func (r *Resources) validatePinning(k check) {
	if r.CPUPinning == "" {
		return
	}
	oneOf(k.at("cpu_pinning"), r.CPUPinning)
	if r.CPUPinning != PinCores && r.CPUPinning != PinNuma {
		return
	}
	k.at("cpu").must(r.CPU < 0 || r.CPU > 0 && r.CPU%1000 == 0,
		"is %s CPUs, want whole ones, 1 at least: cpu_pinning gives the container cores of its own", r.CPU)
	k.at("cpu_limit").must(r.CPULimit == 0,
		"cannot be combined with cpu_pinning: the container uses its own cores and no other CPU")
}

func (r *Resources) validateDevices(k check) {
	list := bounded(k.at("devices"), r.Devices, MaxDeviceRequests, "requests")
	for i := range list {
		d, at := &list[i], k.index("devices", i)
		d.validate(at)
		for j := range list[:i] {
			if o := &list[j]; d.Share == 0 && o.Share == 0 && o.Type == d.Type && o.Memory == d.Memory &&
				slices.Equal(o.Models, d.Models) {
				at.fault("requests the same as devices[%d]: raise its count", j)
				break
			}
		}
	}
}

func (d *DeviceRequest) validate(k check) {
	k.at("type").name(d.Type)
	k.at("type").must(d.Type != CoreType,
		"is %q, which cannot be requested as a device: give the container cores of its own with cpu_pinning", CoreType)
	for i, m := range bounded(k.at("models"), d.Models, maxConstraints, "models") {
		at := k.index("models", i)
		at.must(m != "", "is empty: write a model, or leave models out if any will do")
		at.label(m)
		at.must(!slices.Contains(d.Models[:i], m), "%q is repeated: write it once", clip(m))
	}
	k.at("count").within(d.Count, 1, MaxDevices)
	k.at("share").must(d.Share >= 0 && d.Share <= WholeDevice,
		"is %d, want a number of thousandths of one device, from 1 to %d, or none for whole devices", d.Share,
		WholeDevice)
	k.at("share").must(d.Share <= 0 || d.Count == 1,
		"is a part of one device, and count is %d: want count 1, or a request for each part", d.Count)
	k.at("memory").must(d.Memory == 0 || d.Memory >= MinMemory && d.Memory <= MaxMemory,
		"is %s, want from %s to %s; a number without a unit counts bytes", d.Memory, MinMemory, MaxMemory)
}

// Validate returns as Faults the impossible values of a machine's devices, images, volumes, folders, reserved ports and
// networks, or nil; it accepts all other facts. Paths begin with "devices", "images", "volumes", "folders",
// "reserved_ports" or "networks".
func (f *Facts) Validate() error {
	k := newCheck()
	k.at("devices").must(len(f.Devices) <= MaxDevices, "holds %d devices, at most %d are allowed", len(f.Devices),
		MaxDevices)
	k.at("images").must(len(f.Images) <= MaxNodeImages, "holds %d images, at most %d are allowed", len(f.Images),
		MaxNodeImages)
	for i, name := range f.Images {
		k.index("images", i).must(len(name) <= MaxImage, "is %d bytes long, at most %d are allowed", len(name),
			MaxImage)
	}
	k.at("volumes").must(len(f.Volumes) <= MaxNodeVolumes, "holds %d volumes, at most %d are allowed", len(f.Volumes),
		MaxNodeVolumes)
	f.Folders.validate(k.at("folders"))
	k.at("reserved_ports").must(len(f.ReservedPorts) <= MaxReservedPorts, "holds %d ports, at most %d are allowed",
		len(f.ReservedPorts), MaxReservedPorts)
	k.at("networks").must(len(f.Networks) <= maxNetworks, "holds %d networks, at most %d are allowed", len(f.Networks),
		maxNetworks)
	for i, n := range f.Networks {
		at := k.index("networks", i).at("lacks")
		at.must(len(n.Lacks) <= MaxNetworkLacks && printable(n.Lacks), "want printable text of %d bytes at most",
			MaxNetworkLacks)
	}
	first := make(map[string]int, len(f.Devices))
	for i := range f.Devices {
		d, at := &f.Devices[i], k.index("devices", i)
		at.at("id").must(d.ID != "" && len(d.ID) <= MaxLabel && printable(d.ID),
			"%q is not an id: want printable text of 1 to %d bytes", clip(d.ID), MaxLabel)
		if j, ok := first[d.ID]; ok && d.ID != "" {
			at.at("id").fault("%q is already the id of devices[%d]", clip(d.ID), j)
		} else {
			first[d.ID] = i
		}
		at.at("type").name(d.Type)
		at.at("model").label(d.Model)
		at.at("memory").must(d.Memory >= 0 && d.Memory <= MaxMemory,
			"is %s, want a size from 0, for one that is not known, to %s", d.Memory, MaxMemory)
		at.at("numa").must(d.Numa >= -1 && d.Numa <= maxNuma,
			"is %d, want a number from 0 to %d, or -1 for one that is not known", d.Numa, maxNuma)
	}
	return k.err()
}

// maxNetworks is the most network facts of a machine.
const maxNetworks = 10

// maxNuma is the highest number of a NUMA node that Linux gives.
const maxNuma = 1023

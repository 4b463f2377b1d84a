package fleet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// largeFleet draws more nodes than a page of loads and a page of a tree have, of few kinds.
func largeFleet(t *rapid.T) (f *Fleet, names []string) {
	f = New()
	for i := range rapid.IntRange(1, 90).Draw(t, "nodes") {
		n := Node{
			Name: fmt.Sprintf("n%02d", i*37%90), State: cluster.NodeReady,
			Labels:   cluster.Labels{"zone": fmt.Sprint(i % 2)},
			Capacity: cluster.Demand{CPU: 8000, Memory: 8 * cluster.GiB, Disk: cluster.TiB},
		}
		for d := range i % 3 {
			n.Devices = append(n.Devices, cluster.Device{ID: fmt.Sprint("g", d), Type: "gpu", Numa: -1})
		}
		f.SetNode(n)
		names = append(names, n.Name)
	}
	return f, names
}

// charge is a change of an overlay that a reservation of a fleet makes, too.
type charge struct {
	slot   int32
	demand cluster.Demand
	ports  []int
	uses   []cluster.DeviceUse
}

func drawCharge(t *rapid.T, f *Fleet, names []string) charge {
	c := charge{
		slot: f.SlotNamed(oneOf(t, "node", names...)),
		demand: cluster.Demand{
			CPU:    cluster.MilliCPU(100 * rapid.IntRange(0, 40).Draw(t, "cpu")),
			Memory: cluster.Bytes(rapid.IntRange(0, 4).Draw(t, "memory")) * cluster.GiB,
		},
	}
	if oneOf(t, "port", false, true) {
		c.ports = []int{80, 30000}
	}
	if list := f.slots[c.slot].node.Devices; len(list) > 0 && oneOf(t, "device", false, true) {
		c.uses = []cluster.DeviceUse{{ID: list[0].ID, Share: oneOf(t, "share", 300, cluster.WholeDevice)}}
	}
	return c
}

// apply charges an overlay, or with a sign of -1 gives the charge back.
func (c *charge) apply(o *Overlay, sign int) {
	l := o.OwnLoad(c.slot)
	if l.Used, l.Tasks = l.Used.Add(c.demand), l.Tasks+int32(sign); sign < 0 {
		l.Used = l.Used.Sub(c.demand).Sub(c.demand)
	}
	o.Touch(l, c.slot)
	for _, port := range c.ports {
		if sign > 0 {
			o.OwnPorts(c.slot).Add(port)
		} else {
			o.OwnPorts(c.slot).Remove(port)
		}
	}
	if len(c.uses) > 0 {
		o.UseDevices(c.slot, c.uses, sign)
	}
}

// TestOverlaySameAsFleet charges an overlay, and gives some charges back. The overlay must then show what a copy of the
// fleet with the same reservations has, whenever its trees were read in between. The fleet itself must not change.
func TestOverlaySameAsFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, names := largeFleet(t)
		before := f.Clone()
		o := NewOverlay(f)
		var charges []charge
		for range rapid.IntRange(0, 40).Draw(t, "changes") {
			switch {
			case len(charges) > 0 && rapid.IntRange(0, 3).Draw(t, "give back") == 0:
				at := rapid.IntRange(0, len(charges)-1).Draw(t, "which")
				charges[at].apply(&o, -1)
				charges = slices.Delete(charges, at, at+1)
			default:
				c := drawCharge(t, f, names)
				c.apply(&o, 1)
				charges = append(charges, c)
			}
			switch rapid.IntRange(0, 5).Draw(t, "read") {
			case 0:
				o.Tree(ByFill, 0)
			case 1:
				o.Tree(ByBalance, 0)
			case 2:
				o.CurrentDeviceClasses()
			}
		}
		want := f.Clone()
		for i := range charges {
			c := &charges[i]
			want.Reserve(Reservation{
				UUID: fmt.Sprint("u", i), Task: "c.etl.1.s.0", Node: f.Name(c.slot), Demand: c.demand, Ports: c.ports,
				Devices: c.uses,
			})
		}
		sameAsOverlay(t, want, &o)
		unchanged := NewOverlay(f)
		sameAsOverlay(t, before, &unchanged)
	})
}

// sameAsOverlay compares what an overlay shows with a fleet.
func sameAsOverlay(t *rapid.T, want *Fleet, o *Overlay) {
	t.Helper()
	for slot := range int32(want.SlotCount()) {
		got, l := o.Load(slot), &want.loads[slot]
		if got.Used != l.Used || got.Tasks != l.Tasks || got.Key != l.Key {
			t.Fatalf("slot %d has %+v, want %+v", slot, *got, *l)
		}
		for _, port := range []int{80, 30000, 30001} {
			taken := want.slots[slot].ports != nil && want.slots[slot].ports.Has(port)
			if has := o.PortsOf(slot) != nil && o.PortsOf(slot).Has(port); has != taken {
				t.Fatalf("port %d of slot %d is taken: %v, want %v", port, slot, has, taken)
			}
		}
		if diff := cmp.Diff(want.slots[slot].devices, o.DevicesOf(slot), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("uses of devices of slot %d (-want +got):\n%s", slot, diff)
		}
		if diff := cmp.Diff(want.slots[slot].deviceGroups, o.DeviceGroupsOf(slot),
			cmp.AllowUnexported(devices.Group{})); diff != "" {
			t.Fatalf("devices of slot %d (-want +got):\n%s", slot, diff)
		}
	}
	for order := range orders {
		for class := range want.Catalog.Classes {
			a, b := want.Catalog.Trees[order][class], *o.Tree(order, int32(class))
			if diff := cmp.Diff(entriesOf(a.Page), entriesOf(b.Page)); diff != "" {
				t.Fatalf("tree %d of class %d (-want +got):\n%s", order, class, diff)
			}
			if a.Low != b.Low || a.High != b.High || a.MaxFree != b.MaxFree {
				t.Fatalf("bounds of tree %d of class %d: %d to %d with %v, want %d to %d with %v", order, class, b.Low,
					b.High, b.MaxFree, a.Low, a.High, a.MaxFree)
			}
		}
	}
	classes := deviceClassesOf(&want.Catalog.DeviceClasses)
	if diff := cmp.Diff(classes, deviceClassesOf(o.CurrentDeviceClasses())); diff != "" {
		t.Fatalf("device classes (-want +got):\n%s", diff)
	}
}

// entriesOf returns the entries of a tree in order.
func entriesOf(p *index.Page) (all []index.Entry) {
	if p == nil {
		return nil
	}
	for i := range p.Children {
		all = append(all, entriesOf(p.Children[i].Page)...)
	}
	return append(all, p.Entries...)
}

// deviceClassesOf returns the entries of each device class that has nodes, by its key.
func deviceClassesOf(all *DeviceClasses) map[string][]index.Entry {
	classes := map[string][]index.Entry{}
	for i := range all.List {
		if d := &all.List[i]; d.Tree.Page != nil {
			classes[d.key] = entriesOf(d.Tree.Page)
		}
	}
	return classes
}

// TestOwnSlots checks that an overlay names all slots that it changed, each once, and none that the fleet lacks.
func TestOwnSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, names := largeFleet(t)
		o := NewOverlay(f)
		changed := map[int32]bool{}
		for range rapid.IntRange(0, 5).Draw(t, "changes") {
			c := drawCharge(t, f, names)
			c.apply(&o, 1)
			changed[c.slot] = true
		}
		seen := map[int32]bool{}
		for slot := range o.OwnSlots {
			if seen[slot] || int(slot) >= f.SlotCount() {
				t.Fatalf("slot %d of %d comes again: %v", slot, f.SlotCount(), seen[slot])
			}
			seen[slot] = true
		}
		for slot := range changed { // order-free: each by itself
			if !seen[slot] {
				t.Fatalf("slot %d is missing", slot)
			}
		}
		if len(changed) == 0 && len(seen) > 0 {
			t.Fatalf("slots %v of an overlay without changes", seen)
		}
	})
}

// TestSlotsByName checks that names become slots once each, and unknown names none.
func TestSlotsByName(t *testing.T) {
	f := New()
	for _, name := range []string{"b", "a"} {
		f.SetNode(Node{Name: name, Labels: cluster.Labels{"rack": "r" + name}})
	}
	f.Reserve(Reservation{UUID: "u", Node: "gone", Task: "c.x.1.0"})
	f.SwitchFineLabels([]string{"rack"})
	o := NewOverlay(f)
	slotsOf := func(names ...string) (slots []int32) {
		for _, name := range names {
			slots = append(slots, f.SlotNamed(name))
		}
		return slots
	}
	for what, pair := range map[string][2][]int32{
		"names":                     {slotsOf("a", "b"), o.Slots([]string{"a", "gone", "none", "b", "a"})},
		"the attribute node.name":   {slotsOf("b"), o.NodesWith(NodeName, []string{"b", "b"})},
		"a fine label":              {slotsOf("b", "a"), o.NodesWith("label.rack", []string{"rb", "none", "ra", "rb"})},
		"nodes with the same value": {slotsOf("a"), o.Peers("label.rack", f.SlotNamed("a"))},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("slots by %s (-want +got):\n%s", what, diff)
		}
	}
}

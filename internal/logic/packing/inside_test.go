package packing

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

func anyMix(t *rapid.T) *Mix {
	var m Mix
	for range rapid.IntRange(1, 10).Draw(t, "learned") {
		m.Learn(Demand{
			CPU:     cluster.MilliCPU(rapid.Int64Range(0, 200_000).Draw(t, "cpu")),
			Memory:  cluster.Bytes(rapid.Int64Range(0, 1<<50).Draw(t, "memory")),
			Devices: 1,
			Share:   rapid.IntRange(0, cluster.WholeDevice).Draw(t, "share"),
		}, rapid.IntRange(1, 100).Draw(t, "tasks"))
	}
	m.Learn(Demand{Devices: rapid.IntRange(0, 70).Draw(t, "devices"), CPU: 1}, 3)
	return &m
}

// TestMoreFreeNeverLowersTheValue checks that more free share, whole devices, CPU or memory never lowers the value, and
// that no value exceeds what is free.
func TestMoreFreeNeverLowersTheValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, table := range anyMix(t).ValueModel().tables {
			for x := 1; x <= cluster.WholeDevice; x++ {
				if h := table.shareValue[x]; h < table.shareValue[x-1] || h > int32(x*thousandth) {
					t.Fatalf("a share of %d is worth %d, one of %d %d", x, h, x-1, table.shareValue[x-1])
				}
			}
			for n := 1; n <= MostDevices; n++ {
				if s := table.wholeValue[n]; s < table.wholeValue[n-1] || s > int64(n)*deviceUnits {
					t.Fatalf("%d whole devices are worth %d, %d %d", n, s, n-1, table.wholeValue[n-1])
				}
			}
			room := rapid.Int64Range(1, 64*cluster.WholeDevice).Draw(t, "room")
			for _, s := range []*shortage{&table.cpu, &table.memory} {
				limit := rapid.Int64Range(0, 1<<50).Draw(t, "limit")
				more := limit + rapid.Int64Range(0, 1<<50).Draw(t, "more")
				less, same := s.short(more, room), s.short(limit, room)
				if less > same || less < 0 || same > room*thousandth {
					t.Fatalf("of %d thousandths %d stay free with a limit of %d, %d with %d", room, same, limit, less,
						more)
				}
			}
		}
	})
}

// TestShareValue checks a mix of one kind of task. The value of a share is what a stream of them fills: the first task
// comes for sure, each further one with a probability of 9/10.
func TestShareValue(t *testing.T) {
	var m Mix
	m.Learn(Demand{CPU: 1, Memory: 1, Devices: 1, Share: 400}, 7)
	table := m.ValueModel().tables[0]
	for x, want := range map[int]int32{399: 0, 400: 400_000, 799: 400_000, 800: 760_000, 1000: 760_000} {
		if got := table.shareValue[x]; got != want {
			t.Errorf("worth of %d thousandths: got %d, want %d", x, got, want)
		}
	}
}

// TestLearn checks that similar demands count as one with their mean, that the rarest demand is replaced, and that old
// demands lose weight.
func TestLearn(t *testing.T) {
	var m Mix
	m.Learn(Demand{CPU: 1000, Memory: 1000}, 1)
	m.Learn(Demand{CPU: 1020, Memory: 1010}, 3)
	m.Learn(Demand{CPU: 1020, Memory: 1010}, 0)
	if len(m.typical) != 1 || m.typical[0].cpu != 1015 {
		t.Fatalf("similar demands: got %+v, want one of 1015 thousandths of a CPU", m.typical)
	}
	for i := range MostTypical {
		m.Learn(Demand{CPU: 1, Devices: 1, Share: i + 1}, 2)
	}
	if len(m.typical) != MostTypical {
		t.Errorf("demands: got %d, want %d", len(m.typical), MostTypical)
	}
	var sum int64
	for i := range m.typical {
		sum += m.typical[i].weight
		if m.typical[i].key.Share == 1 {
			t.Error("one of the rarest is still there, want its place given to the last")
		}
	}
	if sum != m.weight {
		t.Errorf("weight: got %d, want %d, the sum of all", m.weight, sum)
	}
	for range 20 {
		m.Learn(Demand{CPU: 5000, Memory: 5000}, maxRemembered/2)
	}
	if len(m.typical) != 1 || m.weight > maxRemembered*taskWeight {
		t.Errorf("after much else: got %d demands of weight %d, want one", len(m.typical), m.weight)
	}
}

// TestStale checks that a value model becomes stale after few tasks at first, then less and less often, but always
// again.
func TestStale(t *testing.T) {
	var m Mix
	if !m.Stale(nil) {
		t.Error("no value model: got fresh, want stale")
	}
	made, last := 0, 0
	w := m.ValueModel()
	for i := range 200_000 {
		m.Learn(Demand{CPU: 1}, 1)
		if m.Stale(w) {
			w = m.ValueModel()
			made, last = made+1, i
		}
	}
	if made < 10 || made > 60 || last < 190_000 {
		t.Errorf("got %d times, last after %d tasks, want 10 to 60 times and one of the last 10,000", made, last)
	}
}

// TestDeviceValue checks that DeviceValue with CPU and memory equals the value of a node. It also checks the bounds of
// losses between the least and the most free amounts: they are exact where both are equal.
func TestDeviceValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyMix(t).ValueModel()
		draw := func(what string) cluster.Demand {
			return cluster.Demand{
				CPU:    cluster.MilliCPU(rapid.Int64Range(-100, 400_000).Draw(t, what+" cpu")),
				Memory: cluster.Bytes(rapid.Int64Range(-100, 1<<41).Draw(t, what+" memory")),
			}
		}
		free, more, takes := draw("free"), draw("more"), draw("takes")
		takes.CPU, takes.Memory = max(takes.CPU, 0), max(takes.Memory, 0)
		var before, after []Device
		for range rapid.IntRange(0, 10).Draw(t, "devices") {
			v := Device{Free: rapid.IntRange(0, cluster.WholeDevice).Draw(t, "share"), Model: 1}
			before = append(before, v)
			v.Free = rapid.IntRange(0, v.Free).Draw(t, "left")
			after = append(after, v)
		}
		value := func(devices []Device, d cluster.Demand) int64 {
			return w.Value(&Node{Devices: devices, FreeCPU: d.CPU, FreeMemory: d.Memory})
		}
		s, o := w.DeviceValue(before), w.DeviceValue(after)
		if got, want := s.Value(free.CPU, free.Memory), value(before, free); got != want {
			t.Fatalf("devices and then CPU and memory are worth %d, together %d", got, want)
		}
		lost := value(before, free) - value(after, free.Sub(takes))
		bound := NewCostBound(&s, &o, takes)
		if got := bound.At(free); got != lost {
			t.Fatalf("%d is lost, got %d", lost, got)
		}
		most := free.Add(cluster.Demand{CPU: max(more.CPU, 0), Memory: max(more.Memory, 0)})
		least := free.Sub(cluster.Demand{CPU: takes.CPU / 3, Memory: takes.Memory / 5})
		for range 2 {
			if got := bound.Least(free, free); got != lost {
				t.Fatalf("%d is lost, and at least %d of the one amount", lost, got)
			}
			if got := bound.Least(least, most); got > lost {
				t.Fatalf("%d is lost, and at least %d", lost, got)
			}
			bound.Tighten(least, most, make([]int32, 3))
		}
	})
}

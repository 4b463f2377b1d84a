package packing

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// simulateFill returns how much of a device's free share a stream of tasks fills on average, in millionths, by playing
// it: each task that fits is taken, and after each task the stream ends with a probability of 1/10.
func simulateFill(demands []Demand, weights []int, free int) float64 {
	random := rand.New(rand.NewPCG(7, uint64(free)))
	all := 0
	for _, w := range weights {
		all += w
	}
	const streams = 40_000
	filled := 0
	for range streams {
		for left := free; ; {
			n, i := random.IntN(all), 0
			for n >= weights[i] {
				n -= weights[i]
				i++
			}
			if s := demands[i].Share; s <= left {
				left -= s
				filled += s
			}
			if random.IntN(10) == 0 {
				break
			}
		}
	}
	return float64(filled) / streams * thousandth
}

// TestShareValueOfStreams compares the value of free shares with streams of a mix that are played.
func TestShareValueOfStreams(t *testing.T) {
	demands := []Demand{
		{CPU: 1, Memory: 1, Devices: 1, Share: 500},
		{CPU: 1, Memory: 1, Devices: 1, Share: 300},
		{CPU: 1, Memory: 1, Devices: 1, Share: 120},
	}
	weights := []int{5, 3, 2}
	var m Mix
	for i, d := range demands {
		m.Learn(d, weights[i])
	}
	table := m.ValueModel().tables[0]
	for _, free := range []int{119, 120, 299, 300, 420, 500, 620, 800, 1000} {
		got, want := float64(table.shareValue[free]), simulateFill(demands, weights, free)
		if math.Abs(got-want) > 6000 {
			t.Errorf("worth of %d thousandths: got %.0f, want %.0f by streams", free, got, want)
		}
	}
}

// TestWholeValue checks that whole devices are worth what demands for several could use of them, by their weight.
func TestWholeValue(t *testing.T) {
	var m Mix
	m.Learn(Demand{CPU: 1, Devices: 1}, 4)
	m.Learn(Demand{CPU: 1, Devices: 2}, 2)
	m.Learn(Demand{CPU: 1, Devices: 8}, 2)
	table := m.ValueModel().tables[0]
	for wholes, devices := range map[int]int64{0: 0, 1: 0, 2: 2, 3: 2, 7: 6, 8: 8 + 8, 9: 8 + 8, 16: 16 + 16} {
		if got, want := table.wholeValue[wholes], devices*deviceUnits/4; got != want {
			t.Errorf("worth of %d whole devices: got %d, want %d", wholes, got, want)
		}
	}
}

// anyDevices draws devices of one model.
func anyDevices(t *rapid.T, least int) (devices []Device) {
	for range rapid.IntRange(least, 10).Draw(t, "devices") {
		devices = append(devices, Device{
			Free: rapid.SampledFrom([]int{0, 1, 250, 500, 750, 999, cluster.WholeDevice}).Draw(t, "free"),
		})
	}
	return devices
}

// TestPickLosesTheLeast tries each device for a share. Pick takes the one that leaves the node the most valuable; of
// equals the least free one, and of these the first. Nodes have the CPU and memory for all that their devices can hold.
func TestPickLosesTheLeast(t *testing.T) {
	opened, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := anyMix(t)
		m.Learn(Demand{CPU: 1, Devices: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "several")}, 60)
		w := m.ValueModel()
		n := Node{Devices: anyDevices(t, 1)}
		d := Demand{Devices: 1, Share: rapid.SampledFrom([]int{1, 100, 250, 500, 900}).Draw(t, "share")}
		best, value := -1, int64(0)
		for i, v := range n.Devices {
			if v.Free < d.Share {
				continue
			}
			left := append([]Device(nil), n.Devices...)
			left[i].Free -= d.Share
			s := w.DeviceValue(left)
			if best < 0 || s.value > value || s.value == value && v.Free < n.Devices[best].Free {
				best, value = i, s.value
			}
		}
		got, ok := w.Pick(&n, &d)
		if ok != (best >= 0) || ok && got != best {
			t.Fatalf("device %d, %t, want %d of %+v", got, ok, best, n.Devices)
		}
		if ok && n.Devices[got].Free == cluster.WholeDevice {
			opened++
		} else if ok {
			kept++
		}
	})
	if opened == 0 || kept == 0 {
		t.Errorf("a whole device was opened %d times and another one taken %d times", opened, kept)
	}
}

// costParts takes a cost apart: lost value, stranded CPU or memory, and emptiness.
func costParts(c Choice) (loss, strand, empty int64) {
	return int64(c.Cost >> (strandBits + fillBits)), int64(c.Cost >> fillBits & (1<<strandBits - 1)),
		int64(c.Cost & (1<<fillBits - 1))
}

// TestStranded compares the part of a cost that is about stranded CPU or memory with the rule in real numbers: the
// thousandths of the node's CPU that are left once average tasks have used up the free memory, or the other way round.
// The cost has the difference that the task makes. A node without devices loses no device value.
func TestStranded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(what string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, what) }
		mean := Demand{
			CPU:    cluster.MilliCPU(amount("mean cpu", 1, 8000)),
			Memory: cluster.Bytes(amount("mean memory", 1, 1<<34)),
		}
		var m Mix
		m.Learn(mean, 10)
		w := m.ValueModel()
		n := Node{
			CPU:    cluster.MilliCPU(amount("cpu", 1000, 128_000)),
			Memory: cluster.Bytes(amount("memory", 1<<30, 1<<40)),
		}
		n.FreeCPU = cluster.MilliCPU(amount("free cpu", 0, int64(n.CPU)))
		n.FreeMemory = cluster.Bytes(amount("free memory", 0, int64(n.Memory)))
		d := Demand{
			CPU:    cluster.MilliCPU(amount("takes cpu", 0, int64(n.FreeCPU))),
			Memory: cluster.Bytes(amount("takes memory", 0, int64(n.FreeMemory))),
		}
		stranded := func(cpu, memory float64) float64 {
			tasks := min(cpu/float64(mean.CPU), memory/float64(mean.Memory))
			return 1000 * max((cpu-tasks*float64(mean.CPU))/float64(n.CPU),
				(memory-tasks*float64(mean.Memory))/float64(n.Memory))
		}
		c, ok := w.Score(&n, &d)
		if !ok {
			t.Fatal("it does not fit")
		}
		loss, strand, empty := costParts(c)
		want := stranded(float64(n.FreeCPU-d.CPU), float64(n.FreeMemory-d.Memory)) -
			stranded(float64(n.FreeCPU), float64(n.FreeMemory))
		if got := float64(strand - nodeParts); math.Abs(got-want) > 3 {
			t.Fatalf("%.0f thousandths are stranded in addition, want %.1f", got, want)
		}
		left := 1000*float64(n.FreeCPU-d.CPU)/float64(n.CPU) + 1000*float64(n.FreeMemory-d.Memory)/float64(n.Memory)
		if math.Abs(float64(empty)-left) > 2 {
			t.Fatalf("the node is empty by %d thousandths, want %.1f", empty, left)
		}
		if loss != NoLoss {
			t.Fatalf("a node without devices loses %d", loss-NoLoss)
		}
	})
}

// TestNothingIsKnown scores nodes with an empty mix, and nodes without CPU or memory: nothing is stranded, and the
// fullest node is the best.
func TestNothingIsKnown(t *testing.T) {
	var m Mix
	w := m.ValueModel()
	score := func(w *ValueModel, n Node, d Demand) (strand, empty int64) {
		t.Helper()
		c, ok := w.Score(&n, &d)
		if !ok {
			t.Fatalf("%+v does not fit", d)
		}
		_, strand, empty = costParts(c)
		return strand, empty
	}
	n := Node{CPU: 4000, FreeCPU: 3000, Memory: 100, FreeMemory: 50}
	if strand, empty := score(w, n, Demand{CPU: 1000, Memory: 10}); strand != nodeParts || empty != 500+400 {
		t.Errorf("an empty mix: %d stranded and %d empty, want none and 900", strand-nodeParts, empty)
	}
	m.Learn(Demand{CPU: 1000, Memory: 10}, 5)
	w = m.ValueModel()
	if strand, empty := score(w, Node{CPU: 4000, FreeCPU: 3000}, Demand{CPU: 1000}); strand != nodeParts ||
		empty != 500 {
		t.Errorf("a node without memory: %d stranded and %d empty, want none and 500", strand-nodeParts, empty)
	}
	if strand, empty := score(w, Node{Memory: 100, FreeMemory: 50}, Demand{Memory: 10}); strand != nodeParts ||
		empty != 400 {
		t.Errorf("a node without CPU: %d stranded and %d empty, want none and 400", strand-nodeParts, empty)
	}
	if strand, empty := score(w, Node{}, Demand{}); strand != nodeParts || empty != 0 {
		t.Errorf("a node without anything: %d stranded and %d empty, want none and 0", strand-nodeParts, empty)
	}
}

// TestLossHasLimits checks that a loss fits into its bits, and that more loss never counts as less.
func TestLossHasLimits(t *testing.T) {
	for _, c := range []struct {
		lost int64
		want uint64
	}{
		{0, NoLoss},
		{99, NoLoss},
		{100, NoLoss + 1},
		{-100, NoLoss - 1},
		{deviceUnits, NoLoss + 10_000},
		{math.MaxInt64, 1<<LossBits - 1},
		{math.MinInt64 / 2, 0},
	} {
		if got := Loss(c.lost); got != c.want {
			t.Errorf("loss of %d: got %d, want %d", c.lost, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		less, more := rapid.Int64().Draw(t, "less"), rapid.Int64().Draw(t, "more")
		if less, more = min(less, more), max(less, more); Loss(less) > Loss(more) || Loss(more) > 1<<LossBits-1 {
			t.Fatalf("%d counts %d, %d counts %d", less, Loss(less), more, Loss(more))
		}
	})
}

// TestScale compares the multiplication and division without overflow with floating-point numbers.
func TestScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, by := rapid.Int64Range(0, math.MaxInt64).Draw(t, "x"), rapid.Int64Range(0, 1<<20).Draw(t, "by")
		of := rapid.Int64Range(1, math.MaxInt64).Draw(t, "of")
		want := math.Floor(float64(x) / float64(of) * float64(by))
		got := float64(scale(x, by, of))
		if want >= math.MaxInt64 && got < math.MaxInt64*0.999 || want < math.MaxInt64 &&
			math.Abs(got-want) > 1+want*1e-9 {
			t.Fatalf("%d*%d/%d: got %.0f, want %.0f", x, by, of, got, want)
		}
	})
}

// TestManyDevices: a node may have more devices than count. The others are ignored, and never used.
func TestManyDevices(t *testing.T) {
	var m Mix
	m.Learn(Demand{CPU: 1, Devices: 1, Share: 500}, 5)
	m.Learn(Demand{CPU: 1, Devices: 100}, 5)
	w := m.ValueModel()
	n := Node{CPU: 1 << 20, FreeCPU: 1 << 20, Memory: 1, FreeMemory: 1, Devices: make([]Device, MostDevices+9)}
	for i := range n.Devices {
		n.Devices[i].Free = cluster.WholeDevice
	}
	if c, ok := w.Score(&n, &Demand{Devices: MostDevices}); !ok || c.Devices != math.MaxUint64 {
		t.Errorf("all devices that count: got %b, %t", c.Devices, ok)
	}
	if c, ok := w.Score(&n, &Demand{Devices: MostDevices + 1}); ok {
		t.Errorf("more devices than count: got %b, want no place", c.Devices)
	}
	few := n
	few.Devices = n.Devices[:MostDevices]
	if got, want := w.Value(&n), w.Value(&few); got != want {
		t.Errorf("with devices that do not count it is worth %d, want %d", got, want)
	}
}

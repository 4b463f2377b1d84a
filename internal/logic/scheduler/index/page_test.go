package index

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// grown returns a tree with spans of drawn entries, some of which were removed again, and the entries that are left.
func grown(t *rapid.T, e Editor, slots int) (root *Page, left []Entry) {
	order := rapid.Permutation(slotsBelow(slots)).Draw(t, "order")
	for _, slot := range order {
		en := Entry{
			Key: uint64(slot*31%7)<<LevelShift | uint64(slot*17%50), Slot: slot, Balance: int16(slot%9) - 4,
			ClassBit: uint8(slot % 64),
			Free:     cluster.Demand{CPU: cluster.MilliCPU(slot%13) - 3, Memory: cluster.Bytes(slot % 5), Disk: 7},
		}
		root = e.Insert(root, en)
		left = append(left, en)
	}
	for range rapid.IntRange(0, slots).Draw(t, "removed") {
		at := len(left) / 3
		root = e.Remove(root, left[at].Key, left[at].Slot)
		left = slices.Delete(left, at, at+1)
	}
	return root, left
}

func slotsBelow(n int) (slots []int32) {
	for i := range int32(n) {
		slots = append(slots, i)
	}
	return slots
}

func editorOf(slots int) Editor {
	o := &Names{Order: make([]uint64, slots)}
	for i := range o.Order {
		o.Order[i] = uint64(i)
	}
	return Editor{Names: o, WithSpans: true}
}

// TestPagesKnowWhatIsBelow checks each page of a tree: its entries are in order, what it knows of a child is what the
// child has, exactly, and no page is larger than the fanout.
func TestPagesKnowWhatIsBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SampledFrom([]int{1, 5, 32, 33, 100, 1500}).Draw(t, "slots")
		e := editorOf(slots)
		root, left := grown(t, e, slots)
		if len(left) == 0 {
			if root != nil {
				t.Fatal("an empty tree has a page")
			}
			return
		}
		slices.SortFunc(left, func(a, b Entry) int {
			if e.before(a.Key, a.Slot, b.Key, b.Slot) {
				return -1
			}
			return 1
		})
		if diff := cmp.Diff(left, checkPage(t, root)); diff != "" || root.Nodes() != len(left) {
			t.Fatalf("%d nodes, want %d; entries in order (-want +got):\n%s", root.Nodes(), len(left), diff)
		}
		tree := TreeOf(root)
		if tree.Low != left[0].Key || tree.High != left[len(left)-1].Key {
			t.Fatalf("keys from %d to %d, want %d to %d", tree.Low, tree.High, left[0].Key, left[len(left)-1].Key)
		}
		copied := root.Clone()
		for i := range left[:len(left)/2] {
			root = e.Remove(root, left[i].Key, left[i].Slot)
		}
		if diff := cmp.Diff(left, checkPage(t, copied)); diff != "" {
			t.Fatalf("the copy changed with its original (-want +got):\n%s", diff)
		}
	})
}

// checkPage checks the bounds that pages keep, and returns all entries below a page.
func checkPage(t *rapid.T, p *Page) (all []Entry) {
	t.Helper()
	if p.size() == 0 || p.size() > maxFanout || len(p.Entries) > 0 && len(p.Children) > 0 {
		t.Fatalf("a page has %d entries and %d children", len(p.Entries), len(p.Children))
	}
	all = append(all, p.Entries...)
	for i := range p.Children {
		k := &p.Children[i]
		below := checkPage(t, k.Page)
		most, span := below[0].Free, SpanOf(&below[0])
		for j := range below {
			most = MaxDemand(most, below[j].Free)
			s := SpanOf(&below[j])
			span.join(&s)
		}
		if k.Key != below[0].Key || k.Slot != below[0].Slot || k.MaxFree != most {
			t.Fatalf("a page knows %d, %d, %v of a child, want %d, %d, %v", k.Key, k.Slot, k.MaxFree, below[0].Key,
				below[0].Slot, most)
		}
		if diff := cmp.Diff(span, p.Spans[i]); diff != "" {
			t.Fatalf("span of a child (-want +got):\n%s", diff)
		}
		all = append(all, below...)
	}
	return all
}

// TestTreesShrink checks that a tree from which most entries were removed has few pages: small neighbours are joined.
func TestTreesShrink(t *testing.T) {
	const slots = 2000
	e := editorOf(slots)
	var root *Page
	for slot := range int32(slots) {
		root = e.Insert(root, Entry{Key: uint64(slot), Slot: slot})
	}
	for slot := range int32(slots) {
		if slot%50 != 0 {
			root = e.Remove(root, uint64(slot), slot)
		}
	}
	var pages func(p *Page) int
	pages = func(p *Page) int {
		n := 1
		for i := range p.Children {
			n += pages(p.Children[i].Page)
		}
		return n
	}
	// The 40 entries that are left fit on 2 pages; a page is joined once it is less than a quarter full.
	if n := pages(root); n > 40/(maxFanout/4)+3 {
		t.Errorf("%d entries are on %d pages", root.Nodes(), n)
	}
}

// TestSpanOfANode checks what a span says of a single node, and that joined spans hold both.
func TestSpanOfANode(t *testing.T) {
	a := SpanOf(&Entry{
		Key: 3<<LevelShift | 5, Balance: -2, ClassBit: 1, Free: cluster.Demand{CPU: 1, Memory: 9, Disk: 4},
	})
	b := SpanOf(&Entry{
		Key: 2<<LevelShift | 8, Balance: 7, ClassBit: 63, Free: cluster.Demand{CPU: 2, Memory: 8, Disk: 4},
	})
	if a.Last != 3<<LevelShift|5 || a.MinFill != 5 || a.MaxFill != 5 || a.Classes != 2 {
		t.Errorf("span of a node: %+v", a)
	}
	want := Span{
		MinFree: cluster.Demand{CPU: 1, Memory: 8, Disk: 4}, Last: 3<<LevelShift | 5, MinFill: 5, MaxFill: 8,
		MinBalance: -2, MaxBalance: 7, Classes: 1<<63 | 2,
	}
	for _, pair := range [][2]Span{{a, b}, {b, a}} {
		got := pair[0]
		if got.join(&pair[1]); got != want {
			t.Errorf("joined: %+v, want %+v", got, want)
		}
	}
}

// TestVisit checks that a query visits the nodes with room, each once, in the order of the tree, and a page all.
func TestVisit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SampledFrom([]int{1, 40, 700}).Draw(t, "slots")
		root, _ := grown(t, editorOf(slots), slots)
		need := cluster.Demand{
			CPU:    cluster.MilliCPU(rapid.IntRange(-4, 11).Draw(t, "cpu")),
			Memory: cluster.Bytes(rapid.IntRange(0, 5).Draw(t, "memory")), Disk: 7,
		}
		var want, all, got, visited []int32
		if root != nil {
			for _, en := range checkPage(t, root) {
				all = append(all, en.Slot)
				if en.Free.CPU >= need.CPU && en.Free.Memory >= need.Memory {
					want = append(want, en.Slot)
				}
			}
		}
		q := Query{Need: need, Suit: func(int32) bool { return false }} // which Visit does not ask
		q.Visit(root, func(slot int32) { got = append(got, slot) })
		root.Visit(func(slot int32) { visited = append(visited, slot) })
		if diff := cmp.Diff(want, got) + cmp.Diff(all, visited); diff != "" {
			t.Fatalf("slots with room, and all (-want +got):\n%s", diff)
		}
	})
}

// TestNeedOfEachResource checks that each resource counts by itself.
func TestNeedOfEachResource(t *testing.T) {
	free := cluster.Demand{CPU: 5, Memory: 5, Disk: 5}
	for _, c := range []struct {
		need cluster.Demand
		want bool
	}{
		{cluster.Demand{}, true},
		{free, true},
		{cluster.Demand{CPU: 6}, false},
		{cluster.Demand{Memory: 6}, false},
		{cluster.Demand{Disk: 6}, false},
	} {
		q := Query{Need: c.need}
		if got := q.Fits(free); got != c.want {
			t.Errorf("%v fits into %v: %v, want %v", c.need, free, got, c.want)
		}
	}
	q := Query{}
	if q.Fits(cluster.Demand{CPU: -1}) {
		t.Error("a task fits on a node that is overcommitted")
	}
}

// TestSharesOfUse checks sums and balances of shares: with more of a resource in use the fill never falls, and the
// balance is that of CPU less that of memory in steps of 1/32, rounded down.
func TestSharesOfUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
		shape := cluster.Demand{
			CPU: cluster.MilliCPU(amount("cpus", 1<<40)), Memory: cluster.Bytes(amount("memory", 1<<50)),
			Disk: cluster.Bytes(amount("disk", maxAmount)),
		}
		used := cluster.Demand{
			CPU: cluster.MilliCPU(amount("used cpus", 1<<41)), Memory: cluster.Bytes(amount("used memory", 1<<51)),
			Disk: cluster.Bytes(amount("used disk", maxAmount)),
		}
		more := used.Add(cluster.Demand{
			CPU: cluster.MilliCPU(amount("more", 1<<30)), Memory: cluster.Bytes(amount("more", 1<<30)),
		})
		a, b := SharesOf(used, shape), SharesOf(more, shape)
		if a.Fill() > b.Fill() || b.Fill() >= 1<<FillBits || a.Fill() != a.CPU+a.Memory+a.disk {
			t.Fatalf("fill %d of %v, and %d of %v", a.Fill(), used, b.Fill(), more)
		}
		steps := int64(a.CPU)*balanceSteps - int64(a.Memory)*balanceSteps
		want := steps / Parts
		if steps < 0 && steps%Parts != 0 {
			want--
		}
		if int64(a.Balance()) != want || a.Balance() < -BalanceZero || a.Balance() > BalanceZero {
			t.Fatalf("balance of %+v: got %d, want %d", a, a.Balance(), want)
		}
	})
}

// TestClamp checks that outside amounts come into the range of amounts.
func TestClamp(t *testing.T) {
	got := Clamp(cluster.Demand{CPU: -1, Memory: 1 << 60, Disk: maxAmount})
	if want := (cluster.Demand{Memory: maxAmount, Disk: maxAmount}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	low := minDemand(cluster.Demand{CPU: 1, Memory: 5}, cluster.Demand{CPU: 2, Disk: 3})
	if low != (cluster.Demand{CPU: 1}) {
		t.Errorf("the smaller amounts are %v, want 1 CPU alone", low)
	}
}

// TestNamesOfCopies checks that a copy of names has an order of its own, with names that its owner gives.
func TestNamesOfCopies(t *testing.T) {
	texts := []string{"b", "a", "c", "d"}
	o := Names{Of: func(slot int32) string { return texts[slot] }, Order: make([]uint64, len(texts))}
	for slot := range int32(3) {
		o.Add(slot)
	}
	c := o.Clone(func(slot int32) string { return fmt.Sprint(texts[slot], "") })
	o.Remove(1)
	c.Add(3)
	if got, want := slices.Collect(o.All), []int32{0, 2}; !slices.Equal(got, want) || o.Count != 2 {
		t.Errorf("original: %v, want %v", got, want)
	}
	if got, want := slices.Collect(c.All), []int32{1, 0, 2, 3}; !slices.Equal(got, want) || c.Count != 4 {
		t.Errorf("copy: %v, want %v", got, want)
	}
	for slot := range c.All { // the first alone
		if slot != 1 {
			t.Errorf("the first slot is %d, want 1", slot)
		}
		break
	}
}

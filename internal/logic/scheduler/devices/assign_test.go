package devices

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

// drawDevices draws devices of few kinds on two NUMA nodes or unknown ones.
func drawDevices(t *rapid.T) (list []cluster.Device) {
	for i := range rapid.IntRange(0, 7).Draw(t, "devices") {
		list = append(list, cluster.Device{
			ID: fmt.Sprint("d", i), Type: pick(t, "type", "gpu", "gpu", "gpu", "fpga"),
			Model: pick(t, "model", "A", "B"), Memory: pick[cluster.Bytes](t, "memory", 0, 8, 16),
			Numa: pick(t, "numa", 0, 0, 1, -1),
		})
	}
	return list
}

// drawUses draws what is used of some of the devices.
func drawUses(t *rapid.T, list []cluster.Device) (used Uses) {
	for i := range list {
		if share := pick(t, "used", 0, 0, 0, 300, 800, cluster.WholeDevice); share > 0 {
			memory := pick[cluster.Bytes](t, "uses", 0, 4)
			used = used.Add(cluster.DeviceUse{ID: list[i].ID, Share: share, Memory: memory}, 1)
		}
	}
	return used
}

func drawRequests(t *rapid.T) []cluster.DeviceRequest {
	var list []cluster.DeviceRequest
	for range pick(t, "requests", 1, 1, 2, 3) {
		r := cluster.DeviceRequest{
			Type: pick(t, "wanted", "", "gpu", "fpga"), Count: pick(t, "count", 0, 1, 1, 2, 3),
			Models: pick(t, "models", nil, nil, []string{"A"}), Memory: pick[cluster.Bytes](t, "needs", 0, 0, 8),
			OneNuma: pick(t, "one NUMA node", false, false, true),
		}
		if pick(t, "a share", false, false, true) {
			r.Count, r.Share = 1, pick(t, "share", 200, 700)
		}
		list = append(list, r)
	}
	return Requests(list)
}

// TestAssignedDevicesMeetTheRequests checks each assignment: every request gets as many devices as it counts, or a
// share of one, of those that suit it and are free. Requests for one NUMA node get no devices of two.
func TestAssignedDevicesMeetTheRequests(t *testing.T) {
	assigned := 0
	rapid.Check(t, func(t *rapid.T) {
		list := drawDevices(t)
		used, requests := drawUses(t, list), drawRequests(t)
		before := slices.Clone(used)
		uses, lacking, _ := Assign(list, used, requests)
		if diff := cmp.Diff(before, used, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("the uses of the caller were changed:\n%s", diff)
		}
		if lacking >= 0 {
			if len(uses) > 0 || lacking >= len(requests) {
				t.Fatalf("request %d fails, and the uses are %v", lacking, uses)
			}
			return
		}
		assigned++
		sum := slices.Clone(used)
		for _, u := range uses {
			sum = sum.Add(u, 1)
		}
		for i := range list {
			u := sum.of(list[i].ID)
			if u.Share > cluster.WholeDevice || u.Share < cluster.WholeDevice && u.Memory > max(list[i].Memory, 4) {
				t.Fatalf("%+v is used beyond its whole: %+v", list[i], u)
			}
		}
		if !canServe(list, used, uses, requests) {
			t.Fatalf("%+v does not serve %+v of %+v", uses, requests, list)
		}
	})
	if assigned < 20 {
		t.Errorf("%d assignments were checked", assigned)
	}
}

// canServe reports whether some way to hand out uses serves all requests.
func canServe(list []cluster.Device, used, uses Uses, requests []cluster.DeviceRequest) bool {
	device := func(id string) *cluster.Device {
		return &list[slices.IndexFunc(list, func(d cluster.Device) bool { return d.ID == id })]
	}
	// The NUMA nodes of the requests for one: -1 is none yet.
	var serve func(left Uses, i, done, numa int) bool
	serve = func(left Uses, i, done, numa int) bool {
		if i == len(requests) {
			return len(left) == 0
		}
		r := &requests[i]
		if r.Share > 0 && done == 1 || r.Share == 0 && done == r.Count {
			return serve(left, i+1, 0, numa)
		}
		for _, u := range left {
			d := device(u.ID)
			take := cluster.DeviceUse{ID: u.ID, Share: cluster.WholeDevice}
			if r.Share > 0 {
				take.Share, take.Memory = r.Share, r.Memory
			} else if _, taken := used.Find(u.ID); taken {
				continue
			}
			near := numa
			if r.OneNuma && d.Numa >= 0 {
				if numa >= 0 && numa != d.Numa {
					continue
				}
				near = d.Numa
			}
			if !Suits(r, d) || u.Share < take.Share || u.Memory < take.Memory {
				continue
			}
			if serve(slices.Clone(left).Add(take, -1), i, done+1, near) {
				return true
			}
		}
		return false
	}
	return serve(uses, 0, 0, -1)
}

// TestAssignIgnoresTheOrderOfDevices checks that the order in which a node lists its devices does not matter: of equal
// devices the lowest ID is taken.
func TestAssignIgnoresTheOrderOfDevices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawDevices(t)
		used, requests := drawUses(t, list), drawRequests(t)
		uses, lacking, _ := Assign(list, used, requests)
		other, otherLacking, _ := Assign(rapid.Permutation(list).Draw(t, "order"), used, requests)
		if diff := cmp.Diff(uses, other); diff != "" || lacking != otherLacking {
			t.Fatalf("lacking request %d, want %d; uses (-want +got):\n%s", otherLacking, lacking, diff)
		}
	})
}

// TestSingleRequestsAreServed checks that a single request fails only if too few devices are free for it, and that
// HasFree and MeetEach agree.
func TestSingleRequestsAreServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawDevices(t)
		used, requests := drawUses(t, list), drawRequests(t)[:1]
		r := &requests[0]
		most := map[bool]int{} // by whether something of the devices may be used
		for _, numa := range []int{0, 1, -1} {
			free := map[bool]int{}
			for i := range list {
				d := &list[i]
				if !Suits(r, d) || r.OneNuma && d.Numa != numa && d.Numa >= 0 {
					continue
				}
				free[true]++
				u := used.of(d.ID)
				if r.Share > 0 && cluster.WholeDevice-u.Share >= r.Share && d.Memory-u.Memory >= r.Memory ||
					r.Share == 0 && u.Share == 0 && u.Memory == 0 {
					free[false]++
				}
			}
			most[true], most[false] = max(most[true], free[true]), max(most[false], free[false])
		}
		if _, lacking, _ := Assign(list, used, requests); (lacking < 0) != (most[false] >= r.Count) {
			t.Fatalf("%+v with %v fails: %v, with %d free devices", *r, used, lacking >= 0, most[false])
		}
		if got := MeetEach(list, requests); got != (most[true] >= r.Count) {
			t.Fatalf("unused devices meet %+v: %v, with %d devices", *r, got, most[true])
		}
		if !r.OneNuma {
			if got := HasFree(list, GroupsOf(list, used, nil), r); got != (most[false] >= r.Count) {
				t.Fatalf("devices are free for %+v: %v, with %d free devices", *r, got, most[false])
			}
		}
	})
}

// TestOrderOfAllocation lists which devices a request gets: whole ones of the NUMA node with the fewest that has
// enough, and a share of the device with the least left.
func TestOrderOfAllocation(t *testing.T) {
	gpu := func(id string, numa int) cluster.Device {
		return cluster.Device{ID: id, Type: "gpu", Numa: numa, Memory: 16}
	}
	list := []cluster.Device{gpu("a", 1), gpu("b", 0), gpu("c", 0), gpu("d", 1), gpu("e", 0), gpu("f", -1)}
	whole := func(count int) cluster.DeviceRequest { return cluster.DeviceRequest{Type: "gpu", Count: count} }
	share := func(n int, memory cluster.Bytes) cluster.DeviceRequest {
		return cluster.DeviceRequest{Type: "gpu", Count: 1, Share: n, Memory: memory}
	}
	near := func(r cluster.DeviceRequest) cluster.DeviceRequest {
		r.OneNuma = true
		return r
	}
	for name, c := range map[string]struct {
		used     Uses
		requests []cluster.DeviceRequest
		want     string
	}{
		"one: of the smallest NUMA node":      {nil, list1(whole(1)), "f"},
		"two: the NUMA node with two":         {nil, list1(whole(2)), "a d"},
		"three: the NUMA node with three":     {nil, list1(whole(3)), "b c e"},
		"four: of several NUMA nodes":         {nil, list1(whole(4)), "b c e f"},
		"two, as one of NUMA node 1 is taken": {Uses{{ID: "d", Share: 1000}}, list1(whole(2)), "b c"},
		"seven":                               {nil, list1(whole(7)), "lacks 0"},
		"a share: the lowest ID":              {nil, list1(share(300, 0)), "a"},
		"a share: where the least is left": {
			Uses{{ID: "c", Share: 300}, {ID: "e", Share: 700}}, list1(share(300, 0)), "e",
		},
		"a share: what is left is too little": {
			Uses{{ID: "c", Share: 300}, {ID: "e", Share: 701}}, list1(share(300, 0)), "c",
		},
		"a share: its memory is too little": {Uses{{ID: "e", Share: 300, Memory: 10}}, list1(share(300, 8)), "a"},
		"two shares: of one device":         {nil, []cluster.DeviceRequest{share(300, 0), share(700, 0)}, "a"},
		"two shares that exceed a device":   {nil, []cluster.DeviceRequest{share(300, 0), share(701, 0)}, "a b"},
		"on one NUMA node: two with f":      {nil, list1(near(whole(2))), "a d"},
		"on one NUMA node: three with f":    {nil, list1(near(whole(3))), "a d f"},
		"on one NUMA node: four with f":     {nil, list1(near(whole(4))), "b c e f"},
		"on one NUMA node: five":            {nil, list1(near(whole(5))), "lacks 0"},
		"one there, four anywhere":          {nil, []cluster.DeviceRequest{near(whole(1)), whole(4)}, "a b c e f"},
	} {
		uses, lacking, _ := Assign(list, c.used, c.requests)
		var ids []string
		for _, u := range uses {
			ids = append(ids, u.ID)
		}
		got := strings.Join(ids, " ")
		if lacking >= 0 {
			got = fmt.Sprint("lacks ", lacking)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func list1(r cluster.DeviceRequest) []cluster.DeviceRequest { return []cluster.DeviceRequest{r} }

// TestEqualClassKeys checks the promise of device classes: where the keys of two nodes are equal, requests have the
// same result, unless two of them share devices of one type.
func TestEqualClassKeys(t *testing.T) {
	equal := 0
	rapid.Check(t, func(t *rapid.T) {
		draw := func(list []cluster.Device, used Uses) ([]cluster.Device, Uses) {
			list, other := slices.Clone(list), Uses{}
			ids := rapid.Permutation([]string{"p0", "p1", "p2", "p3", "p4", "p5", "p6"}).Draw(t, "IDs")
			for i := range list {
				if u := used.of(list[i].ID); u.Share > 0 || u.Memory > 0 {
					u.ID = ids[i]
					other = other.Add(u, 1)
				}
				list[i].ID = ids[i]
			}
			return rapid.Permutation(list).Draw(t, "order"), other
		}
		list := drawDevices(t)
		if pick(t, "of one model", true, true, false) {
			for i := range list {
				list[i].Model, list[i].Memory = "A", 16
			}
		}
		used, requests := drawUses(t, list), drawRequests(t)
		other, otherUsed := draw(list, used)
		key := func(list []cluster.Device, used Uses) string {
			return string(AppendClassKey(nil, list, GroupsOf(list, used, nil), used))
		}
		if key(list, used) != key(other, otherUsed) || ShareOneType(requests) {
			return
		}
		equal++
		_, lacking, _ := Assign(list, used, requests)
		_, otherLacking, _ := Assign(other, otherUsed, requests)
		if (lacking < 0) != (otherLacking < 0) {
			t.Fatalf("%+v\nlacks %d on %+v with %v,\nand %d on %+v with %v", requests, lacking, list, used,
				otherLacking, other, otherUsed)
		}
	})
	if equal < 20 {
		t.Errorf("%d pairs of nodes had equal keys", equal)
	}
}

// TestUsesAddUp checks that uses are ordered by ID, and that what is added and removed again leaves nothing.
func TestUsesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u Uses
		var added []cluster.DeviceUse
		sums := map[string]int{}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			if len(added) > 0 && rapid.Bool().Draw(t, "remove") {
				at := rapid.IntRange(0, len(added)-1).Draw(t, "which")
				u = u.Add(added[at], -1)
				sums[added[at].ID] -= added[at].Share
				added = slices.Delete(added, at, at+1)
			} else {
				more := cluster.DeviceUse{
					ID: pick(t, "id", "a", "b", "c"), Share: rapid.IntRange(1, 9).Draw(t, "share"), Memory: 3,
				}
				u, added = u.Add(more, 1), append(added, more)
				sums[more.ID] += more.Share
			}
			if !slices.IsSortedFunc(u, func(a, b cluster.DeviceUse) int { return strings.Compare(a.ID, b.ID) }) {
				t.Fatalf("%v is not in order", u)
			}
		}
		kinds := 0
		for id, sum := range sums {
			if u.FreeShare(id) != cluster.WholeDevice-sum {
				t.Fatalf("%d of %s is free, want %d less", u.FreeShare(id), id, sum)
			}
			if sum > 0 {
				kinds++
			}
		}
		if len(u) != kinds {
			t.Fatalf("%v has %d devices, want %d", u, len(u), kinds)
		}
	})
}

// TestFreeFor checks what a service keeps: all that its requests would get, or as much of it as is free.
func TestFreeFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawDevices(t)
		used, requests := drawUses(t, list), drawRequests(t)
		got := FreeFor(list, used, requests)
		all, lacking, _ := Assign(list, used, requests)
		if lacking < 0 {
			if diff := cmp.Diff([]cluster.DeviceUse(all), got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("devices (-of Assign +got):\n%s", diff)
			}
			return
		}
		sum, most := slices.Clone(used), 0
		for i := range requests {
			most += requests[i].Count
		}
		for _, u := range got {
			sum = sum.Add(u, 1)
		}
		for i := range list {
			if u := sum.of(list[i].ID); u.Share > cluster.WholeDevice {
				t.Fatalf("%+v is kept beyond its whole: %+v", list[i], u)
			}
		}
		if len(got) > most {
			t.Fatalf("%d devices are kept, %d requested", len(got), most)
		}
		for i := range requests { // what is left meets no request that is not served
			r := requests[i]
			r.Count, r.OneNuma = max(1, len(list)), false
			if _, more, _ := Assign(list, sum, []cluster.DeviceRequest{r}); more < 0 && len(got) == 0 {
				t.Fatalf("nothing is kept, though %+v would find devices", r)
			}
		}
	})
}

// TestOrderOfRequests checks that the most selective requests are served first: whole devices of named models, whole
// devices, then shares; equal ones in their order. Defaults are filled in, and the list of the caller stays.
func TestOrderOfRequests(t *testing.T) {
	list := []cluster.DeviceRequest{
		{Share: 500},
		{Share: 500, Models: []string{"A"}},
		{Type: "fpga"},
		{Count: 2, Type: "gpu"},
		{Models: []string{"A"}},
	}
	given := slices.Clone(list)
	want := []cluster.DeviceRequest{
		{Type: "gpu", Count: 1, Models: []string{"A"}},
		{Type: "fpga", Count: 1},
		{Type: "gpu", Count: 2},
		{Type: "gpu", Count: 1, Share: 500, Models: []string{"A"}},
		{Type: "gpu", Count: 1, Share: 500},
	}
	if diff := cmp.Diff(want, Requests(list)) + cmp.Diff(given, list); diff != "" {
		t.Errorf("requests in order, or of the caller (-want +got):\n%s", diff)
	}
	if ShareOneType(Requests(list[:1])) || !ShareOneType(Requests(list[:2])) || ShareOneType(Requests(list[2:4])) {
		t.Error("want two shares of one type to be found, and no other requests")
	}
}

// TestTextOfRequests checks what a refusal says of each lack.
func TestTextOfRequests(t *testing.T) {
	list := []cluster.Device{
		{ID: "a", Type: "gpu", Model: "A", Memory: 16 * cluster.GiB, Numa: 0},
		{ID: "b", Type: "gpu", Model: "A", Memory: 16 * cluster.GiB, Numa: 1},
		{ID: "c", Type: "gpu", Model: "B", Memory: 8 * cluster.GiB, Numa: 1},
	}
	part := Uses{{ID: "a", Share: 300}}
	whole := Uses{{ID: "b", Share: cluster.WholeDevice}}
	for _, c := range []struct {
		used  Uses
		r     cluster.DeviceRequest
		want  string
		short int
	}{
		{nil, cluster.DeviceRequest{Type: "fpga", Count: 1}, "no fpga", 0},
		{nil, cluster.DeviceRequest{Type: "gpu", Count: 1, Models: []string{"C", "D"}}, "no gpu of model C or D", 0},
		{nil, cluster.DeviceRequest{Type: "gpu", Count: 1, Memory: 32 * cluster.GiB}, "no gpu with 32 GiB", 0},
		{nil, cluster.DeviceRequest{Type: "gpu", Count: 5}, "too few gpu free", 2},
		{whole, cluster.DeviceRequest{Type: "gpu", Count: 3}, "too few gpu free", 1},
		{part, cluster.DeviceRequest{Type: "gpu", Count: 3}, "too few gpu free, some are used in part", 1},
		{
			part,
			cluster.DeviceRequest{Type: "gpu", Count: 1, Share: 800, Models: []string{"A"}},
			"no gpu of model A with enough left to share", 0,
		},
		{nil, cluster.DeviceRequest{Type: "gpu", Count: 3, OneNuma: true}, "too few gpu free on one NUMA node", 1},
		{whole, cluster.DeviceRequest{Type: "gpu", Count: 2, OneNuma: true}, "too few gpu free on one NUMA node", 1},
		{
			nil,
			cluster.DeviceRequest{Type: "gpu", Count: 2, OneNuma: true},
			"not enough gpu free on the NUMA node of what else the task requests", 0,
		},
	} {
		if text, short := Text(list, c.used, &c.r); text != c.want || short != c.short {
			t.Errorf("%+v with %v: got %q, short by %d, want %q, %d", c.r, c.used, text, short, c.want, c.short)
		}
	}
}

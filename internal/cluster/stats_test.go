package cluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotable(t *testing.T) {
	reported := TaskStats{CPU: 1000, Memory: 100 * MiB, Growth: 0, Requests: 100}
	for name, test := range map[string]struct {
		change func(*TaskStats)
		want   bool
	}{
		"the same":                  {func(*TaskStats) {}, false},
		"a tenth":                   {func(s *TaskStats) { s.CPU = 1100 }, false},
		"more than a tenth":         {func(s *TaskStats) { s.CPU = 1101 }, true},
		"memory":                    {func(s *TaskStats) { s.Memory = 89 * MiB }, true},
		"a leak begins":             {func(s *TaskStats) { s.Growth = 2 * MiB }, true},
		"requests":                  {func(s *TaskStats) { s.Requests = 111 }, true},
		"requests are not counted":  {func(s *TaskStats) { s.Requests = -1 }, true},
		"a hundred bytes of growth": {func(s *TaskStats) { s.Growth = 100 }, false},
	} {
		now := reported
		test.change(&now)
		if got := now.Notable(reported); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	small := TaskStats{CPU: 1}
	if (TaskStats{CPU: 21}).Notable(small) {
		t.Error("20 milli more are notable")
	}
}

func TestMergeOfStatistics(t *testing.T) {
	named := func(uuids ...string) *NodeStats {
		s := &NodeStats{CPU: 7}
		for _, u := range uuids {
			s.Each = append(s.Each, TaskStats{UUID: u[:1], CPU: MilliCPU(len(u))})
		}
		return s
	}
	earlier := named("a", "b", "c")
	got := named("d", "bb").Merge(earlier, func(uuid string) bool { return uuid != "c" })
	if diff := cmp.Diff(named("a", "bb", "d"), got); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(named("bb", "d").Each, got.Changed(earlier).Each); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if !slices.Equal(earlier.Each, named("a", "b", "c").Each) {
		t.Error("the earlier ones were changed")
	}
}

package fetch

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestCurrentTasks checks which ended tasks a list shows by default, for any division into pages.
func TestCurrentTasks(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	task := func(owner string, index int, state cluster.State, age time.Duration) api.TaskView {
		v := api.TaskView{
			ID:    cluster.TaskID(fmt.Sprintf("default.%s.1.a.%d", owner, index)),
			Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: owner}, State: state,
		}
		if state.Terminal() {
			v.Finished = now.Add(-age)
		}
		return v
	}
	var all []api.TaskView
	for i := range 15 { // the failures of one owner: the newest ten are those of the highest indexes
		all = append(all, task("many", i, cluster.StateFailed, time.Duration(30-i)*time.Minute))
	}
	all = append(all, task("one", 0, cluster.StateFailed, 61*time.Minute), task("one", 1, cluster.StateLost, time.Hour),
		task("one", 2, cluster.StateSucceeded, time.Second), task("one", 3, cluster.StateRunning, 0),
		task("one", 4, cluster.StateCancelled, time.Second), task("one", 5, cluster.StatePending, 0))
	for _, size := range []int{1, 4, len(all)} {
		l := CurrentTasks{Now: now}
		for begin := 0; begin < len(all); begin += size {
			l.add(all[begin:min(begin+size, len(all))])
		}
		var got []string
		for _, v := range l.Tasks {
			got = append(got, string(v.ID))
		}
		var want []string
		for i := 5; i < 15; i++ {
			want = append(want, fmt.Sprintf("default.many.1.a.%d", i))
		}
		want = append(want, "default.one.1.a.1", "default.one.1.a.3", "default.one.1.a.5")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("pages of %d:\n got %v\nwant %v", size, got, want)
		}
		if l.Hidden != len(all)-len(want) {
			t.Errorf("pages of %d: got %d hidden, want %d", size, l.Hidden, len(all)-len(want))
		}
	}
	l := CurrentTasks{Now: now, All: true, Keep: []func(api.TaskView) bool{
		func(v api.TaskView) bool { return v.Owner.Name == "many" },
	}}
	if l.add(all); len(l.Tasks) != 15 || l.Hidden != 0 {
		t.Errorf("all of one owner: got %d and %d hidden, want 15 and none", len(l.Tasks), l.Hidden)
	}
	for hidden, want := range map[int]string{ // order-free: each count is a case of its own
		0: "", 1: "1 ended task is not shown; -a shows it.", 12: "12 ended tasks are not shown; -a shows them.",
	} {
		if got := (&CurrentTasks{Hidden: hidden}).HiddenText("-a"); got != want {
			t.Errorf("%d hidden: got %q, want %q", hidden, got, want)
		}
	}
}

package dispatcher

import (
	"slices"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// TestPullEvents checks that the begin and the end of an image pull are one event each, whatever progress is reported.
func TestPullEvents(t *testing.T) {
	var row store.AttemptRow
	var got []string
	for _, o := range []cluster.Observed{
		{State: cluster.StatePreparing},
		{State: cluster.StatePreparing, Message: "container app: pulling reg:5000/web:1"},
		{State: cluster.StatePreparing, Message: "container app: pulling reg:5000/web:1: 1 of 2 layers, 3 of 9 MiB"},
		{State: cluster.StatePreparing, Message: "container side: pulling side:2: 0 of 1 layers, 0 of 9 MiB"},
		{State: cluster.StatePreparing, Message: "container side: unpacking side:2"},
		{State: cluster.StateStarting},
		{State: cluster.StatePreparing, Message: "container app: pulling gone:1: not found (try 5 of 5)"},
		{State: cluster.StateFailed, Message: "container app: pulling gone:1: not found (try 5 of 5)"},
	} {
		for _, e := range statusEvents(&row, &o) {
			got = append(got, e.Type+": "+e.Message)
		}
		row.Observed = &o
	}
	want := []string{
		"task.pulling: pulling reg:5000/web:1", "task.pulled: pulled reg:5000/web:1", "task.pulling: pulling side:2",
		"task.pulled: pulled side:2", "task.pulling: pulling gone:1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

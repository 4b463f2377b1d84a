package wait

import (
	"testing"

	"github.com/berthd/berth/api"
)

func TestPreparing(t *testing.T) {
	at := func(node, message string) api.TaskView { return api.TaskView{Node: node, Message: message} }
	for _, tc := range []struct {
		tasks []api.TaskView
		want  string
	}{
		{nil, ""},
		{[]api.TaskView{at("n1", ""), at("", "waits")}, ""},
		{
			[]api.TaskView{
				at("n2", "no state: is written"),
				at("n1", "container app: pulling web:1: 2 of 5 layers, 12.0 of 80.0 MiB"),
			},
			"n1: pulling web:1: 2 of 5 layers, 12.0 of 80.0 MiB; n2: no state: is written",
		},
		{
			[]api.TaskView{at("n1", "a"), at("n2", "a"), at("n3", "b"), at("n4", "c"), at("n5", "c")},
			"n1: a; n2: a; n3: b; 2 nodes more",
		},
	} {
		if got := preparingText(tc.tasks); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

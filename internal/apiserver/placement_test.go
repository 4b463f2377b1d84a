package apiserver

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/cluster"
)

// TestExplainWhyHere checks the text of a kept decision trace, and of a trace computed now if none was kept.
func TestExplainWhyHere(t *testing.T) {
	w := uneven(t)
	kept := cluster.DecisionTrace{
		At: noon, Task: "default.web.1.0", Attempt: 1, Node: "n1", Like: 3, Nodes: 5, More: 1,
		Best: []cluster.Candidate{
			{Node: "n1", Parts: []cluster.RankPart{
				{Name: "spread label.zone", Points: 50_000},
				{Name: "fill", Points: 2_700_000},
			}},
			{Node: "n2", Parts: []cluster.RankPart{
				{Name: "spread label.zone", Points: 25_000},
				{Name: "siblings", Points: -1},
				{Name: "fill", Points: 2_900_000},
			}},
			{Node: "n3", Parts: []cluster.RankPart{
				{Name: "spread label.zone", Points: 50_000},
				{Name: "fill", Points: 2_400_000},
			}},
		},
		Refusals: []cluster.RefusalCount{
			{Refusal: cluster.Refusal{Code: cluster.ReasonShortMemory, Short: 200 << 20}, Nodes: 1},
		},
	}
	w.server.views.Leader.DecisionTrace = func(_ context.Context, _ string, task cluster.TaskID,
		attempt int,
	) (cluster.DecisionTrace, bool) {
		return kept, task != "default.web.1.2" && attempt == 1
	}
	x := w.explain("/v1/tasks/default.web.1.0")
	want := &api.PlaceView{
		Recorded: true, DecisionTrace: kept, Node: "n1",
		Here: "the spread over label.zone counts +50 for it, 10% full with it",
		Others: []api.PlaceOption{
			{Node: "n2", Takes: true, Text: "worse: more of its tasks in the same label.zone"},
			{Node: "n3", Takes: true, Text: "worse: 20% full with it, n1 10% full"},
		},
		Refusals: []string{"1 node: memory short by 200 MiB"},
	}
	if diff := cmp.Diff(want, x.Place); diff != "" {
		t.Errorf("place (-want +got):\n%s", diff)
	}
	// This attempt has no trace. Two tasks of its kind are on the node, so another node would be chosen now.
	x = w.explain("/v1/tasks/default.web.1.2")
	if x.Place == nil || x.Place.Recorded || len(x.Place.Others) == 0 {
		t.Fatalf("%+v", x.Place)
	}
	if got, want := x.Place.Others[0], (api.PlaceOption{
		Node: "n2", Takes: true,
		Text: "better now: 0 tasks of its own kind there, 2 on n1",
	}); cmp.Diff(want, got) != "" {
		t.Error(cmp.Diff(want, got))
	}
	if !strings.Contains(x.Place.Here, "2 tasks of its own kind there") {
		t.Errorf("here: %s", x.Place.Here)
	}
	w.want(http.StatusNotFound, "GET", "/v1/tasks/default.web.1.0/explain?node=none", nil)
	for node, want := range map[string]string{
		"n1": "it can run the task: ",
		"n2": "it can run the task; compared with n1: better now: 0 tasks of its own kind there, 2 on n1",
	} {
		x := read[api.Explanation](t, w.want(200, "GET", "/v1/tasks/default.web.1.0/explain?node="+node, nil))
		if x.Place == nil || x.Place.Asked == nil || !strings.HasPrefix(x.Place.Asked.Text, want) {
			t.Errorf("asked about %s: %+v", node, x.Place.Asked)
		}
	}
	w.put(map[string]any{"host/n2": cluster.Host{Name: "n2", Cordon: true, Taints: []cluster.Taint{{Key: "old"}}}})
	x = read[api.Explanation](t, w.want(200, "GET", "/v1/tasks/default.web.1.0/explain?node=n2", nil))
	asked := api.PlaceOption{
		Node: "n2", Text: "it cannot run the task",
		Against: []string{"cordoned", "taint old not tolerated"},
	}
	if diff := cmp.Diff(&asked, x.Place.Asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestExplainWhatWouldPlace checks the suggestions for a pending task, and for the first pending task of a service.
func TestExplainWhatWouldPlace(t *testing.T) {
	w := uneven(t)
	big := sized("big", 1)
	big["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"cpu": "1", "memory": "15GiB"}
	svc := service("big", "big@1", 1)
	svc["placement"] = map[string]any{"constraints": []any{map[string]any{"attribute": "label.zone", "value": "a"}}}
	w.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", big, "Service", svc))
	const id cluster.TaskID = "default.big.1.0"
	w.why.set(cluster.Waiting{
		Task: id, Sentence: "2 nodes: label.zone = a not met; 1 node: memory short by 2 GiB",
		Refusals: []cluster.RefusalCount{
			{Refusal: cluster.Refusal{Code: cluster.ReasonConstraint, Detail: "label.zone = a"}, Nodes: 2},
			{Refusal: cluster.Refusal{Code: cluster.ReasonShortMemory, Short: 2 << 30}, Nodes: 1},
		},
	})
	x := w.explain("/v1/tasks/" + string(id))
	want := []string{
		"lower its request to 11 GiB memory (it asks for 15 GiB)",
		"loosen the constraint label.zone = a to label.zone in (a, b)",
		"free 4 GiB memory on n1, such as by ending 4 tasks",
		"add a node with 1 CPU and 15 GiB memory free and label.zone = a",
	}
	if diff := cmp.Diff(want, suggested(x)); diff != "" {
		t.Errorf("suggestions (-want +got):\n%s", diff)
	}
	if x.Place == nil || !x.Place.Recorded || x.Place.DecisionTrace.Nodes != 3 || len(x.Place.Refusals) != 2 ||
		x.Place.Refusals[0] != "2 nodes: label.zone = a not met" {
		t.Errorf("%+v", x.Place)
	}
	x = w.explain("/v1/clusters/default/services/big")
	if diff := cmp.Diff(want, suggested(x)); diff != "" || x.Waits != id {
		t.Errorf("of the service, for %s (-want +got):\n%s", x.Waits, diff)
	}
	if x := w.explain(webPath); len(x.Suggestions) > 0 {
		t.Errorf("nothing of it waits: %v", suggested(x))
	}
}

// TestExplainWhatOvertakes checks the suggestion for a task of a job that is behind another one in the queue.
func TestExplainWhatOvertakes(t *testing.T) {
	w := uneven(t)
	var objects []any
	for name, cpu := range map[string]string{"big": "4", "small": "1"} {
		d := sized(name, 1)
		d["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"cpu": cpu, "memory": "1GiB"}
		j := job(name, name+"@1", 1)
		j["steps"].([]any)[0].(map[string]any)["placement"] = map[string]any{
			"constraints": []any{map[string]any{"attribute": "label.zone", "value": "a"}},
		}
		objects = append(objects, "TaskDefinition", d, "Job", j)
	}
	w.want(200, "POST", "/v1/apply", manifestsOf(objects...))
	const id cluster.TaskID = "default.small.1.work.0"
	behind := cluster.Refusal{
		Code: cluster.ReasonBackfill, Detail: "room is kept for default.big.1.work.0",
	}
	w.why.set(cluster.Waiting{Task: id, Refusals: []cluster.RefusalCount{{Refusal: behind, Nodes: 1}}})
	want := []string{"raise its priority from 500 to 501, ahead of the tasks for which room is kept"}
	for _, path := range []string{"/v1/tasks/" + string(id), "/v1/clusters/default/jobs/small"} {
		if diff := cmp.Diff(want, suggested(w.explain(path))); diff != "" {
			t.Errorf("%s: suggestions (-want +got):\n%s", path, diff)
		}
	}
}

// TestExplainHidesOthers checks that explanations hide the tasks of clusters that a token does not see.
func TestExplainHidesOthers(t *testing.T) {
	x := api.Explanation{Suggestions: []cluster.Suggestion{{
		Text: "free 1 GiB memory on n1, such as by ending blue.web.1.0 and red.db.1.0",
		Changes: []cluster.Remedy{{
			Kind:  cluster.ChangeFree,
			Text:  "free 1 GiB memory on n1, such as by ending blue.web.1.0 and red.db.1.0",
			Tasks: []cluster.TaskID{"blue.web.1.0", "red.db.1.0"}, Attempts: []string{"a", "b"},
		}},
	}}, Place: &api.PlaceView{Here: "blue.web.1.0 was the first and red.db.1.0 the second"}}
	c := &access.Caller{Clusters: []string{"red"}}
	c.ShowExplanation(&x)
	want := "free 1 GiB memory on n1, such as by ending a task and red.db.1.0"
	if sg := x.Suggestions[0]; sg.Text != want || sg.Changes[0].Text != want || sg.Changes[0].Tasks != nil ||
		sg.Changes[0].Attempts != nil {
		t.Errorf("%+v", sg)
	}
	if x.Place.Here != "a task was the first and red.db.1.0 the second" {
		t.Error(x.Place.Here)
	}
}

func suggested(x api.Explanation) (all []string) {
	for _, sg := range x.Suggestions {
		all = append(all, sg.Text)
	}
	return all
}

// set sets why a task waits.
func (f *fakeReasons) set(why cluster.Waiting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[why.Task] = why
}

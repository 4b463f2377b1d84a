package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// rows returns a queue as text.
func rows(q api.Queue) (out []string) {
	for _, e := range q.Entries {
		out = append(out, fmt.Sprintf("%d %s %s ×%d %s %s", e.Position, e.Owner, e.Step, e.Tasks, e.Reason, e.Message))
	}
	return out
}

// TestQueue lists what waits in its order, and groups tasks with one reason. A token of a cluster sees its own entries
// only, with their positions among all.
func TestQueue(t *testing.T) {
	s, red, blue := limits(t)
	s.want(201, "PUT", "/v1/definitions/batch/1", definition("batch", 1))
	late := job("late", "batch@1", 3)
	late["priority"] = "low"
	s.want(201, "PUT", "/v1/clusters/red/jobs/late", late)
	soon := job("soon", "batch@1", 1)
	soon["priority"] = "high"
	s.want(201, "PUT", "/v1/clusters/blue/jobs/soon", soon)
	held := job("held", "batch@1", 2)
	held["hold"] = true
	s.want(201, "PUT", "/v1/clusters/blue/jobs/held", held)
	for i := range 3 {
		task := cluster.TaskID(fmt.Sprintf("red.late.1.work.%d", i))
		s.why.all[task] = cluster.Waiting{
			Task: task, Sentence: fmt.Sprintf("cause %d beside blue.soon.1.work.0", i/2),
			Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonShortCPU}}},
		}
	}
	for _, c := range []struct {
		token, path string
		want        []string
	}{
		{s.access(cluster.RoleViewer), "/v1/queue", []string{
			"1 blue/job/soon work ×1  ",
			"2 red/service/web  ×2  ",
			"4 blue/service/web  ×2  ",
			"6 red/job/late work ×2 cpu cause 0 beside blue.soon.1.work.0",
			"8 red/job/late work ×1 cpu cause 1 beside blue.soon.1.work.0",
			"0 blue/job/held work ×2 hold the job is on hold: berth release blue/job/held",
		}},
		{red, "/v1/queue", []string{
			"2 red/service/web  ×2  ",
			"6 red/job/late work ×2 cpu cause 0 beside a task",
			"8 red/job/late work ×1 cpu cause 1 beside a task",
		}},
		{blue, "/v1/queue?cluster=blue", []string{
			"1 blue/job/soon work ×1  ",
			"4 blue/service/web  ×2  ",
			"0 blue/job/held work ×2 hold the job is on hold: berth release blue/job/held",
		}},
		{blue, "/v1/queue?job=held", []string{
			"0 blue/job/held work ×2 hold the job is on hold: berth release blue/job/held",
		}},
		{s.access(cluster.RoleViewer), "/v1/queue?service=web&job=soon", []string{
			"1 blue/job/soon work ×1  ",
			"2 red/service/web  ×2  ",
			"4 blue/service/web  ×2  ",
		}},
		{red, "/v1/queue?cluster=red", []string{
			"2 red/service/web  ×2  ",
			"6 red/job/late work ×2 cpu cause 0 beside a task",
			"8 red/job/late work ×1 cpu cause 1 beside a task",
		}},
	} {
		q := read[api.Queue](t, s.ask(s.plain, c.token, "GET", c.path, nil))
		if diff := cmp.Diff(c.want, rows(q)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.path, diff)
		}
		if q.Tasks != 8 {
			t.Errorf("%s: %d tasks are in line, want 8", c.path, q.Tasks)
		}
	}
	// An explanation says the place in the queue; a held task has none.
	for _, c := range []struct{ in, job, want string }{
		{"red", "late", "6 of 8, 8 of 8"}, {"blue", "soon", "1 of 8"}, {"blue", "held", "0 of 0"},
	} {
		x := read[api.Explanation](t, s.ask(s.plain, s.access(cluster.RoleViewer), "GET",
			"/v1/clusters/"+c.in+"/jobs/"+c.job+"/explain", nil))
		var got []string
		for _, b := range x.Because {
			if b.About == api.AboutPlace {
				got = append(got, fmt.Sprintf("%d of %d", b.Position, b.Of))
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("job/%s is at %q, want %q", c.job, got, c.want)
		}
	}
	// The limit counts entries of the caller, and what it leaves out is counted in tasks that the caller sees.
	for limit, want := range map[string]int{"1": 9, "3": 5, "4": 3, "5": 2, "6": 0} {
		got := s.ask(s.plain, s.access(cluster.RoleViewer), "GET", "/v1/queue?limit="+limit, nil)
		q := read[api.Queue](t, got)
		if fmt.Sprint(len(q.Entries)) != limit || q.LeftOut != want {
			t.Errorf("limit %s: %d entries, and %d tasks left out, want %d", limit, len(q.Entries), q.LeftOut, want)
		}
	}
	if q := read[api.Queue](t, s.ask(s.plain, red, "GET", "/v1/queue?limit=1", nil)); q.LeftOut != 3 {
		t.Errorf("a limited token: %d tasks left out, want 3", q.LeftOut)
	}
	for _, limit := range []string{"0", "10001", "many"} {
		got := s.ask(s.plain, red, "GET", "/v1/queue?limit="+limit, nil)
		if got.status != 400 || !strings.Contains(string(got.body), "?limit") {
			t.Errorf("limit %s: status %d: %s, want 400 that names the parameter", limit, got.status, got.body)
		}
	}
	for _, path := range []string{
		"/v1/queue?cluster=blue", "/v1/queue?cluster=none", "/v1/queue?cluster=red&job=none",
		"/v1/queue?cluster=red&service=late",
	} {
		if got := s.ask(s.plain, red, "GET", path, nil); got.status != 404 {
			t.Errorf("%s: status %d, want 404: %s", path, got.status, got.body)
		}
	}
}

// TestFairQueue lists a fair queue: jobs belong to the user who requested them, the next one is of the cluster and then
// of the user with the smallest share, and a token of a cluster sees the shares of that cluster alone.
func TestFairQueue(t *testing.T) {
	s := newSecure(t)
	s.want(200, "POST", "/v1/apply", manifestsOf(
		"Cluster", map[string]any{"name": "red", "queue": map[string]any{"policy": "fair", "weight": 2}},
		"Cluster", map[string]any{"name": "blue", "queue": map[string]any{"policy": "fair"}}))
	tokens := map[string]string{}
	for name, in := range map[string]string{"ann": "red", "bob": "red", "dan": "blue"} {
		tokens[name] = s.token(api.TokenRequest{Name: name, Role: cluster.RoleSubmitter, Clusters: []string{in}}).Token
	}
	submit := func(user, in, name string, count int) {
		t.Helper()
		s.early.Add(int64(time.Millisecond)) // the jobs have different times
		spec := job(name, "batch@1", count)
		spec["submitted_by"], spec["cluster"] = "somebody", in
		set := manifestsOf("TaskDefinition", sized("batch", 1), "Job", spec)
		if got := s.ask(s.plain, tokens[user], "POST", "/v1/apply", set); got.status != 200 {
			t.Fatalf("%s: status %d: %s", name, got.status, got.body)
		}
	}
	submit("ann", "red", "first", 4)
	submit("bob", "red", "second", 2)
	submit("dan", "blue", "third", 2)
	submit("bob", "red", "first", 4) // changes nothing
	ref := cluster.Ref{Name: "batch", Version: 1}
	s.put(map[string]any{
		"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default", Session: 1},
		"status/n1": cluster.NodeStatus{
			Name: "n1", Session: 1, Facts: cluster.Facts{CPU: 5000, Memory: cluster.GiB, Disk: cluster.GiB},
		},
		"state/n1/red.first.1.work.0":  desired("red.first.1.work.0", 1, cluster.KindJob, ref),
		"state/n1/blue.third.1.work.0": desired("blue.third.1.work.0", 1, cluster.KindJob, ref),
	})
	want := []string{ // red holds 10 % with weight 2, blue 10 %
		"1 red/job/second work ×2  ", "2 red/job/first work ×3  ", "3 blue/job/third work ×1  ",
	}
	shares := []api.QueueShare{
		{Cluster: "red", User: "bob", Weight: 2, OfCluster: 0.1, OfUser: 0, Waiting: 2},
		{Cluster: "red", User: "ann", Weight: 2, OfCluster: 0.1, OfUser: 0.1, Waiting: 3},
		{Cluster: "blue", User: "dan", Weight: 1, OfCluster: 0.1, OfUser: 0.1, Waiting: 1},
	}
	q := read[api.Queue](t, s.ask(s.plain, s.access(cluster.RoleViewer), "GET", "/v1/queue", nil))
	if diff := cmp.Diff(want, rows(q)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(shares, q.Shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	q = read[api.Queue](t, s.ask(s.plain, tokens["dan"], "GET", "/v1/queue", nil))
	if diff := cmp.Diff(shares[2:], q.Shares); diff != "" {
		t.Errorf("shares for blue (-want +got):\n%s", diff)
	}

	// Another user's run is that user's.
	if got := s.ask(s.plain, tokens["bob"], "POST", "/v1/clusters/red/jobs/first/restart", nil); got.status != 200 {
		t.Fatalf("restart: status %d: %s", got.status, got.body)
	}
	q = read[api.Queue](t, s.ask(s.plain, tokens["bob"], "GET", "/v1/queue", nil))
	for _, e := range q.Entries {
		if e.Owner.Name == "first" && e.User != "bob" {
			t.Errorf("the restarted job is of %s", e.User)
		}
	}
}

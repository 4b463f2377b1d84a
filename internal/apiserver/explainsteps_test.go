package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// chainOf returns a job of steps of two tasks, each of which needs the one before. The step clean runs in any case.
func chainOf(name string, steps ...string) map[string]any {
	var all []any
	for i, s := range steps {
		step := map[string]any{"name": s, "definition": "adder@1", "count": 2}
		if i > 0 {
			step["needs"] = []string{steps[i-1]}
		}
		all = append(all, step)
	}
	all = append(all, map[string]any{
		"name": "clean", "definition": "adder@1", "needs": []string{steps[0]}, "requires": "all-resolved",
	})
	return map[string]any{"name": name, "steps": all}
}

// endTask writes the outcome of the first attempt of a task of the job release in a cluster.
func (w *world) endTask(in, step string, index int, state cluster.State) {
	out := cluster.Outcome{
		Task: cluster.JobTask(in, "release", 1, step, index), Attempt: 1, Node: "n1", Started: true,
		State: state,
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: in, Name: "release"}, Placed: noon,
		Definition: cluster.Ref{Name: "adder", Version: 1}, Ended: noon.Add(1), Exit: &cluster.Exit{},
	}
	if state == cluster.StateFailed {
		out.Reason, out.Exit.Code, out.Message = cluster.ReasonExit, 3, "exit code 3"
	}
	w.put(map[string]any{fmt.Sprintf("attempt/%s/1", out.Task): out})
}

// TestExplainSteps explains steps that wait for others, and those that are skipped because another one failed: which
// need it is, why it failed, and what would let the step run.
func TestExplainSteps(t *testing.T) {
	w := newWorld(t)
	const path = "/v1/clusters/default/jobs/release"
	w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
	w.want(201, "PUT", path, chainOf("release", "build", "test", "publish"))
	w.endTask("default", "build", 0, cluster.StateSucceeded)
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	const far = "step build, which is running: 1/2 succeeded"
	check("the job waits", messages(w.explain(path), "place"),
		"default.release.1.build.1 is pending: not considered by the scheduler yet",
		"2 tasks are pending, default.release.1.test.0 first: waiting for step build to succeed; it needs "+far,
		"2 tasks are pending, default.release.1.publish.0 first: waiting for step test to succeed; it needs step test, "+
			"which waits for step build; that step is running: 1/2 succeeded",
		"default.release.1.clean.0 is pending: waiting for step build to end; it needs "+far)
	check("a task waits", messages(w.explain("/v1/tasks/default.release.1.publish.1"), "place"),
		"waiting for step test to succeed; it needs step test, which waits for step build; that step is running: 1/2 "+
			"succeeded")

	w.endTask("default", "build", 1, cluster.StateFailed)
	const why = "failed: default.release.1.build.1 failed: exit code 3; no retries left"
	const retry = "; its tasks may begin after `berth retry default/job/release`"
	test := "step test is skipped: it needs step build, which " + why + retry
	publish := "step publish is skipped: it needs step test, which was skipped for step build; that step " + why + retry
	check("skipped steps", messages(w.explain(path), "place"),
		"default.release.1.clean.0 is pending: not considered by the scheduler yet", test, publish)
	for id, want := range map[string]string{"test.0": test, "publish.1": publish} {
		x := w.explain("/v1/tasks/default.release.1." + id)
		check(id, messages(x, "place"), want)
		if x.State != "cancelled" || x.Summary != want {
			t.Errorf("task %s is %s: %q", id, x.State, x.Summary)
		}
	}
	v := read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.release.1.test.1", nil))
	if v.State != cluster.StateCancelled || v.Reason != cluster.ReasonNeeds || v.Step != "test" || v.Message != test {
		t.Errorf("the task: %+v", v)
	}
	for _, id := range []string{"test.2", "none.0"} {
		w.want(404, "GET", "/v1/tasks/default.release.1."+id, nil)
	}
	w.want(404, "GET", "/v1/tasks/default.release.2.test.0", nil)

	w.want(200, "POST", path+"/retry", nil)
	check("after a retry", messages(w.explain("/v1/tasks/default.release.1.test.1"), "place"),
		"waiting for step build to succeed; it needs "+far)
	w.want(200, "POST", path+"/stop", nil)
	v = read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.release.1.test.1", nil))
	if v.State != cluster.StateCancelled || v.Reason != cluster.ReasonCancelled ||
		v.Message != "the job was cancelled" {
		t.Errorf("after the stop: %+v", v)
	}
}

// TestExplainNamesTheCluster: the command that an explanation proposes names the cluster of the job.
func TestExplainNamesTheCluster(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/adder/1", definition("adder", 1))
	w.want(201, "PUT", "/v1/clusters/red", `{}`)
	w.want(201, "PUT", "/v1/clusters/red/jobs/release", chainOf("release", "build", "test"))
	w.endTask("red", "build", 0, cluster.StateFailed)
	v := read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/red.release.1.test.0", nil))
	if !strings.HasSuffix(v.Message, "its tasks may begin after `berth retry red/job/release`") {
		t.Error(v.Message)
	}
}

package apiserver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestBorrowedQuota writes quotas that let tasks borrow. All faults are answered at once. A cluster shows what its
// tasks hold, and what is borrowed of it.
func TestBorrowedQuota(t *testing.T) {
	w := busy(t)
	got := w.refused(422, "PUT", "/v1/clusters/default",
		`{"quota": {"cpu": "1", "borrow": {"cpu": "-1", "memory": "1GiB", "devices": {"gpu": 1}}}}`)
	var paths []string
	for _, f := range got.Faults {
		paths = append(paths, f.Path)
	}
	want := []string{"quota.borrow.cpu", "quota.borrow.memory", "quota.borrow.devices.gpu"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	w.refused(422, "PUT", "/v1/clusters/default", `{"quota": {"cpu": "1", "borrow": {"jobs": 1}}}`)
	if v := read[api.ClusterView](t, w.want(200, "GET", "/v1/clusters/default", nil)); v.Quota != nil {
		t.Errorf("a refused write was stored: %+v", v.Quota)
	}

	w.want(200, "PUT", "/v1/clusters/default",
		`{"quota": {"cpu": "4", "tasks": 1, "borrow": {"tasks": 2}, "lend": false}}`)
	reply := w.want(200, "GET", "/v1/clusters/default", nil)
	v := read[api.ClusterView](t, reply)
	if v.Quota == nil || v.Quota.Borrow == nil || v.Quota.Borrow.Tasks != 2 || v.Quota.Lends() {
		t.Errorf("the quota is %s", reply.body)
	}
	if v.Used == nil || v.Used.Tasks < 2 {
		t.Fatalf("the tasks hold %s", reply.body)
	}
	if diff := cmp.Diff(&cluster.Borrowed{Tasks: v.Used.Tasks - 1}, v.Used.Borrowed); diff != "" {
		t.Errorf("borrowed (-want +got):\n%s", diff)
	}
	w.want(200, "PUT", "/v1/clusters/default", `{"quota": {"cpu": "4", "tasks": 1}}`)
	if reply := w.want(200, "GET", "/v1/clusters/default", nil); strings.Contains(string(reply.body), "borrow") {
		t.Errorf("without borrowing it shows %s", reply.body)
	}
}

// TestQueueOfBorrowers lists tasks that borrow behind all others, as they are placed.
func TestQueueOfBorrowers(t *testing.T) {
	w := busy(t)
	w.want(201, "PUT", "/v1/clusters/blue", `{"quota": {"tasks": 9}}`)
	w.want(201, "PUT", "/v1/clusters/blue/jobs/low", `{"priority": 1, "steps": [{"name": "s", "template":
		{"containers": [{"name": "main", "image": "a/b:1"}]}}]}`)
	jobs := func() (all []string) {
		for _, e := range read[api.Queue](t, w.want(200, "GET", "/v1/queue", nil)).Entries {
			if e.Owner.Kind == cluster.KindJob {
				all = append(all, e.Owner.Name)
			}
		}
		return all
	}
	for _, c := range []struct{ quota, want string }{
		{`{"tasks": 99, "borrow": {"tasks": 9}}`, "sum low"},
		{`{"tasks": 1, "borrow": {"tasks": 9}}`, "low sum"},
		{`{"tasks": 1}`, "sum low"},
	} {
		w.want(200, "PUT", "/v1/clusters/default", `{"quota": `+c.quota+`}`)
		if got := strings.Join(jobs(), " "); got != c.want {
			t.Errorf("with the quota %s the order is %q, want %q", c.quota, got, c.want)
		}
	}
}

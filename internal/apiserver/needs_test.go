package apiserver

import (
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// needy returns a service or job with needs.
func needy(spec map[string]any, needs ...string) map[string]any {
	spec["needs"] = needs
	return spec
}

// TestNeedsOfOwners writes services and jobs that need each other, in any order, and refuses needs that cannot be met.
func TestNeedsOfOwners(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	w.want(200, "POST", "/v1/apply", manifestsOf("Service", needy(service("web", "web@1", 1), "job/migrate"),
		"Job", job("migrate", "web@1", 1), "Job", needy(job("check", "web@1", 1), "service/web")))
	v := read[api.ServiceView](t, w.want(200, "GET", "/v1/clusters/default/services/web", nil))
	if want := "waits for default/job/migrate (0/1 done)"; v.Status.Message != want || v.Status.Unmet != want {
		t.Errorf("the service says %q, want %q", v.Status.Message, want)
	}
	j := read[api.JobView](t, w.want(200, "GET", "/v1/clusters/default/jobs/check", nil))
	if want := "waits for default/service/web (0/1 healthy)"; !strings.Contains(j.Status.Message, want) ||
		j.Status.State != cluster.JobPending || j.Status.Unmet != want {
		t.Errorf("the job is %s and says %q, want %q", j.Status.State, j.Status.Message, want)
	}
	troubles := read[api.Page[api.Trouble]](t, w.want(200, "GET", "/v1/troubles?kind=service", nil)).Items
	if len(troubles) != 1 || troubles[0].Cause != v.Status.Unmet ||
		troubles[0].Next != "berth explain default/service/web" {
		t.Errorf("troubles: %+v", troubles)
	}

	got := w.want(422, "POST", "/v1/apply", manifestsOf(
		"Service", needy(service("other", "web@1", 1), "job/none", "job/migrate", "web"),
	))
	for _, want := range []string{`objects[0].needs[2]: "web" is neither a service nor a job`} {
		if !strings.Contains(got.faults(), want) {
			t.Errorf("no %q in %s", want, got.faults())
		}
	}
	got = w.want(422, "POST", "/v1/apply", manifestsOf(
		"Service", needy(service("other", "web@1", 1), "job/none", "job/migrate"),
		"Job", needy(job("migrate", "web@1", 1), "job/check"),
		"Cron", map[string]any{
			"name": "tick", "schedules": []string{"@daily"},
			"job": map[string]any{"steps": job("", "web@1", 1)["steps"], "needs": []string{"service/x"}},
		},
	))
	for _, want := range []string{
		"needs[0]: there is no job/none: create it first, or in the same manifest",
		"needs[0]: the objects need each other in a circle, so that none would begin: job/migrate → job/check → " +
			"service/web → job/migrate",
		"job.needs[0]: there is no service/x",
	} {
		if !strings.Contains(got.faults(), want) {
			t.Errorf("no %q in %s", want, got.faults())
		}
	}

	// A need that was met may be gone when the service is written again, but not when a job runs again.
	w.want(202, "DELETE", "/v1/clusters/default/jobs/migrate", nil)
	w.want(201, "PUT", "/v1/clusters/default/jobs/first", job("first", "web@1", 1))
	w.want(201, "PUT", "/v1/clusters/default/jobs/second", needy(job("second", "web@1", 1), "job/first"))
	got = w.want(422, "PUT", "/v1/clusters/default/jobs/first", needy(job("first", "web@1", 1), "job/second"))
	if want := "job/first → job/second → job/first"; !strings.Contains(got.faults(), want) {
		t.Errorf("no %q in %s", want, got.faults())
	}
	w.want(202, "DELETE", "/v1/clusters/default/jobs/first", nil)
	for _, r := range []reply{
		w.want(422, "POST", "/v1/clusters/default/jobs/second/restart", nil),
		w.want(422, "PUT", "/v1/clusters/default/jobs/second", needy(job("second", "web@1", 2), "job/first")),
	} {
		if want := "needs[0]: there is no job/first"; !strings.Contains(r.faults(), want) {
			t.Errorf("no %q in %s", want, r.faults())
		}
	}
	w.want(200, "PUT", "/v1/clusters/default/services/web", needy(service("web", "web@1", 2), "job/migrate"))
}

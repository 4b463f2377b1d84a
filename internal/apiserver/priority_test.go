package apiserver

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestPriorityOfZero checks that an explicit 0 is not read as the default, and that names are read.
func TestPriorityOfZero(t *testing.T) {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", definition("web", 1)))
	const want = "is 0, want a number from 1 to 1000, or lowest, very-low, low, medium, high, very-high or highest; " +
		"without the field it is 500"
	spec := service("web", "web@1", 1)
	w.want(201, "PUT", "/v1/clusters/default/services/web", spec)
	if e, _ := w.tables.Snapshot().Service("default", "web"); e.Value.Priority != cluster.DefaultPriority {
		t.Errorf("without the field: priority %d", e.Value.Priority)
	}
	spec["priority"] = 0
	if got := w.call("PUT", "/v1/clusters/default/services/web", spec); got.status < 400 ||
		!strings.Contains(got.faults(), "priority: "+want) {
		t.Errorf("service: status %d: %s", got.status, got.body)
	}
	work := job("work", "web@1", 1)
	work["priority"] = "high"
	w.want(200, "POST", "/v1/apply", manifestsOf("Job", work))
	if e, _ := w.tables.Snapshot().Job("default", "work"); e.Value.Priority != 650 {
		t.Errorf("high: priority %d", e.Value.Priority)
	}
	none := job("none", "web@1", 0)
	if got := w.call("POST", "/v1/apply", manifestsOf("Job", none)); !strings.Contains(got.faults(),
		"steps[0].count: is 0, want a number from 1 to 100000; without the field it is 1") {
		t.Errorf("step of no tasks: status %d: %s", got.status, got.body)
	}
	work["priority"] = 0
	if got := w.call("POST", "/v1/apply", manifestsOf("Job", work)); got.status < 400 ||
		!strings.Contains(got.faults(), "priority: "+want) {
		t.Errorf("job: status %d: %s", got.status, got.body)
	}
}

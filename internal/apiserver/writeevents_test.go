package apiserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestWritesAreReported checks that every write of a user has an event, in order, and that a write without a change has
// none.
func TestWritesAreReported(t *testing.T) {
	w := newWorld(t)
	definition := api.TaskDefinition{
		Name: "d", Version: 1,
		Containers: []cluster.Container{{Name: "main", Command: []string{"true"}}},
	}
	service := api.Service{Name: "web", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 2}
	for range 2 {
		if r := w.call("PUT", "/v1/definitions/d/1", definition); r.status > 201 {
			t.Fatalf("put the definition: %d %s", r.status, r.body)
		}
		if r := w.call("PUT", "/v1/clusters/default/services/web", service); r.status > 201 {
			t.Fatalf("put the service: %d %s", r.status, r.body)
		}
	}
	w.call("POST", "/v1/clusters/default/services/web/scale", api.ScaleRequest{Count: new(3)})
	w.call("DELETE", "/v1/clusters/default/services/web", nil)

	var got []string
	for b := range w.tables.Snapshot().EventBatches() {
		for _, e := range b.Value.Events {
			got = append(got, e.Type+": "+e.Message)
		}
	}
	want := []string{
		"definition.created: d@1",
		"cluster.created: ",
		"service.created: 2 tasks of d@1",
		"service.updated: 3 tasks of d@1",
		"service.deleted: the user deleted it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

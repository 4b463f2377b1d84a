package draft

import (
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
)

// FuzzDecode checks that no text makes the decoder panic, and that an accepted text fits the object.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"objects": [{"kind": "Service", "spec": {"name": "web", "definition": "web@1", "count": 3}}]}`,
		`{"objects": [{"kind": "TaskDefinition", "spec": {"name": "web", "version": 1, "containers": [{"name": "a", "image": "b", "resources": {"cpu": "0.5", "memory": "1GiB"}}]}}], "dry_run": true}`,
		`{"objects": [{"kind": "Job", "spec": {"steps": [{"name": "a", "definition": "b", "time_limit": "5m"}]}}]}`,
		`{"objects": [[[[{"a": "\ud800"}]]]]}`, `{"a": 1e309, "a": -0}`, "\xff", `{`, `"`, `{"a"`, `nul`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var ask api.ApplyRequest
		faults, err := strictjson.Decode(text, &ask)
		if err != nil {
			if p := respond.ProblemOf(err); p.Status != 400 {
				t.Errorf("status %d: %v", p.Status, err)
			}
			return
		}
		if len(faults) > 0 {
			return
		}
		set, faults := Manifests(ask.Objects)
		if len(faults) == 0 && len(set) != len(ask.Objects) {
			t.Errorf("%d objects, %d read", len(ask.Objects), len(set))
		}
	})
}

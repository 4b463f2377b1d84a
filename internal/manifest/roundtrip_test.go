package manifest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestRoundTrip writes objects as JSON and reads them back with both readers. A leading document marker selects the
// YAML reader.
func TestRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[ -~é\n]{0,12}`)
	name := rapid.StringMatching(`[a-z][a-z0-9]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		want := cluster.TaskDefinition{
			Name: name.Draw(t, "name"), Version: rapid.IntRange(1, 9).Draw(t, "version"),
			Grace: cluster.Duration(rapid.Int64Range(0, 1e12).Draw(t, "grace")),
			Disk:  cluster.Bytes(rapid.Int64Range(0, 1e12).Draw(t, "disk")),
			Containers: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) cluster.Container {
				return cluster.Container{
					Name:      name.Draw(t, "container"),
					Command:   rapid.SliceOfN(text, 1, 3).Draw(t, "command"),
					Env:       rapid.MapOfN(rapid.StringMatching(`[A-Z]{1,3}`), text, 1, 3).Draw(t, "env"),
					Files:     []cluster.File{{Path: "/a", Content: text.Draw(t, "content")}},
					Init:      rapid.Bool().Draw(t, "init"),
					Resources: cluster.Resources{CPU: cluster.MilliCPU(rapid.IntRange(0, 9999).Draw(t, "cpu"))},
				}
			}), 1, 3).Draw(t, "containers"),
		}
		raw, err := json.Marshal(struct {
			Kind cluster.Kind `json:"kind"`
			cluster.TaskDefinition
		}{cluster.KindTaskDefinition, want})
		if err != nil {
			t.Fatal(err)
		}
		for form, data := range map[string][]byte{"JSON": raw, "YAML": append([]byte("---\n"), raw...)} {
			r := reader{file: "m"}
			r.read(data)
			if len(r.objects) != 1 {
				t.Fatalf("%s: got %d objects, faults %v:\n%s", form, len(r.objects), r.faults, data)
			}
			for _, f := range r.faults { // validation faults are not the reader's
				if bytes.Contains([]byte(f.Message), []byte("found")) {
					t.Fatalf("%s: %v:\n%s", form, f, data)
				}
			}
			got, ok := r.objects[0].Value.(*cluster.TaskDefinition)
			if !ok {
				t.Fatalf("%s: got a %T", form, r.objects[0].Value)
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Fatalf("%s (-want +got):\n%s\n%s", form, diff, data)
			}
		}
	})
}

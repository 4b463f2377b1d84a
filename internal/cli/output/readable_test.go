package output

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// TestReadable checks that sizes and durations have their short forms, that all else stays, and that both forms mean
// the same.
func TestReadable(t *testing.T) {
	def := cluster.TaskDefinition{
		Name: "web", Version: 1, Grace: cluster.Duration(time.Hour),
		Containers: []cluster.Container{{
			Name: "app", Image: "web:1", Env: map[string]string{"SIZE": "33554432", "WAIT": "1h0m0s"},
			Resources: cluster.Resources{CPU: 500, Memory: 32 * cluster.MiB},
		}},
	}
	got, err := Readable(struct {
		Kind cluster.Kind `json:"kind"`
		cluster.TaskDefinition
	}{cluster.KindTaskDefinition, def})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"kind":"TaskDefinition"`, `"env":{"SIZE":"33554432","WAIT":"1h0m0s"}`, `"cpu":"500m"`, `"memory":"32MiB"`,
		`"grace":"1h"`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
	var back cluster.TaskDefinition
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, def) {
		t.Errorf("read again (-want +got):\n%s", cmp.Diff(def, back))
	}
}

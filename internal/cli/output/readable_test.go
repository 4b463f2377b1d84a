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

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{ // order-free: each duration is a case of its own
		0: "0s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 90 * time.Second: "1m30s",
		time.Hour + time.Second: "1h0m1s", 20 * time.Second: "20s", 250 * time.Millisecond: "250ms", -time.Hour: "-1h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

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

package apply

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
)

// TestStarters checks that each manifest to begin with is valid and of its kind.
func TestStarters(t *testing.T) {
	kinds := map[string]cluster.Kind{
		"service": cluster.KindService, "job": cluster.KindJob, "cron": cluster.KindCron,
	}
	for _, word := range starterKinds() {
		text, err := starters.ReadFile(starterFiles()[word])
		if err != nil {
			t.Fatal(err)
		}
		objects, err := manifest.Parse(word, text)
		if err != nil || len(objects) != 1 || objects[0].Kind != kinds[word] {
			t.Errorf("%s: %d objects, %v", word, len(objects), err)
		}
	}
}

// TestDownOrder checks what down removes, and in which order.
func TestDownOrder(t *testing.T) {
	objects, err := manifest.Parse("m", []byte(`
kind: Cluster
name: shop
---
kind: Job
cluster: shop
name: j
steps: [{name: a, definition: d@1}]
---
kind: Service
cluster: shop
name: s
definition: d@1
count: 1
---
kind: Cron
cluster: shop
name: c
schedules: ["@daily"]
job: {steps: [{name: a, definition: d@1}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	remove, stay := removable(objects)
	var got []string
	for _, n := range append(remove, stay...) {
		got = append(got, n.String())
	}
	want := []string{"shop/cron/c", "shop/service/s", "shop/job/j", "cluster/shop"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

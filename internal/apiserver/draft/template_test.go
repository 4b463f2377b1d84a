package draft

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// benchDefinition is a definition of usual size.
func benchDefinition(version int) *cluster.TaskDefinition {
	d := &cluster.TaskDefinition{Name: "web", Version: version, Ports: []cluster.Port{{Name: "http"}}}
	for i := range 2 {
		c := cluster.Container{
			Name: fmt.Sprintf("c%d", i), Image: fmt.Sprintf("registry.example/app:%d", version),
			Command: []string{"serve", "--port", "$(PORT)"}, Env: map[string]string{},
			Resources: cluster.Resources{CPU: 500, Memory: 256 << 20},
		}
		for k := range 20 {
			c.Env[fmt.Sprintf("NAME_%d", k)] = fmt.Sprintf("value %d", k)
		}
		d.Containers = append(d.Containers, c)
	}
	return d
}

// BenchmarkNewContent compares a new definition with the 100 versions that SameVersion looks at.
func BenchmarkNewContent(b *testing.B) {
	var versions []*cluster.TaskDefinition
	for v := range maxCompared {
		versions = append(versions, benchDefinition(v+1))
	}
	def := benchDefinition(maxCompared + 1)
	for b.Loop() {
		wanted := contentOf(def)
		for _, old := range versions {
			if bytes.Equal(contentOf(old), wanted) {
				b.Fatal("the same")
			}
		}
	}
}

// TestContentOf checks that the content of a version decides nothing that sameContent decides otherwise.
func TestContentOf(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(old, def *cluster.TaskDefinition)
		same   bool
	}{
		{"version", func(_, def *cluster.TaskDefinition) { def.Version = 0 }, true},
		{"notes of the server", func(old, _ *cluster.TaskDefinition) { old.Inline = true }, true},
		{"pinned by the server", func(old, _ *cluster.TaskDefinition) { old.Containers[1].Digest = "sha256:a" }, true},
		{"pinned by the user", func(old, def *cluster.TaskDefinition) {
			old.Containers[1].Digest, def.Containers[1].Digest = "sha256:a", "sha256:a"
		}, true},
		{"pinned otherwise", func(old, def *cluster.TaskDefinition) {
			old.Containers[1].Digest, def.Containers[1].Digest = "sha256:a", "sha256:b"
		}, false},
		{"image", func(_, def *cluster.TaskDefinition) { def.Containers[0].Image += "x" }, false},
		{"variable", func(_, def *cluster.TaskDefinition) { def.Containers[0].Env["NAME_1"] = "x" }, false},
		{"order", func(_, def *cluster.TaskDefinition) { slices.Reverse(def.Containers) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			old, def := benchDefinition(1), benchDefinition(1)
			test.change(old, def)
			if got := sameContent(old, def); got != test.same {
				t.Errorf("the same content: %t, want %t", got, test.same)
			}
			if test.same && !bytes.Equal(contentOf(old), contentOf(def)) {
				t.Error("the contents differ, so the version is not found")
			}
		})
	}
}

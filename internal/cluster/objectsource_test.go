package cluster_test

import (
	"slices"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestObjectsNeedANodeWithAnObjectStore checks that an artifact or an image of an object store asks for a node that has
// one, and that other definitions do not.
func TestObjectsNeedANodeWithAnObjectStore(t *testing.T) {
	t.Parallel()
	store := cluster.Constraint{Attribute: "label." + cluster.LabelObjectStore, Op: cluster.OpEqual, Value: "true"}
	for name, test := range map[string]struct {
		container cluster.Container
		want      bool
	}{
		"an image":    {cluster.Container{ImageSource: cluster.ImageSource{Source: "s3://bucket/web.tar"}}, true},
		"an artifact": {cluster.Container{Artifacts: []cluster.Artifact{{Source: "s3://bucket/tool"}}}, true},
		"another one": {cluster.Container{Artifacts: []cluster.Artifact{{Source: "https://s3.example/tool"}}}, false},
		"no artifact": {cluster.Container{}, false},
	} {
		d := cluster.TaskDefinition{Containers: []cluster.Container{test.container}}
		if got := slices.ContainsFunc(d.Needs(), func(c cluster.Constraint) bool {
			return c.Attribute == store.Attribute && c.Op == store.Op && c.Value == store.Value
		}); got != test.want {
			t.Errorf("%s: it needs an object store: %v, want %v", name, got, test.want)
		}
	}
	with, without := cluster.Facts{ObjectStore: true}, cluster.Facts{}
	if with.CapabilityLabels()[cluster.LabelObjectStore] != "true" ||
		without.CapabilityLabels()[cluster.LabelObjectStore] != "" {
		t.Error("the label does not follow the fact of the node")
	}
}

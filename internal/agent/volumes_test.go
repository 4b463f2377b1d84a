package agent

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// A pinned volume is reported as soon as it is made, also after a restart of the agent, until a definition no longer
// pins it.
func TestVolumesThatPinAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		want := func(when string, keys ...string) {
			t.Helper()
			if sent := w.reportedFacts(); !slices.Equal(sent.Volumes, keys) {
				t.Errorf("%s: the server knows of %q, want %q", when, sent.Volumes, keys)
			}
		}
		def := definition("db", "app")
		def.Volumes = []cluster.Volume{{Name: "data", Pin: true}, {Name: "cache"}, {Name: "etc", Host: t.TempDir()}}
		d := w.service("s1", def)
		w.want("s1", cluster.StateRunning, "")
		want("once it is made", "default/web/data")
		w.restart()
		want("by the next agent", "default/web/data")
		w.stopTask(d, true)
		want("after the end of the task", "default/web/data")

		free := definition("db", "app")
		free.Version, free.Volumes = 2, []cluster.Volume{{Name: "data"}}
		second := w.desired("s2", free, cluster.KindService)
		second.Attempt = 2
		w.assign(second, free)
		want("once it keeps them no more")
		if marks, _ := filepath.Glob(filepath.Join(w.dir, "volumes/*/*/.*.pinned")); len(marks) != 0 {
			t.Errorf("there are still %q", marks)
		}
		if found, _ := filepath.Glob(filepath.Join(w.dir, "volumes/default/web/[a-z]*")); len(found) != 2 {
			t.Errorf("the volumes are %q", found)
		}
	})
}

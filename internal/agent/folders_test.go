package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// The facts contain the lent folders that exist. A task that would write to a read-only one is rejected.
func TestHostVolumesAreLent(t *testing.T) {
	models := t.TempDir()
	inWorld(t, func(w *world) {
		w.hostVolumes = []volumes.HostVolume{
			{Name: "models", Path: models, ReadOnly: true},
			{Name: "gone", Path: filepath.Join(models, "none")},
		}
		w.hostPaths = []string{"/srv"}
		w.restart()
		folders := w.agent.machine.Facts().Folders
		if folders == nil || len(folders.HostVolumes) != 1 ||
			folders.HostVolumes[0] != (cluster.HostVolume{Name: "models", ReadOnly: true}) ||
			folders.Paths[0] != "/srv" {
			t.Errorf("reported folders %+v", folders)
		}
		def := definition("reader", "app")
		def.Volumes = []cluster.Volume{{Name: "m", HostVolume: "models"}}
		def.Containers[0].Mounts = []cluster.Mount{{Volume: "m", Path: "/m", ReadOnly: true}}
		w.service("s1", def)
		w.want("s1", cluster.StateRunning, "")
		if dir, readOnly, err := w.agent.volumes.Folders.Dir(&cluster.Desired{}, &def.Volumes[0]); !readOnly ||
			err != nil ||
			filepath.Base(dir) != filepath.Base(models) {
			t.Errorf("the volume is %s, read-only %v, %v", dir, readOnly, err)
		}
		writer := definition("writer", "app")
		writer.Volumes = def.Volumes
		writer.Containers[0].Mounts = []cluster.Mount{{Volume: "m", Path: "/m"}}
		d := w.desired("s2", writer, cluster.KindService)
		d.Task = "default.web.1.1"
		w.assign(d, writer)
		w.want("s2", cluster.StateRejected, cluster.ReasonPrepare)
	})
}

// Each index has its own folder, which is reported with its last placement. Its use is known until it is removed, after
// its last user has ended.
func TestVolumesAreListedAndRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("db", "app")
		def.Volumes = []cluster.Volume{{Name: "own", Sticky: true, Pin: true}, {Name: "all"}}
		d := w.desired("s1", def, cluster.KindService)
		d.Placed, d.Plan = time.Now().Add(-time.Minute), 7
		w.assign(d, def)
		w.want("s1", cluster.StateRunning, "")
		folders := w.reportedFacts().Folders
		if folders == nil || len(folders.Sticky) != 1 || folders.Sticky[0].Key != "default/web/own.0" ||
			!folders.Sticky[0].Placed.Equal(d.Placed) {
			t.Errorf("the server received %+v", folders)
		}
		if c := folders.Sticky[0]; c.Plan != 7 || c.Incarnation != 1 {
			t.Errorf("the copy is of plan %d of incarnation %d, want 7 of 1", c.Plan, c.Incarnation)
		}
		if keys := w.reportedFacts().Volumes; len(keys) != 1 || keys[0] != "default/web/own.0" {
			t.Errorf("the server received %q, which pin", keys)
		}
		own := filepath.Join(w.dir, "volumes/default/web/own.0")
		if err := os.WriteFile(filepath.Join(own, "bulk"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * countEvery)
		list, err := w.agent.sessions.streams.Volumes.Answer(transport.StreamRequest{Kind: transport.StreamVolumeList})
		all, ok := list.([]transport.Volume)
		if err != nil || !ok {
			t.Fatalf("the list is %v, %v", list, err)
		}
		if len(all) != 2 || all[1].Key != "default/web/own.0" || all[1].Used < cluster.MiB || all[1].Size == 0 ||
			len(all[1].By) != 1 || !all[1].Sticky || !all[1].Pin || all[0].Sticky {
			t.Errorf("the volumes are %+v", all)
		}
		remove := func(key string) error {
			_, err := w.agent.sessions.streams.Volumes.Answer(
				transport.StreamRequest{Kind: transport.StreamVolumeRemove, Volume: key})
			return err
		}
		if err := remove("default/web/own.0"); err == nil ||
			!strings.Contains(err.Error(), "in use by task "+string(d.Task)) {
			t.Errorf("removal of what is in use: %v", err)
		}
		if err := remove("default/web/none"); err == nil {
			t.Error("removal of what is not there is no error")
		}
		w.stopTask(d, true)
		v, err := w.agent.sessions.streams.Volumes.Answer(
			transport.StreamRequest{Kind: transport.StreamVolumeRemove, Volume: "default/web/own.0"})
		if removed, ok := v.([]transport.Volume); err != nil || !ok || len(removed) != 1 || removed[0].Last != d.Task {
			t.Errorf("removed %+v, %v", v, err)
		}
		w.pass(time.Minute)
		if left, _ := filepath.Glob(filepath.Join(w.dir, "volumes/default/web/.*own.0*")); len(left) > 0 {
			t.Errorf("there are %q", left)
		}
		if left, _ := os.ReadDir(filepath.Join(w.dir, "volumes/.removed")); len(left) > 0 {
			t.Errorf("%d removed volumes are left", len(left))
		}
		if f := w.reportedFacts(); len(f.Folders.Sticky)+len(f.Volumes) > 0 {
			t.Errorf("the server still knows of %+v, %q", f.Folders, f.Volumes)
		}

		// The next run of the agent removes what a crash left.
		bin := filepath.Join(filepath.Join(w.dir, "volumes/.removed"), "x/deep")
		if err := os.MkdirAll(bin, 0o700); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.pass(time.Second)
		if _, err := os.Stat(bin); err == nil {
			t.Error("a volume that was removed by half is there")
		}
	})
}

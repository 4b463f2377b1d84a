package etcd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/berthd/berth/internal/store/etcd/etcdtest"
)

// TestWatchNotesThatEtcdWentBack gives an external etcd a former copy of its data while an engine is open. The watch
// gets a resync without the later record, which says that the data went back.
func TestWatchNotesThatEtcdWentBack(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t, nil)
	e := dialAs(t, reaching(s))
	if err := write(t.Context(), e, "berth/kept"); err != nil {
		t.Fatal(err)
	}
	former := filepath.Join(t.TempDir(), "former")
	s.Restart(func(c *embed.Config) {
		if err := os.CopyFS(former, os.DirFS(c.Dir)); err != nil {
			t.Fatal(err)
		}
	})
	limited := shortly(t, time.Minute)
	for i := 0; i < 10; { // enough that the new writes after the restore do not reach the watch's position
		if err := write(limited, e, "berth/later"); err == nil {
			i++
		} else if limited.Err() != nil {
			t.Fatal(err)
		}
	}
	watch := e.Watch(t.Context(), "berth/", 0)
	defer watch.Close()
	if b, err := watch.Next(limited); err != nil || len(b.Changes) != 2 || b.WentBack {
		t.Fatalf("first batch: got %+v, error %v", b, err)
	}
	s.Restart(func(c *embed.Config) {
		if err := os.RemoveAll(c.Dir); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(c.Dir, os.DirFS(former)); err != nil {
			t.Fatal(err)
		}
	})
	for {
		b, err := watch.Next(limited)
		if err != nil {
			t.Fatalf("no batch says that the store went back: %v", err)
		}
		if b.WentBack {
			if len(b.Changes) != 1 || b.Changes[0].Key != "berth/kept" {
				t.Errorf("the batch has %+v, want the record that is left", b.Changes)
			}
			return
		}
	}
}

package controlplane_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// A node's sweep is published once, whoever leads, and so is the beginning of a full disk. A long list of long names is
// clipped.
func TestSweepsAreReportedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var stats atomic.Pointer[cluster.NodeStats]
		stats.Store(&cluster.NodeStats{})
		sweep := &cluster.DiskSweep{At: time.Now(), Folder: "/images", Before: 90, After: 74, Images: 20}
		for range 50 {
			sweep.Names = append(sweep.Names, strings.Repeat("x", 5000))
		}
		stats.Store(&cluster.NodeStats{Sweep: sweep})
		w.node("n1", func(a *agent) {
			a.stats = func() *cluster.NodeStats {
				s := *stats.Load()
				s.At = time.Now()
				return &s
			}
		})
		published := func(kind string, n int) func(*store.Snapshot) bool {
			return func(s *store.Snapshot) bool { return eventCounts(s)[kind] == n }
		}
		w.until(time.Minute, "a sweep is published", published("node.disk-freed", 1))
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		w.server.stop()
		w.start()
		time.Sleep(2 * time.Minute) // in-bubble: inWorld makes one
		w.until(time.Minute, "no more after a change of leaders", published("node.disk-freed", 1))
		next := *sweep
		next.At, next.Names = time.Now(), []string{"a:1"}
		stats.Store(&cluster.NodeStats{Sweep: &next, DiskFull: &cluster.DiskFull{Since: time.Now(), Message: "full"}})
		w.until(time.Minute, "the next", published("node.disk-freed", 2))
		w.until(time.Minute, "the full disk", published("node.disk-full", 1))
		for b := range w.server.tables.Snapshot().EventBatches() {
			for _, e := range b.Value.Events {
				if strings.HasPrefix(e.Type, "node.disk-") &&
					(len(e.Message) > 3000 || e.Node != "n1" || e.Reason != cluster.ReasonShortDisk) {
					t.Errorf("event %s of %s for %s has %d bytes", e.Type, e.Node, e.Reason, len(e.Message))
				}
			}
		}
	})
}

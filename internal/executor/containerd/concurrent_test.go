package containerd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/testkit"
)

// TestConcurrentCreation makes more containers concurrently than may be created at a time. The limit is kept, the
// others report that they wait, and all start.
func TestConcurrentCreation(t *testing.T) {
	t.Parallel()
	const count, most = 12, 3
	n := newNode(t)
	ex := n.life(t, func(c *containerd.Config) { c.AtOnce = most })
	dir := t.TempDir()
	var mu sync.Mutex
	begun, highest, waited := 0, 0, 0
	var all sync.WaitGroup
	ids := make([]executor.ID, count)
	for i := range count {
		ids[i] = executor.ID(fmt.Sprintf("many-%d", i))
		spec := executor.Spec{
			ID: ids[i], Dir: filepath.Join(dir, string(ids[i])), LogDir: filepath.Join(dir, string(ids[i]), "logs"),
			Container: cluster.Container{
				Name: "main", Image: busyboxImage, Pull: cluster.PullNever,
				Command: []string{"sleep", "1000"},
			},
		}
		if err := os.MkdirAll(spec.LogDir, 0o700); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			err := ex.Prepare(t.Context(), spec, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				switch what {
				case "creating the container":
					now := ex.Creating()
					if begun++; now == 0 {
						t.Errorf("%s is created out of turn", spec.ID)
					}
					highest = max(highest, now)
				case "waiting until fewer containers are being created":
					waited++
				}
			})
			if err == nil {
				_, err = ex.Start(t.Context(), spec.ID)
			}
			if err != nil {
				t.Errorf("%s: %v", spec.ID, err)
			}
		})
	}
	t.Cleanup(func() {
		ctx, cancel := testkit.WithLimit(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		for _, id := range ids {
			if err := ex.Remove(ctx, id); err != nil {
				t.Errorf("remove %s: %v", id, err)
			}
		}
	})
	all.Wait()
	if begun != count || highest > most || highest < 2 || waited < count-most-2 {
		t.Errorf("of %d containers %d were created concurrently and %d waited, want %d at most and the others waiting",
			begun, highest, waited, most)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		list, err := ex.List(t.Context())
		if err != nil {
			return err
		}
		for _, s := range list {
			if s.State != executor.StateRunning {
				return fmt.Errorf("%s is %s", s.ID, s.State)
			}
		}
		if len(list) != count {
			return fmt.Errorf("%d containers are there", len(list))
		}
		return nil
	})
}

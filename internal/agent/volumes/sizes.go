package volumes

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/diskuse"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

// Intervals between two counts of a volume's use. minCountInterval is the shortest, maxCountInterval the longest. In
// between, countPauseFactor keeps counting to a twentieth of the time. If a user requests the volumes and the count
// takes less than quickCountTime, requestedCountInterval is enough. The volumes are checked every volumeCheckInterval.
const (
	volumeCheckInterval    = 5 * time.Second
	requestedCountInterval = 5 * time.Second
	minCountInterval       = 30 * time.Second
	maxCountInterval       = time.Hour
	quickCountTime         = time.Second
	countPauseFactor       = 20
)

// Sizes counts the use of the volumes that the agent keeps. One goroutine counts; all others may read.
type Sizes struct {
	Node  *node.Node
	Store *Store

	wanted chan struct{} // capacity 1: a user waits for a count

	mu    sync.Mutex
	known map[string]volumeSize // by folder
	asked time.Duration         // when a user last asked (Boot), 0 for never
}

// volumeSize is the newest count of a volume's folder.
type volumeSize struct {
	used, size, free cluster.Bytes
	at               time.Time
	due              time.Duration // Boot
	quick            bool
	problem          string
}

// Begin prepares for a run of the agent.
func (s *Sizes) Begin() {
	s.known, s.wanted = map[string]volumeSize{}, make(chan struct{}, 1)
}

func (s *Sizes) of(dir string) (volumeSize, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	z, ok := s.known[dir]
	return z, ok
}

// ask makes the next count come soon, for a user who requests the volumes.
func (s *Sizes) ask() {
	s.mu.Lock()
	s.asked = s.Node.Boot()
	s.mu.Unlock()
	node.Nudge(s.wanted)
}

// Watch completes the removals that an earlier run of the agent left unfinished, and counts the use of volumes, one
// after the other, until ctx ends.
func (s *Sizes) Watch(ctx context.Context) {
	s.Store.emptyBin()
	for {
		s.count(ctx)
		if _, err := pause.Until(ctx, s.wanted, volumeCheckInterval); err != nil {
			return
		}
	}
}

// count counts the use of the volumes that are due.
func (s *Sizes) count(ctx context.Context) {
	all := s.Store.kept()
	there := make(map[string]bool, len(all))
	for i := range all {
		dir := all[i].dir
		there[dir] = true
		z, _ := s.of(dir)
		began := s.Node.Boot()
		s.mu.Lock()
		asked := s.asked
		s.mu.Unlock()
		wanted := z.quick && asked != 0 && asked > z.due-minCountInterval+requestedCountInterval
		if began < z.due && !wanted {
			continue
		}
		use, err := diskuse.Count(ctx, dir)
		if ctx.Err() != nil {
			return
		}
		now, problem := s.Node.Boot(), ""
		if err == nil {
			z.used, z.at = use.Bytes, time.Now()
			z.size, z.free, err = diskuse.Room(dir)
		}
		if err != nil {
			if problem = err.Error(); problem != z.problem {
				s.Node.Logger.Info("the use of a volume cannot be counted", "volume", dir, "error", err)
			}
		}
		took := now - began
		z.problem, z.quick = problem, took < quickCountTime
		z.due = now + min(max(countPauseFactor*took, minCountInterval), maxCountInterval)
		s.mu.Lock()
		s.known[dir] = z
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir := range s.known { // order-free: volumes are independent
		if !there[dir] {
			delete(s.known, dir)
		}
	}
}

// Use returns the use of the attempt's volumes that the agent keeps, or before if that is the same; nil if it has
// none.
func (s *Sizes) Use(v *attempt.View, before *cluster.StorageUse) *cluster.StorageUse {
	if v.Definition == nil || s.Node.Volatile {
		return nil
	}
	var total cluster.StorageUse
	for i := range v.Definition.Volumes {
		volume := &v.Definition.Volumes[i]
		if !volume.Kept() {
			continue
		}
		dir, _, err := s.Store.Folders.Dir(&v.Record.Desired, volume)
		if found, ok := s.of(dir); ok && err == nil {
			total.Volumes = append(total.Volumes,
				cluster.VolumeUse{
					Name: volume.Name, Used: found.used, Size: found.size, Free: found.free,
					At: found.at,
				})
		}
	}
	switch {
	case len(total.Volumes) == 0:
		return nil
	case before != nil && slices.Equal(total.Volumes, before.Volumes):
		return before
	}
	return &total
}

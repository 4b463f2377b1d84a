package consul

import (
	"context"
	"strings"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

const (
	// upkeepInterval is the time between two looks for writers that are gone.
	upkeepInterval = 10 * time.Minute
	// idleLimit is the time without a commit after which a writer counts as gone. One that was only idle begins again.
	idleLimit = time.Hour
	// maxRemovals is the number of writers that are removed in one transaction.
	maxRemovals = 20
)

// seenWriter is when a writer was first seen with its present head.
type seenWriter struct {
	index uint64
	since time.Time
}

// Run is part of store.ServerEngine. It removes the log of writers that are gone.
func (e *Engine) Run(ctx context.Context) error {
	seen := map[string]seenWriter{}
	for {
		if ended, err := pause.Until(ctx, e.lifetime.Done(), upkeepInterval); ended {
			return store.ErrClosed
		} else if err != nil {
			return err
		}
		present, err := e.readHeads(ctx)
		if err == nil {
			if gone := idleWriters(seen, present, time.Now()); len(gone) > 0 {
				err = e.removeWriters(ctx, present, gone)
			}
		}
		if err != nil && e.checkOpen(ctx) == nil {
			e.config.Log.Warn("the log of changes in consul was not cleaned up", "retry_after", upkeepInterval,
				"error", err)
		}
	}
}

// idleWriters returns the writers without a commit since idleLimit, and notes when the others were seen first.
func idleWriters(seen map[string]seenWriter, present heads, now time.Time) []string {
	for writer := range seen { // order-free: each by itself
		if _, exists := present.writers[writer]; !exists {
			delete(seen, writer)
		}
	}
	var idle []string
	for writer, h := range present.writers { // order-free: the rest has its turn later
		if s, known := seen[writer]; !known || s.index != h.index {
			seen[writer] = seenWriter{h.index, now}
		} else if now.Sub(s.since) > idleLimit && len(idle) < maxRemovals {
			idle = append(idle, writer)
		}
	}
	return idle
}

// isFull reports whether an error of Consul says that its disk is full.
func isFull(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no space left on device")
}

// Package snapshot gives snapshots of the tables that are as recent as a request requires.
package snapshot

import (
	"context"
	"net/http"
	"time"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/store"
)

// readTimeout bounds the wait of a consistent read.
const readTimeout = 15 * time.Second

// Reader returns snapshots that are as recent as a request requires. Safe for concurrent use.
type Reader struct {
	Tables Tables
	// SyncWait is how long a request waits until the tables have read the store.
	SyncWait time.Duration
}

// NewReader returns a reader of the tables.
func NewReader(tables Tables) *Reader {
	return &Reader{Tables: tables, SyncWait: readTimeout}
}

// ForRequest returns the snapshot for a read. That is this server's present tables or, with ?consistent, tables that
// hold a linearizable read of the engine (P2.3).
func (s *Reader) ForRequest(r *http.Request) (*store.Snapshot, error) {
	if !route.Flag(r, "consistent") {
		return s.Tables.Snapshot(), nil
	}
	return s.Settled(r.Context())
}

// Settled returns a snapshot that holds all writes, on any server, before the call (P2.3).
func (s *Reader) Settled(ctx context.Context) (*store.Snapshot, error) {
	wait, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	snap, err := s.Tables.Settled(wait)
	if err != nil && ctx.Err() == nil && wait.Err() != nil {
		return nil, respond.Problemf(http.StatusServiceUnavailable,
			"the store did not answer within %s, or this server's tables are behind it by more: ask again, "+
				"or another server", readTimeout)
	}
	return snap, err
}

// Reached returns once the tables are not older than an index that a client got from any server. If the store itself
// went back behind the index, it returns as well.
func (s *Reader) Reached(ctx context.Context, index uint64, wait time.Duration) error {
	if snap := s.Tables.Snapshot(); snap.Revision() >= index {
		return nil
	}
	late, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := s.Tables.Settled(late)
	if err == nil {
		return nil
	}
	if snap := s.Tables.Snapshot(); snap.Revision() >= index {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return respond.Problemf(http.StatusServiceUnavailable,
		"this server is behind: it has not reached index %d, which you have seen, within %s. Ask again, or "+
			"another server", index, wait)
}

// Synced waits until the tables have read the store. Earlier answers would show an empty store.
func (s *Reader) Synced(ctx context.Context) error {
	select {
	case <-s.Tables.Synced():
		return nil
	default:
	}
	late := time.NewTimer(s.SyncWait)
	defer late.Stop()
	select {
	case <-s.Tables.Synced():
		return nil
	case <-late.C:
		return respond.Problemf(http.StatusServiceUnavailable,
			"the server has just started and is still reading its store: ask again in a moment, or another server")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CatchUpTimeout bounds the time until the tables reach a revision of the store.
const CatchUpTimeout = 10 * time.Second

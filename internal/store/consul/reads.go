package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/consulclient"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

// Read is part of store.Engine.
func (e *Engine) Read(ctx context.Context, key string) (store.Record, error) {
	records, err := e.ReadTogether(ctx, key)
	if err != nil {
		return store.Record{}, err
	}
	if records[0].Modified == 0 {
		return store.Record{}, fmt.Errorf("key %q: %w", key, store.ErrNotFound)
	}
	return records[0], nil
}

// ReadTogether is part of store.TogetherReader. It takes as many keys as a transaction of Consul has operations.
func (e *Engine) ReadTogether(ctx context.Context, keys ...string) ([]store.Record, error) {
	if len(keys) > maxOperations {
		return nil, fmt.Errorf("%d keys, at most %d: %w", len(keys), maxOperations, store.ErrTooLarge)
	}
	if len(keys) == 0 {
		return nil, e.checkOpen(ctx)
	}
	if err := checkKeys([]store.Group{{Compares: comparesOf(keys)}}); err != nil {
		return nil, err
	}
	ops := make(api.TxnOps, len(keys))
	for i, key := range keys {
		ops[i] = kvOp(api.KVGetOrEmpty, e.key(key))
	}
	results, errs, err := e.readTogether(ctx, ops)
	if err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("read from consul: %s: %w", errs[0].What, store.ErrUnavailable)
	}
	return e.recordsOf(results, len(keys))
}

func comparesOf(keys []string) []store.Compare {
	compares := make([]store.Compare, len(keys))
	for i, key := range keys {
		compares[i].Key = key
	}
	return compares
}

// recordsOf returns the records of the results of as many operations get-or-empty. A record that does not exist has
// Modified 0.
func (l changeLog) recordsOf(results api.TxnResults, count int) ([]store.Record, error) {
	if len(results) != count {
		return nil, l.denied(errFiltered)
	}
	records := make([]store.Record, count)
	for i, r := range results {
		if r.KV != nil && r.KV.CreateIndex > 0 {
			records[i] = l.record(r.KV)
		}
	}
	return records, nil
}

// List is part of store.Engine.
func (e *Engine) List(ctx context.Context, prefix string) (store.Listing, error) {
	listing, _, err := e.list(ctx, prefix)
	return listing, err
}

// list returns the records under a prefix, and the heads at the same state of Consul.
func (e *Engine) list(ctx context.Context, prefix string) (store.Listing, heads, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return store.Listing{}, heads{}, err
	}
	probe := prefix
	if probe == "" {
		probe = "berth/"
	}
	results, err := e.readTrees(ctx, e.key(probe)+"probe", e.key(prefix))
	if err != nil {
		return store.Listing{}, heads{}, err
	}
	var logged api.KVPairs
	listing, newest := store.Listing{Records: make([]store.Record, 0, len(results))}, uint64(0)
	for _, r := range results {
		switch {
		case !e.isOwn(r.KV.Key):
			listing.Records = append(listing.Records, e.record(r.KV))
			newest = max(newest, r.KV.ModifyIndex)
		case strings.HasPrefix(r.KV.Key, e.headKey("")):
			logged = append(logged, r.KV)
		}
	}
	at, err := e.headsOf(logged)
	if err != nil {
		return store.Listing{}, heads{}, err
	}
	if newest > at.revision { // another program wrote the newest record
		if err := e.lanes.announce(ctx); err != nil {
			return store.Listing{}, heads{}, err
		}
	}
	listing.Revision = max(newest, at.revision)
	return listing, at, nil
}

// readTrees reads the heads and the keys under a prefix together. Consul leaves out what the token may not read, so the
// transaction also reads two keys whose results cannot be missing otherwise.
func (l changeLog) readTrees(ctx context.Context, probe string, prefixes ...string) (api.TxnResults, error) {
	probes := []string{l.logKey("probe"), probe}
	var ops api.TxnOps
	for _, key := range probes {
		ops = append(ops, kvOp(api.KVGetOrEmpty, key))
	}
	for _, prefix := range append(prefixes, l.headKey("")) {
		ops = append(ops, kvOp(api.KVGetTree, prefix))
	}
	results, errs, err := l.readTogether(ctx, ops)
	switch {
	case err != nil:
		return nil, err
	case len(errs) > 0:
		return nil, fmt.Errorf("read from consul: %s: %w", errs[0].What, store.ErrUnavailable)
	case len(results) < len(probes) || results[0].KV.Key != probes[0] || results[1].KV.Key != probes[1]:
		return nil, l.denied(errFiltered)
	}
	return results[len(probes):], nil
}

// Revision is part of store.Engine. It covers the writes of all engines, and those of other programs once a listing or
// a watch has found them.
func (e *Engine) Revision(ctx context.Context, prefix string) (uint64, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	present, err := e.readHeads(ctx)
	if err != nil {
		return 0, err
	}
	return present.revision, nil
}

// Snapshot is part of store.Engine. It reads all records with one call.
func (e *Engine) Snapshot(ctx context.Context, prefix string, to io.Writer) error {
	listing, err := e.List(ctx, prefix)
	if err != nil {
		return err
	}
	return snapshotfile.Write(to, snapshotfile.NewHeader(prefix, listing.Revision), listing.Records)
}

// Health is part of store.ServerEngine. Consul says nothing about its disk.
func (e *Engine) Health(ctx context.Context) (store.EngineHealth, error) {
	if err := e.checkOpen(ctx); err != nil {
		return store.EngineHealth{}, err
	}
	brief, cancel := e.bound(ctx, time.Second)
	defer cancel()
	var h store.EngineHealth
	client, _ := e.client()
	h.Leader, _ = client.Status().LeaderWithQueryOptions(e.query(brief))
	h.Version, _ = consulclient.Version(client, e.query(brief))
	present, err := e.readHeads(brief)
	if err == nil {
		h.Quorum, h.Revision = true, present.revision
	}
	if open := e.checkOpen(ctx); open != nil {
		return store.EngineHealth{}, open
	}
	switch {
	case !h.Quorum:
		h.Reason = healthReason(e.readError(err))
	case e.noSpace.Load():
		h.Reason = store.ErrNoSpace.Error()
	}
	if e.limits.isRecent(time.Now()) {
		h.Alarms = append(h.Alarms, store.EngineAlarm{Name: store.AlarmLimited})
	}
	h.Writes = h.Reason == ""
	return h, nil
}

// healthReason says why a read failed.
func healthReason(err error) string {
	if denied, ok := errors.AsType[*store.DeniedError](err); ok {
		return denied.Advice()
	}
	return err.Error()
}

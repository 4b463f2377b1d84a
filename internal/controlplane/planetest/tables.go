// Package planetest has what the tests of the control plane's packages share.
package planetest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// Tables are tables over an engine in memory that a test writes.
type Tables struct {
	*store.Tables
	t      testing.TB
	engine store.Engine
}

// NewTables returns tables that follow their engine until the test ends.
func NewTables(t testing.TB) *Tables {
	t.Helper()
	v := &Tables{t: t, engine: memory.New(memory.Options{})}
	v.Tables = store.NewTables(store.TablesConfig{Engine: v.engine, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = v.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return v
}

// Put writes a record. The tables show it when Put returns.
func (v *Tables) Put(key string, record any) {
	v.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		v.t.Fatal(err)
	}
	v.Commit(store.Group{Ops: []store.Op{{Key: key, Value: value}}})
}

// Commit writes groups. The tables show what was written when Commit returns.
func (v *Tables) Commit(groups ...store.Group) {
	v.t.Helper()
	r, err := v.engine.Commit(v.t.Context(), groups)
	if err != nil {
		v.t.Fatal(err)
	}
	if _, err := v.WaitFor(v.t.Context(), r.Revision); err != nil {
		v.t.Fatal(err)
	}
}

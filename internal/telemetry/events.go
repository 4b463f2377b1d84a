package telemetry

import (
	"context"
	"log/slog"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Events writes the domain's events to the log, each with its task, node and cause. The events themselves are the
// record; the log serves readers without access to them.
type Events struct {
	tables *store.Tables
	leads  func() bool
	log    *slog.Logger
}

// NewEvents returns what Run then does. leads reports whether this server is to do so: one of several is enough.
func NewEvents(tables *store.Tables, leads func() bool, log *slog.Logger) *Events {
	return &Events{tables, leads, log}
}

// Run writes events until the context ends, and returns its error. It begins with the events after the tables first
// hold the whole store. Events that were trimmed before they were read are skipped.
func (e *Events) Run(ctx context.Context) error {
	follower := e.tables.Follow(store.TopicEvents)
	defer follower.Close()
	select {
	case <-e.tables.Synced():
	case <-ctx.Done():
		return ctx.Err()
	}
	last, some := e.tables.Snapshot().LastEvents()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-follower.Wake():
		}
		if c := follower.Take(); !c.Events && !c.Resync {
			continue
		}
		snap := e.tables.Snapshot()
		newest, ok := snap.LastEvents()
		if !ok {
			some = false
			continue
		}
		batches := snap.EventBatches()
		if some {
			batches = snap.EventBatchesAfter(last)
		}
		if e.leads() {
			for b := range batches {
				for i := range b.Value.Events {
					e.write(ctx, &b.Value.Events[i])
				}
			}
		}
		last, some = newest, true
	}
}

// usual are the suffixes of frequent events of normal operation.
var usual = []string{".assigned", ".running", ".healthy", ".succeeded", ".stopping", ".stopped", ".created", ".updated"}

// write logs one event: at level info if it is unusual or has a cause, else at level debug.
func (e *Events) write(ctx context.Context, event *cluster.Event) {
	level := slog.LevelInfo
	for _, u := range usual {
		if event.Reason == "" && strings.HasSuffix(event.Type, u) {
			level = slog.LevelDebug
		}
	}
	if !e.log.Enabled(ctx, level) {
		return
	}
	attributes := make([]slog.Attr, 0, 9)
	add := func(key, value string) {
		if value != "" {
			attributes = append(attributes, slog.String(key, value))
		}
	}
	add("type", event.Type)
	add("message", event.Message)
	if event.Owner != nil {
		add(KeyOwner, event.Owner.String())
	}
	add(KeyTask, string(event.Task))
	if event.Attempt != 0 {
		attributes = append(attributes, slog.Int(KeyAttempt, event.Attempt))
	}
	add(KeyNode, event.Node)
	add(KeyReason, string(event.Reason))
	add("by", event.By)
	if event.Count != 0 {
		attributes = append(attributes, slog.Int("count", event.Count))
	}
	e.log.LogAttrs(ctx, level, "event", attributes...)
}

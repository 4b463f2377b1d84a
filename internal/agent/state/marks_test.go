package state

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// Marks only rise, and the next run of the agent continues from the newest ones.
func TestMarksRise(t *testing.T) {
	t.Parallel()
	memory := &Memory{}
	store := OpenMemory(memory, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()

	low, high := cluster.Token{Generation: 1, Incarnation: 1, Epoch: 1}, cluster.Token{Generation: 1, Incarnation: 2}
	m := NewMarks(store, Mark{})
	m.Raise(high, 7)
	m.Raise(low, 0)
	m.RememberServers([]string{"a", "b"})
	m.RememberServers(nil)
	want := Mark{Token: high, Session: 7, Servers: []string{"a", "b"}}
	if diff := cmp.Diff(want, m.Current()); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
	if m.Session() != 7 {
		t.Errorf("the session is %d, want 7", m.Session())
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	saved, err := OpenMemory(memory, slog.New(slog.DiscardHandler)).Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, saved.Mark); diff != "" {
		t.Errorf("saved marks (-want +got):\n%s", diff)
	}
}

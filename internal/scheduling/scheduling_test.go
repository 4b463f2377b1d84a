package scheduling_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/scheduling"
	"github.com/berthd/berth/internal/testkit"
)

func newFeed(epoch uint64) *scheduling.Feed {
	return scheduling.NewFeed(epoch, func() time.Duration { return time.Hour }, func() {})
}

func texts(keys ...string) map[string][]byte {
	all := map[string][]byte{}
	for _, k := range keys {
		all[k] = []byte(k)
	}
	return all
}

func read(f *scheduling.Feed, since string) (reset bool, lines []string, revision string) {
	l := f.Read(since)
	for _, text := range l.Texts {
		lines = append(lines, string(text))
	}
	return l.Reset, lines, l.Revision
}

// TestFeedSendsWhatChanged publishes lines, and reads what changed since each revision.
func TestFeedSendsWhatChanged(t *testing.T) {
	f := newFeed(3)
	if reset, lines, revision := read(f, ""); reset || lines != nil || revision != "" {
		t.Errorf("before the first publication: %v, %v, %q", reset, lines, revision)
	}
	f.Publish(texts("b", "a"), nil)
	changed := f.Read("").Changed
	f.Publish(texts("a"), nil) // nothing changes
	select {
	case <-changed:
		t.Error("an equal publication wakes readers")
	default:
	}
	f.Publish(map[string][]byte{"a": []byte("a2")}, map[string][]byte{"b": []byte("-b"), "unknown": []byte("-unknown")})
	<-changed
	for _, test := range []struct {
		since string
		reset bool
		want  []string
	}{
		{"", true, []string{"a2"}},
		{"2-1", true, []string{"a2"}},
		{"3-9", true, []string{"a2"}},
		{"no", true, []string{"a2"}},
		{"3-1", false, []string{"a2", "-b"}},
		{"3-2", false, nil},
	} {
		reset, lines, revision := read(f, test.since)
		if reset != test.reset || !slices.Equal(lines, test.want) || revision != "3-2" {
			t.Errorf("since %q: %v, %v, %q", test.since, reset, lines, revision)
		}
	}
	f.Clear()
	f.Publish(texts("c"), nil)
	if reset, lines, _ := read(f, "3-2"); !reset || !slices.Equal(lines, []string{"c"}) {
		t.Errorf("after it was cleared: %v, %v", reset, lines)
	}
}

// TestFeedForgetsRemovals removes more lines than a feed remembers. A reader from before gets the whole state.
func TestFeedForgetsRemovals(t *testing.T) {
	f := newFeed(1)
	f.Publish(texts("stays"), nil)
	for i := range 10_001 {
		key := fmt.Sprint("gone-", i)
		f.Publish(texts(key), nil)
		f.Publish(nil, map[string][]byte{key: []byte("-" + key)})
	}
	if reset, lines, _ := read(f, "1-1"); !reset || !slices.Equal(lines, []string{"stays"}) {
		t.Errorf("an old reader gets %v, %d lines", reset, len(lines))
	}
	if reset, lines, _ := read(f, "1-20001"); reset || !slices.Equal(lines, []string{"-gone-9999", "-gone-10000"}) &&
		!slices.Equal(lines, []string{"-gone-10000"}) {
		t.Errorf("a recent reader gets %v, %v", reset, lines)
	}
}

// TestMailbox submits proposals to a leader that leads, that is busy, and that does not lead.
func TestMailbox(t *testing.T) {
	m := scheduling.NewMailbox()
	submit := func(ctx context.Context) error {
		_, err := m.Submit(ctx, &scheduling.Request{Proposal: &cluster.Proposal{}})
		return err
	}
	if err := submit(t.Context()); !errors.Is(err, scheduling.ErrNotLeading) {
		t.Errorf("without a leader: %v", err)
	}
	f := newFeed(1)
	m.Start(f)
	ended := make(chan error)
	for range 64 {
		go func() { ended <- submit(t.Context()) }()
	}
	testkit.Eventually(t, 10*time.Second, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it only shows whether there is room
		if err := submit(ctx); !errors.Is(err, scheduling.ErrBusy) {
			return fmt.Errorf("a full mailbox: %w", err)
		}
		return nil
	})
	m.End()
	refused := 0
	for range 64 {
		if err := <-ended; errors.Is(err, scheduling.ErrNotLeading) {
			refused++
		} else if !errors.Is(err, scheduling.ErrBusy) { // one that only tried had its place for a moment
			t.Errorf("at the end of the term: %v", err)
		}
	}
	if refused == 0 || !f.Read("").Ended || m.Feed() != nil {
		t.Errorf("%d proposals were refused, and the feed goes on", refused)
	}
}

// TestWithdrawnProposal has the client of a proposal go before the leader took the proposal, and afterwards.
func TestWithdrawnProposal(t *testing.T) {
	for _, taken := range []bool{false, true} {
		m := scheduling.NewMailbox()
		m.Start(newFeed(1))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := m.Submit(ctx, &scheduling.Request{Proposal: &cluster.Proposal{}})
			ended <- err
		}()
		<-m.Wake()
		var all []*scheduling.Request
		if taken {
			all = m.Take()
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("taken %v: the client got %v", taken, err)
		}
		if !taken {
			all = m.Take()
		}
		if got := len(all) == 1; got != taken {
			t.Errorf("taken %v: the leader has %d proposals", taken, len(all))
		}
		for _, r := range all {
			r.Answer(cluster.ProposalAnswer{}, nil) // nobody waits for it
		}
	}
}

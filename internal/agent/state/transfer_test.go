package state

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// A change of the owner takes the numbers of plans and the addresses of servers from the file, once for each change.
func TestTransfer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.db")
	fill := func(plan uint64, servers ...string) {
		t.Helper()
		s, stop := opened(t, path)
		saved, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		saved.Mark.Token, saved.Mark.Session = cluster.Token{Generation: 2, Incarnation: 7, Epoch: 3}, 9
		saved.Mark.Servers = servers
		s.QueueMark(saved.Mark)
		r := record("a")
		r.Desired.Plan, r.Round = plan, 4
		if err := <-s.CommitAttempt(r); err != nil {
			t.Fatal(err)
		}
		stop()
	}
	load := func() Saved {
		t.Helper()
		s, stop := opened(t, path)
		defer stop()
		saved, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	want := Mark{Token: cluster.Token{Generation: 2, Incarnation: 7, Epoch: 3}, Session: 9}
	for _, step := range []struct {
		number, plan uint64
		servers      []string
	}{
		{0, 57, []string{"unix:///old.sock"}}, // no change of the owner
		{1, 0, nil},
		{1, 58, []string{"https://s1:7071"}}, // as the owner of the first change has left it
		{2, 0, nil},
	} {
		fill(57+step.number, "unix:///old.sock")
		if step.number == 1 && step.plan == 58 {
			fill(58, "https://s1:7071")
		}
		if err := Transfer(path, step.number, quiet()); err != nil {
			t.Fatal(err)
		}
		got := load()
		want.Servers, want.Handover = step.servers, step.number
		if diff := cmp.Diff(want, got.Mark); diff != "" {
			t.Errorf("change %d: the mark (-want +got):\n%s", step.number, diff)
		}
		if r := got.Attempts[0]; r.Desired.Plan != step.plan || r.Round != 4 {
			t.Errorf("change %d: the attempt has the plan %d and the round %d, want %d and 4", step.number,
				r.Desired.Plan, r.Round, step.plan)
		}
	}
}

package backfill_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/berthd/berth/internal/logic/backfill"
)

func TestExpect(t *testing.T) {
	h := backfill.NewHistory(100)
	learn := func(owner, name, shape string, ran, limit int) {
		h.Learn(backfill.Ended{
			Kind: backfill.Kind{Owner: owner, Name: name, Shape: shape},
			Ran:  time.Duration(ran) * time.Minute, Limit: time.Duration(limit) * time.Minute,
		})
	}
	learn("ann", "build", "small", 50, 0)
	learn("ann", "build", "small", 10, 100)
	learn("ann", "build", "small", 20, 100)
	learn("ann", "build", "large", 40, 80)
	learn("ann", "test", "small", 3, 30)
	learn("bob", "", "", 7, 0)
	for _, c := range []struct {
		name, owner, job, shape string
		limit, want             int
	}{
		{"the last two of its kind", "ann", "build", "small", 0, 15},
		{"one of its kind", "ann", "build", "large", 0, 40},
		{"of its name", "ann", "build", "huge", 0, 30},
		{"of its owner", "ann", "deploy", "small", 0, 21}, // (40 + 3) / 2, and half a minute
		{"an owner without names", "bob", "x", "y", 0, 7},
		{"no history", "carl", "build", "small", 0, 0},
		{"no history, with a limit", "carl", "build", "small", 60, 60},
		{"the largest share of the limit", "ann", "deploy", "small", 60, 30},
		{"no shares known", "bob", "", "", 60, 60},
	} {
		got := h.Expect(backfill.Kind{Owner: c.owner, Name: c.job, Shape: c.shape}, time.Duration(c.limit)*time.Minute)
		if got.Truncate(time.Minute) != time.Duration(c.want)*time.Minute {
			t.Errorf("%s: expect %s, want %d min", c.name, got, c.want)
		}
	}
	for range 10 { // the larger share is forgotten
		learn("ann", "test", "small", 3, 30)
	}
	if got, want := h.Expect(backfill.Kind{Owner: "ann"}, time.Hour), 6*time.Minute; got != want {
		t.Errorf("after ten shorter ones: expect %s, want %s", got, want)
	}
	learn("ann", "test", "small", 60, 30) // the agent was late in stopping it
	if got, want := h.Expect(backfill.Kind{Owner: "ann"}, time.Hour), time.Hour; got != want {
		t.Errorf("after one that ran over: expect %s, want no more than the limit, %s", got, want)
	}
}

// TestForgetting: the memory is bounded, and groups in use stay.
func TestForgetting(t *testing.T) {
	h := backfill.NewHistory(30)
	kind := func(owner string) backfill.Kind { return backfill.Kind{Owner: owner, Name: "n", Shape: "s"} }
	known := func() (n int) {
		for i := range 1000 {
			if h.Expect(kind(fmt.Sprint(i)), 0) != 0 {
				n++
			}
		}
		return n
	}
	for i := range 1000 {
		h.Learn(backfill.Ended{Kind: kind(fmt.Sprint(i)), Ran: time.Minute})
		h.Learn(backfill.Ended{Kind: kind("daily"), Ran: time.Hour})
		if got := known(); got > 10 || got == 0 {
			t.Fatalf("after %d owners %d are known, want 1 to 10", i+1, got)
		}
	}
	if got := h.Expect(kind("daily"), 0); got != time.Hour {
		t.Errorf("of an owner whose jobs end all the time: %s, want an hour", got)
	}
}

func TestLonger(t *testing.T) {
	for _, c := range []struct{ expected, ran, want time.Duration }{
		{time.Minute, 0, time.Minute},
		{time.Minute, time.Minute, 2 * time.Minute},
		{time.Minute, 7 * time.Minute, 8 * time.Minute},
		{0, time.Hour, 0},
		{math.MaxInt64/2 + 1, math.MaxInt64 - 1, 0},
	} {
		if got := backfill.Longer(c.expected, c.ran); got != c.want {
			t.Errorf("Longer(%d, %d) = %d, want %d", c.expected, c.ran, got, c.want)
		}
	}
}

func TestPriorityAfter(t *testing.T) {
	for _, c := range []struct{ length, want time.Duration }{
		{0, 24 * time.Hour},
		{-time.Hour, 24 * time.Hour},
		{3 * time.Hour, 24 * time.Hour},
		{10 * time.Hour, 80 * time.Hour},
		{math.MaxInt64, math.MaxInt64 / 8 * 8},
	} {
		if got := backfill.PriorityAfter(c.length); got != c.want {
			t.Errorf("PriorityAfter(%s) = %s, want %s", c.length, got, c.want)
		}
	}
}

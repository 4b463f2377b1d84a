package yardstick

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseStat(t *testing.T) {
	got := parseStat([]byte("cpu  100 0 50 800 10 0 0 40 0 0\ncpu0 1 2 3\nintr 5 6\nprocs_running " +
		"7\nprocs_blocked 2\n"))
	if want := (stat{running: 7, blocked: 2, stolen: 40, all: 1000}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := parseStat([]byte("cpu\nprocs_running\nprocs_blocked x\n")); got != (stat{}) {
		t.Errorf("of nothing: got %+v", got)
	}
}

func TestSlownessOfALoad(t *testing.T) {
	before := stat{all: 1000, stolen: 100}
	for _, test := range []struct {
		name string
		now  stat
		want float64
	}{
		{"idle", stat{running: 1, all: 1000, stolen: 100}, 1},
		{"as many as cores", stat{running: 2, all: 1100, stolen: 100}, 1},
		{"three for each core", stat{running: 6, all: 1100, stolen: 100}, 3},
		{"half of the time goes to other machines", stat{running: 2, all: 1100, stolen: 150}, 2},
		{"one waits for a disk", stat{running: 2, blocked: 1, all: 1100, stolen: 100}, 2},
		{"many wait for a disk", stat{running: 2, blocked: 50, all: 1100, stolen: 100}, maxDiskSlowness},
	} {
		if got := test.now.slowness(before, 2); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// A yard counts a third of the time while all takes three times as long.
func TestYardCountsByTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := &yard{speed: 1, slower: 3, last: time.Now()}
		time.Sleep(3 * time.Second)
		if got := y.now(); got != time.Second {
			t.Errorf("after 3s on the wall: got %v, want 1s", got)
		}
	})
}

// A limit that is fixed beforehand follows the load of a busy moment only so far: some checks wait for all of it.
func TestHandOutIsBounded(t *testing.T) {
	y := &yard{slower: maxSlowness, lately: 2}
	if got := y.handOut(); got != maxScale || y.most != maxScale {
		t.Errorf("in the busiest moment: got %v and remembers %v, want %d", got, y.most, maxScale)
	}
	y.slower = 1
	if got := y.handOut(); got != 2 || y.most != maxScale {
		t.Errorf("after it: got %v and remembers %v, want 2 and %d", got, y.most, maxScale)
	}
}

func TestLimitsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := Scaled(time.Minute); got != time.Minute {
			t.Errorf("a limit of a minute: got %v", got)
		}
		watch := NewStopwatch()
		ctx, cancel := WithLimit(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		if took := watch.Elapsed(); took != time.Minute || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("a context of a minute ended after %v: %v", took, ctx.Err())
		}
	})
}

func TestLimitsOnTheWall(t *testing.T) {
	if got := Scaled(time.Second); got < time.Second || got > maxScale*time.Second {
		t.Errorf("a limit of a second: got %v", got)
	}
	began, watch := time.Now(), NewStopwatch()
	ctx, cancel := WithLimit(t.Context(), 20*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	wall := time.Since(began)
	if took := watch.Elapsed(); wall < 20*time.Millisecond || took > wall {
		t.Errorf("20ms took %v, %v on the wall", took, wall)
	}
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Errorf("it ended for %v", context.Cause(ctx))
	}
}

package testkit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		polls := 0
		err := testkit.Poll(t.Context(), func() error {
			if polls++; polls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil || polls != 3 || time.Since(began) == 0 {
			t.Errorf("%d polls in %v: %v", polls, time.Since(began), err)
		}
		never := errors.New("never")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := testkit.Poll(ctx, func() error {
			return never
		}); !errors.Is(err, never) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v, want the last error after 1s", time.Since(began), err)
		}
		polls = 0
		if err := testkit.Poll(ctx, func() error { polls++; return never }); polls != 1 || !errors.Is(err, never) {
			t.Errorf("with a context that has ended: %d polls, %v", polls, err)
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		testkit.Pause(t.Context(), time.Minute)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("paused for %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.Pause(ctx, time.Hour)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("paused for %v after the end", took-time.Minute)
		}
	})
}

func TestSetting(t *testing.T) {
	const name = "BERTH_TEST_SETTING"
	t.Setenv(name, "")
	if got := testkit.Setting(t, name, 7); got != 7 {
		t.Errorf("without the variable: got %d, want 7", got)
	}
	t.Setenv(name, "-12")
	if got := testkit.Setting(t, name, 7); got != -12 {
		t.Errorf("got %d, want -12", got)
	}
}

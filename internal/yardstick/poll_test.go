package yardstick_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/yardstick"
)

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		polls := 0
		err := yardstick.Poll(t.Context(), func() error {
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
		if err := yardstick.Poll(ctx, func() error {
			return never
		}); !errors.Is(err, never) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v, want the last error after 1s", time.Since(began), err)
		}
		polls = 0
		if err := yardstick.Poll(ctx, func() error { polls++; return never }); polls != 1 || !errors.Is(err, never) {
			t.Errorf("with a context that has ended: %d polls, %v", polls, err)
		}
	})
}

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		if err := yardstick.Eventually(t.Context(), time.Second, func() error {
			if polls++; polls < 3 {
				return errors.New("not yet")
			}
			return nil
		}); err != nil || polls != 3 {
			t.Errorf("%d polls: %v", polls, err)
		}
		never, began := errors.New("never"), time.Now()
		err := yardstick.Eventually(t.Context(), time.Second, func() error { return never })
		if took := time.Since(began); !errors.Is(err, never) || took != time.Second {
			t.Errorf("after %v: %v, want the last error after 1s", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = yardstick.Eventually(ctx, time.Hour, func() error { return never })
		if !errors.Is(err, never) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a context of a second: %v", err)
		}
	})
}

package testkit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/testkit"
)

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

//go:build prove

package e2e_test

import (
	"testing"

	"github.com/berthd/berth/test/harness"
)

func TestSchedulerInGo(t *testing.T) {
	t.Parallel()
	testScheduler(t, "binpack", harness.Program(t, t.TempDir(), binpack), "-beat", "1s")
}

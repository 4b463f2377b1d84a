package node

import "testing"

// A nudge never blocks, and two of them count once.
func TestNudge(t *testing.T) {
	t.Parallel()
	to := make(chan struct{}, 1)
	Nudge(to)
	Nudge(to)
	<-to
	select {
	case <-to:
		t.Error("there were two values")
	default:
	}
}

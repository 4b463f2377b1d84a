package containerd

import (
	"testing"
	"time"
)

// The rate is that of the last second or more. It is unknown at first, and after a layer started again.
func TestRate(t *testing.T) {
	t.Parallel()
	var r rate
	at := time.Unix(100, 0)
	for _, c := range []struct {
		after time.Duration
		have  int64
		want  int64
	}{
		{0, 100, 0},
		{500 * time.Millisecond, 200, 0},
		{2 * time.Second, 4100, 2000},
		{2500 * time.Millisecond, 9000, 2000},
		{4 * time.Second, 4100, 0},
		{5 * time.Second, 0, 0},
		{6 * time.Second, 50, 50},
	} {
		if got := r.take(at.Add(c.after), c.have); got != c.want {
			t.Errorf("after %v with %d bytes: got %d, want %d", c.after, c.have, got, c.want)
		}
	}
}

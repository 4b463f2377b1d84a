package transport

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Heartbeats are sent at full seconds, never early and less than a second late. A busy node sends them exactly when
// they are due.
func TestHeartbeatsComeTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		after := time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "after"))
		got := AlignReport(now, after)
		switch {
		case after < 10*time.Second:
			if got != after {
				t.Fatalf("a heartbeat due after %v waits %v", after, got)
			}
		case got < after || got >= after+time.Second:
			t.Fatalf("a heartbeat due after %v waits %v", after, got)
		case now.Add(got).Nanosecond() != 0:
			t.Fatalf("a heartbeat comes at %v", now.Add(got))
		}
	})
}

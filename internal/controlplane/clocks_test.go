package controlplane

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTermClock reads the clock of a term each 10 s, while the wall clock is set as the amounts say. The clock does not
// follow a wall clock that is ahead for a while, and immediately follows one that is behind.
func TestTermClock(t *testing.T) {
	const h = time.Hour
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		ahead, want []time.Duration // of the wall clock, and of the clock
		follows     int             // readings at which it follows a wall clock that was set
	}{
		"not set":        {[]time.Duration{0, 0, 0}, []time.Duration{0, 0, 0}, 0},
		"ahead for 40 s": {[]time.Duration{0, h, h, h, h, 0, 0}, []time.Duration{0, 0, 0, 0, 0, 0, 0}, 0},
		"ahead for ever": {[]time.Duration{0, h, h, h, h, h, h}, []time.Duration{0, 0, 0, 0, 0, 0, h}, 1},
		"set twice":      {[]time.Duration{0, h, h, 2 * h, 2 * h, 2 * h, 2 * h}, make([]time.Duration, 7), 0},
		"behind, then right": {
			[]time.Duration{0, -h, -h, 0, 0, 0, 0, 0, 0}, []time.Duration{0, -h, -h, -h, -h, -h, -h, -h, 0}, 2,
		},
		"a little behind": {[]time.Duration{0, -4 * time.Second}, []time.Duration{0, -4 * time.Second}, 0},
	} {
		var wall time.Time
		var boot time.Duration
		c := termClock{config: Config{
			Now: func() time.Time { return wall }, Clock: func() time.Duration { return boot },
			Logger: slog.New(slog.DiscardHandler),
		}, publish: func(clockTimes) {}}
		got, follows := []time.Duration{}, 0
		for i, ahead := range test.ahead {
			boot = time.Hour + time.Duration(i)*10*time.Second
			right := start.Add(boot)
			wall = right.Add(ahead)
			before := c.now
			if c.advance() {
				follows++
			} else if c.now.Before(before) {
				t.Errorf("%s: it went back by %v without notice", name, before.Sub(c.now))
			}
			got = append(got, c.now.Sub(right))
		}
		if diff := cmp.Diff(test.want, got); diff != "" || follows != test.follows {
			t.Errorf("%s: it followed %d times, want %d; its lead (-want +got):\n%s", name, follows, test.follows, diff)
		}
	}
}

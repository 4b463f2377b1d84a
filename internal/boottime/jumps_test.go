package boottime_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/boottime"
)

func TestJumps(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		wall, boot, want time.Duration
	}{
		"in step":        {time.Minute, time.Minute, 0},
		"a little apart": {time.Minute, 56 * time.Second, 0},
		"set forward":    {time.Hour, time.Minute, 59 * time.Minute},
		"set back":       {-time.Hour, time.Minute, -61 * time.Minute},
		"suspended":      {8 * time.Hour, 8 * time.Hour, 0},
	} {
		var jumps boottime.Jumps
		if by := jumps.Since(start, 100*time.Second); by != 0 {
			t.Errorf("%s: the first reading is a jump by %v", name, by)
		}
		if by := jumps.Since(start.Add(test.wall), 100*time.Second+test.boot); by != test.want {
			t.Errorf("%s: got %v, want %v", name, by, test.want)
		}
	}
}

package boottime

import "time"

// MaxDifference is the largest difference between the progress of the wall clock and of the boot-time clock that is not
// a jump.
const MaxDifference = 5 * time.Second

// Jumps compares the wall clock with the boot-time clock, which cannot be set (P9.1). The zero value is ready for use,
// by one goroutine.
type Jumps struct {
	wall time.Time
	boot time.Duration
}

// Since returns the amount by which the wall clock was set since the last call. It is 0 for at most MaxDifference, and
// at the first call.
func (j *Jumps) Since(wall time.Time, boot time.Duration) time.Duration {
	wall = wall.Round(0) // without the monotonic reading, which does not jump
	last := *j
	j.wall, j.boot = wall, boot
	if last.wall.IsZero() {
		return 0
	}
	by := wall.Sub(last.wall) - (boot - last.boot)
	if by.Abs() <= MaxDifference {
		return 0
	}
	return by
}

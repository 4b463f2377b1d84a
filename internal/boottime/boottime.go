// Package boottime reads the clock that durations are measured on (P9.1): it counts
// from the machine's boot, also while the machine is suspended, and no one can set it.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the machine booted.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		// The clock exists since Linux 2.6.39; without it nothing here could be trusted.
		panic("read the boot-time clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}

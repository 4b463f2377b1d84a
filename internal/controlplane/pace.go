package controlplane

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/pause"
)

// maxCyclePause bounds the wait of a cycle for more changes if only tasks changed.
const maxCyclePause = 100 * time.Millisecond

// pace keeps cycles apart. A cycle reads all tasks of each owner with a changed task. While thousands of tasks report,
// cycles without a pause would read all of them again and again. They would use up the processor that the tasks need.
type pace struct {
	// pause is the time between two cycles: twice what the last one took, unless that placed something.
	pause time.Duration
	ended time.Duration // end of the last cycle, on the boot-time clock
}

// noteCycle takes note of a cycle.
func (p *pace) noteCycle(began, ended time.Duration, placed int) {
	p.pause, p.ended = min(2*(ended-began), maxCyclePause), ended
	if placed > 0 {
		p.pause = 0
	}
}

// gatherBurst waits for more changes after the first: burstDelay, or longer if the last cycle was long. A change of a
// spec ends the longer wait. It returns false if the context ended.
func (l *loop) gatherBurst(ctx context.Context) bool {
	if pause.For(ctx, burstDelay) != nil {
		return false
	}
	_, err := pause.Until(ctx, l.follow.Specs(), l.pace.ended+l.pace.pause-l.config.Clock())
	return err == nil
}

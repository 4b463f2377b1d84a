package fake

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Op names a method of an Executor.
type Op string

// Methods of an Executor.
const (
	OpProbe   Op = "probe"
	OpPrepare Op = "prepare"
	OpStart   Op = "start"
	OpWait    Op = "wait"
	OpSignal  Op = "signal"
	OpRemove  Op = "remove"
	OpList    Op = "list"
	OpExec    Op = "exec"
)

// Call is one call of a method: number Nth, from 1, of that method for that container.
type Call struct {
	Op  Op
	ID  executor.ID
	Nth int
}

// Fault is the fault of a call. The zero Fault is none.
//
// A container's label "fake.<op>" is a fault of all its calls of that method, in words: "delay 2s", "late 2s", "hang",
// "fail", "lose", "twice", "dies", "unknown", or several of them. "once" limits it to the first call.
type Fault struct {
	Delay time.Duration // before the call does anything
	Hang  bool          // it does nothing and returns when its context ends
	Err   error         // it does nothing and returns this
	Twice bool          // it is done twice, as when a request is repeated; the second result counts
	Late  time.Duration // after it was done, before it returns
	Lose  error         // it is done, but returns this
	Dies  bool          // Start: the program dies right after its start
	Exit  *cluster.Exit // Wait: a wrong result
}

// call is the way of every method through trouble.
func (e *Executor) call(ctx context.Context, call Call, labels map[string]string, do func(Fault) error) error {
	m := e.machine
	m.mu.Lock()
	m.calls[call]++
	trouble := m.trouble
	nth := m.calls[call]
	m.mu.Unlock()
	call.Nth = nth
	var f Fault
	if trouble != nil {
		f = trouble(call)
	}
	f = f.and(labels["fake."+string(call.Op)], nth)

	select {
	case <-e.dead:
		return executor.ErrUnavailable
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.sleep(ctx, f.Delay); err != nil {
		return err
	}
	if f.Hang {
		return e.sleep(ctx, 1<<63-1)
	}
	if f.Err != nil {
		return f.Err
	}
	err := do(f)
	if f.Twice {
		err = do(f)
	}
	if late := e.sleep(ctx, f.Late); late != nil {
		return late
	}
	return errors.Join(err, f.Lose)
}

// and adds the faults of a label.
func (f Fault) and(words string, nth int) Fault {
	fields := strings.Fields(words)
	for i := 0; i < len(fields); i++ {
		span := func() time.Duration {
			if i++; i >= len(fields) {
				return 0
			}
			d, _ := time.ParseDuration(fields[i])
			return d
		}
		switch fields[i] {
		case "once":
			if nth > 1 {
				return Fault{}
			}
		case "delay":
			f.Delay = span()
		case "late":
			f.Late = span()
		case "hang":
			f.Hang = true
		case "fail":
			f.Err = errTrouble
		case "lose":
			f.Lose = errTrouble
		case "twice":
			f.Twice = true
		case "dies":
			f.Dies = true
		case "unknown":
			f.Exit = &cluster.Exit{Code: -1, Unknown: true}
		}
	}
	return f
}

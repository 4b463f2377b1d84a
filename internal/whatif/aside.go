package whatif

import (
	"runtime"
	"syscall"

	"github.com/berthd/berth/api"
)

// courtesy is how far behind all others a simulation stands for the machine's processors.
const courtesy = 19

// Aside does work on a thread of its own that gets processor time only where nobody else wants it, as far as the machine can do that,
// and returns when it is done. The work must start no goroutines that do much: those would not be on that thread.
func Aside(work func() (*api.Simulation, error)) (*api.Simulation, error) {
	type result struct {
		sim *api.Simulation
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and its niceness with it
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, courtesy)
		sim, err := work()
		done <- result{sim, err}
	}()
	r := <-done
	return r.sim, r.err
}

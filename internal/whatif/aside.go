package whatif

import (
	"syscall"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/thread"
)

// courtesy is how far behind all others a simulation stands for the machine's processors.
const courtesy = 19

// Aside does work on a thread of its own that gets processor time only where nobody else wants it, as far as the
// machine can do that, and returns when it is done. The work must start no goroutines that do much: those would not be
// on that thread.
func Aside(work func() (*api.Simulation, error)) (*api.Simulation, error) {
	var sim *api.Simulation
	err := thread.Apart(func() (err error) {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, courtesy)
		sim, err = work()
		return err
	})
	return sim, err
}

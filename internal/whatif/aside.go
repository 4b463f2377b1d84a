package whatif

import (
	"syscall"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/thread"
)

// niceness is the nice value of a simulation's thread, the lowest scheduling priority.
const niceness = 19

// Aside runs work on a thread of its own with the lowest processor priority, where the machine supports that, and
// returns when it is done. The work must not start goroutines that do much: they would not run on that thread.
func Aside(work func() (*api.Simulation, error)) (*api.Simulation, error) {
	var sim *api.Simulation
	err := thread.Apart(func() (err error) {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness)
		sim, err = work()
		return err
	})
	return sim, err
}

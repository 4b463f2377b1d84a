package attempt

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// Recover continues a record of an earlier run of the agent. Boot names the current boot of the machine; held are the
// executor's containers, by id.
//
// Containers that ran before a reboot are gone. A launched container that the executor does not hold, or holds without
// an exit status, has an unknown exit (P4.4). A container that is held and was never started is launched by the same
// step as before, because an executor starts an id at most once.
func (r *Record) Recover(held map[executor.ID]executor.Status, boot string, now Now) {
	r.Permit.Kept = r.Permit.Used // the record was read from disk
	if r.Boot != boot {
		reboot(r, boot, now)
		return
	}
	for i := range r.Containers {
		c := &r.Containers[i]
		if !c.live() {
			continue
		}
		status, ok := held[c.ID]
		switch {
		case ok && status.State == executor.StateRunning:
			c.Progress = Launched
			r.WasStarted(i, status.Process, now)
		case ok && status.State == executor.StateExited && status.Exit != nil:
			r.HasExited(c.ID, *status.Exit, now)
		case ok && status.State == executor.StatePrepared && c.Progress == Launched:
		default:
			r.HasExited(c.ID, cluster.Exit{Code: -1, At: now.Wall, Unknown: true}, now)
		}
	}
}

// ForgetIntent resets containers whose launch was only intended, and makes them again, like an agent without P4.4. Only
// tests of that clause use it.
func ForgetIntent(r *Record) {
	for i := range r.Containers {
		if r.Containers[i].Progress != Launched {
			continue
		}
		r.Round++
		r.Phase, r.Barrier, r.Begun, r.RoundBegun = PhasePreparing, Barrier{Ask: r.Barrier.Ask + 1}, 0, 0
		r.Containers[i] = Container{ID: RunID(r.Desired.UUID, i, r.Round)}
	}
}

// reboot resets all times of the old boot and ends the containers that ran.
func reboot(r *Record, boot string, now Now) {
	r.Boot = boot
	cut := r.Phase == PhaseRunning && r.Containers.begun()
	for i := range r.Containers {
		c := &r.Containers[i]
		if c.live() {
			r.HasExited(c.ID, cluster.Exit{Code: -1, At: now.Wall, Unknown: true}, now)
		} else if c.Progress == Prepared {
			c.Progress = Waiting
		}
	}
	switch {
	case cut:
		r.Rebooted = true
		r.Ending = &Ending{Cause: lifecycle.CauseExit, Container: -1}
		r.Phase, r.Health = PhaseEnding, cluster.HealthUnknown
	case r.Phase == PhaseBarrier || r.Phase == PhaseRunning:
		r.Phase = PhasePreparing
	}
	r.PortsFree = r.PortsFree && !r.Started.IsZero()
	r.Barrier = Barrier{Ask: r.Barrier.Ask + 1}
	r.Restarts = lifecycle.Restarts{Total: r.Restarts.Total}
	r.Up, r.Through, r.Healthy, r.Left, r.CheckResults = 0, 0, 0, 0, nil
	for _, at := range []*time.Duration{&r.Begun, &r.RoundBegun, &r.NotBefore} {
		if *at != 0 {
			*at = now.Boot
		}
	}
}

package task

import (
	"bytes"
	"context"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/checks"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// watchedChecks identifies the running checks: those of a round, before or after the end of its startup checks.
type watchedChecks struct {
	round   int
	through bool
}

// checkRunner runs the checks of one attempt. The attempt's goroutine calls its methods.
type checkRunner struct {
	parts  *Parts
	events *inbox
	// container finds a running container. mask removes the values of secrets from a text. Both may be called on any
	// goroutine.
	container func(name string) (executor.Executor, executor.ID, error)
	mask      func(text string) string

	cancel  func() // stops the checks, nil if none run
	running watchedChecks
}

// update starts the checks that the record wants and stops all others.
func (c *checkRunner) update(ctx context.Context, rec *attempt.Record, def *cluster.TaskDefinition) {
	which := rec.Checks(def).Watched()
	wanted := watchedChecks{rec.Round, rec.Through != 0}
	if c.cancel != nil && (len(which) == 0 || c.running != wanted) {
		c.stop()
	}
	if c.cancel != nil || len(which) == 0 {
		return
	}
	ctx, c.cancel = context.WithCancel(ctx)
	c.running = wanted
	round := rec.Round
	config := checks.Config{
		Checks: def.Checks,
		Which:  which,
		Up:     c.parts.Boot() - rec.Up,
		Probe:  c.prober(rec.Desired.Ports),
		Random: c.parts.Random,
		Changed: func(i int, state lifecycle.CheckState, complaint string) {
			c.events.put(func(r *attempt.Record) {
				r.Checks(def).Report(attempt.CheckReport{
					Round: round, Check: i, State: state, Complaint: c.mask(complaint),
				})
			})
		},
	}
	for i := range rec.CheckResults {
		config.States = append(config.States, rec.CheckResults[i].CheckState)
	}
	c.parts.Go(func() { checks.Run(ctx, config) })
}

// stop stops the checks.
func (c *checkRunner) stop() {
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
}

// maxExecOutput limits the stored output of an exec check, in bytes.
const maxExecOutput = 1024

// prober returns the function that runs the attempt's checks. It is called on the attempt's goroutine and used on
// others.
func (c *checkRunner) prober(ports map[string]int) func(context.Context, *cluster.Check) error {
	p := checks.Prober{
		Host: c.parts.Facts().Address, Ports: ports,
		Exec: func(ctx context.Context, container string, command []string) (int, []byte, error) {
			exec, id, err := c.container(container)
			if err != nil {
				return 0, nil, err
			}
			var out clipped
			code, err := exec.Exec(ctx, id, executor.Command{Args: command, Stdout: &out, Stderr: &out})
			return code, out.Bytes(), err
		},
	}
	probe := c.parts.Checks.Probe
	return func(ctx context.Context, check *cluster.Check) error {
		if probe != nil && check.Type != cluster.CheckExec {
			return probe(ctx, check, ports)
		}
		return p.Probe(ctx, check)
	}
}

// clipped keeps the beginning of what is written to it.
type clipped struct{ bytes.Buffer }

// Write takes all of b and keeps what fits.
func (c *clipped) Write(b []byte) (int, error) {
	c.Buffer.Write(b[:min(len(b), max(maxExecOutput-c.Len(), 0))])
	return len(b), nil
}

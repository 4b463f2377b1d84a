package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/plain"
)

// Timeouts of one executor call; a call that hangs is repeated.
const (
	// prepareTimeout is long enough for a large image on a slow line.
	prepareTimeout = 30 * time.Minute
	listTimeout    = 30 * time.Second
	startTimeout   = 30 * time.Second
	signalTimeout  = 10 * time.Second
	removeTimeout  = 2 * time.Minute
)

// executorWaitTime is how long an attempt waits for any executor of the node to work: its daemon may be starting.
const executorWaitTime = time.Minute

// errNoState means that the agent could not make its state durable.
var errNoState = errors.New("the agent's state cannot be written")

// stepResult is the result of a step: an event for the record. A step that fails returns an error instead and is
// retried.
type stepResult func(*attempt.Record)

// beginStep starts a step. It reads the record here; the work happens on another goroutine, unless the step is too
// quick to matter.
func (t *task) beginStep(ctx context.Context, step attempt.Step, def *cluster.TaskDefinition) {
	var act func(context.Context) (stepResult, error)
	switch step.Do {
	case attempt.Admit:
		act = t.admit(def)
	case attempt.Prepare:
		act = t.prepare(step.Container, def)
	case attempt.ProbePorts:
		act = t.probePorts()
	case attempt.Launch:
		act = t.launch(step.Container)
	case attempt.Discard:
		act = t.discard(step.Container)
	case attempt.Use:
		act = t.usePermit()
	case attempt.Signal:
		act = t.signal(step.Signal)
	case attempt.Close:
		act = t.close(step.Container, def)
	case attempt.Tail:
		act = t.tail(step.Container, def)
	case attempt.Clear:
		act = t.clear()
	case attempt.Wait:
		return
	}
	act = t.traced(step, def, act)
	if step.Do == attempt.Admit || step.Do == attempt.ProbePorts || step.Do == attempt.Close ||
		step.Do == attempt.Tail {
		t.currentStep, t.retryAt = step.Do, time.Time{}
		event, err := act(ctx)
		t.finishStep(t.rec, step, event, err)
		t.wakeUp()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	t.busy, t.currentStep, t.cancel, t.retryAt = true, step.Do, cancel, time.Time{}
	t.agent.work.Go(func() {
		defer cancel()
		event, err := act(ctx)
		t.post(func(r *attempt.Record) { t.finishStep(r, step, event, err) })
	})
}

// finishStep handles the result of a step.
func (t *task) finishStep(r *attempt.Record, step attempt.Step, event stepResult, err error) {
	t.busy, t.cancel = false, nil
	if err == nil {
		t.retry.reset()
		t.problem = ""
		event(r)
		return
	}
	if errors.Is(err, context.Canceled) {
		return // the agent ends, or the attempt has to stop first
	}
	t.retryAt = time.Now().Add(t.retry.next())
	t.problem = fmt.Sprintf("%s: %s", step.Do, plain.Text(err))
	t.agent.Logger.Warn("a step failed and is tried again",
		"task", t.id, "attempt", t.attempt, "step", step.Do, "error", err)
}

// executor returns the executor of the attempt.
func (t *task) executor() (executor.Executor, error) {
	return t.agent.executorByName(t.rec.Executor)
}

// executorByName returns an executor by its name. An executor that has not answered since the agent began may do so
// later.
func (a *Agent) executorByName(name string) (executor.Executor, error) {
	e, ok := a.machine.executor(name)
	if !ok {
		return nil, fmt.Errorf("executor %q: %w", name, executor.ErrUnavailable)
	}
	return e, nil
}

func (a *Agent) waitForExit(ctx context.Context, name string, id executor.ID) (cluster.Exit, error) {
	e, err := a.executorByName(name)
	if err != nil {
		return cluster.Exit{}, err
	}
	exit, err := e.Wait(ctx, id)
	if errors.Is(err, executor.ErrNotFound) {
		return cluster.Exit{Code: -1, At: time.Now(), Unknown: true}, nil
	}
	return exit, err
}

// admit checks whether the node has what the attempt needs.
func (t *task) admit(def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	a, d := t.agent, t.rec.Desired
	return func(context.Context) (stepResult, error) {
		reject := func(reason cluster.ReasonCode, message string) (stepResult, error) {
			return func(r *attempt.Record) { r.Reject(reason, message, a.now()) }, nil
		}
		for _, p := range def.Ports {
			if d.Ports[p.Name] == 0 {
				return reject(cluster.ReasonPort, fmt.Sprintf("port %q was not assigned a number", p.Name))
			}
		}
		name, ok := a.machine.choose(def)
		if !ok && a.Boot()-t.began < executorWaitTime {
			return nil, fmt.Errorf("no executor works on the node: %w", executor.ErrUnavailable)
		}
		if !ok {
			return reject(cluster.ReasonNoExecutor, "no executor works on the node")
		}
		if len(d.Devices) > 0 {
			if _, err := def.AssignDevices(d.Devices, a.machine.facts().Devices); err != nil {
				return reject(cluster.ReasonDevice, err.Error())
			}
		}
		if lacks := a.networkReason(def); lacks != "" {
			return reject(cluster.ReasonNetwork, lacks)
		}
		if err := a.makeVolumes(&d, def); err != nil {
			return reject(cluster.ReasonPrepare, plain.Text(err))
		}
		return func(r *attempt.Record) { r.Admitted(name, def) }, nil
	}
}

// prepare makes a container, after removing its earlier runs.
func (t *task) prepare(i int, def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	a, c, first := t.agent, t.rec.Containers[i], t.rec.Round == 1
	desired := t.rec.Desired
	spec, lacking := a.spec(&desired, def, i, c.ID, nil)
	exec, err := t.executor()
	return func(ctx context.Context) (stepResult, error) {
		if lacking != nil {
			problem := fmt.Sprintf("container %s: %v", spec.Container.Name, lacking)
			return func(r *attempt.Record) { r.PrepareFailed(i, problem, a.now()) }, nil
		}
		if waits := t.placeServices(ctx, &desired, def, i, &spec); waits != nil {
			return nil, waits
		}
		if len(t.cores) > 0 {
			a.repin(ctx) // moves other containers off these CPUs first
		}
		if err == nil {
			err = removeAll(ctx, exec, c.Old)
		}
		for _, old := range c.Old {
			_ = os.RemoveAll(a.runDir(t.uuid, old)) // clear removes the rest at the end
		}
		if err == nil {
			err = a.makeDirs(&spec)
		}
		if err == nil {
			spec.Network, err = t.connect(ctx, &desired, def)
		}
		if err == nil {
			err = t.placeSecrets(ctx, &def.Containers[i], &spec)
			if err != nil && !errors.Is(err, executor.ErrUnsupported) {
				return nil, err // the step is retried until the secrets are available
			}
		}
		var login, noLogin atomic.Pointer[string]
		spec.Credentials = t.credentials(ctx, &def.Containers[i], &login, &noLogin)
		limited, cancel := context.WithTimeout(ctx, prepareTimeout)
		defer cancel()
		if err == nil {
			err = t.placeArtifacts(limited, &def.Containers[i], &spec)
		}
		if err == nil {
			err = exec.Prepare(limited, spec, t.progress(spec.Container.Name))
		}
		switch {
		case err == nil:
			a.pins.made(spec.ID, spec.CPUs)
			return func(r *attempt.Record) { r.WasPrepared(i) }, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case limited.Err() != nil, errors.Is(err, executor.ErrUnavailable):
			return nil, err
		case errors.Is(err, executor.ErrUnsupported) && first:
			return func(r *attempt.Record) { r.Reject(cluster.ReasonNoExecutor, plain.Text(err), a.now()) }, nil
		}
		problem := fmt.Sprintf("container %s: %s", spec.Container.Name, plain.Text(err))
		if why := noLogin.Load(); why != nil {
			problem += "; " + *why
		} else if errors.Is(err, executor.ErrLogin) {
			problem += loginHint(login.Load(), desired.Owner.Cluster)
		}
		return func(r *attempt.Record) { r.PrepareFailed(i, problem, a.now()) }, nil
	}
}

// progress returns a function that reports the progress of making a container.
func (t *task) progress(name string) func(string) {
	return func(text string) {
		t.post(func(r *attempt.Record) {
			if r.Phase == attempt.PhasePreparing {
				r.Note = "container " + name + ": " + text
			}
		})
	}
}

// probePorts checks whether the attempt's ports are free.
func (t *task) probePorts() func(context.Context) (stepResult, error) {
	a, ports := t.agent, t.rec.Desired.Ports
	return func(context.Context) (stepResult, error) {
		for _, name := range sortedKeys(ports) {
			if err := a.PortFree(ports[name]); err != nil {
				message := fmt.Sprintf("port %d (%s) is taken on the node: %s", ports[name], name, plain.Text(err))
				return func(r *attempt.Record) { r.Reject(cluster.ReasonPortTaken, message, a.now()) }, nil
			}
		}
		return (*attempt.Record).PortsProbed, nil
	}
}

// launch starts a container once the intent is durable (P4.4).
func (t *task) launch(i int) func(context.Context) (stepResult, error) {
	a, id := t.agent, t.rec.Containers[i].ID
	durable := a.store.CommitAttempt(t.rec)
	exec, err := t.executor()
	return func(ctx context.Context) (stepResult, error) {
		if err != nil {
			return nil, err
		}
		select {
		case err := <-durable:
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errNoState, err)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		a.repin(ctx) // the shared CPUs may have changed since the container was made
		start, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		p, err := exec.Start(start, id)
		switch {
		case err == nil, errors.Is(err, executor.ErrStarted):
			return func(r *attempt.Record) { r.WasStarted(i, p, a.now()) }, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case start.Err() != nil, errors.Is(err, executor.ErrUnavailable):
			return nil, err // the result is unknown; an executor starts an id at most once
		}
		problem := plain.Text(err)
		if left := removeAll(ctx, exec, []executor.ID{id}); left != nil { // with a timeout: it may hang as well
			return nil, fmt.Errorf("%s; remove what is left of it: %w", problem, left)
		}
		if errors.Is(err, executor.ErrNotStarted) {
			return func(r *attempt.Record) { r.StartFailed(i, problem, a.now()) }, nil
		}
		return func(r *attempt.Record) { r.StartInDoubt(i, problem, a.now()) }, nil
	}
}

// discard removes a container that may or may not have run its program.
func (t *task) discard(i int) func(context.Context) (stepResult, error) {
	a, id := t.agent, t.rec.Containers[i].ID
	exec, err := t.executor()
	return func(ctx context.Context) (stepResult, error) {
		if err == nil {
			err = removeAll(ctx, exec, []executor.ID{id})
		}
		if err != nil {
			return nil, err
		}
		return func(r *attempt.Record) { r.WasDiscarded(i, a.now()) }, nil
	}
}

// usePermit makes the use of a permit durable (P5.2). The attempt continues while the state cannot be written, as a
// voluntary stop can wait.
func (t *task) usePermit() func(context.Context) (stepResult, error) {
	durable := t.agent.store.CommitAttempt(t.rec)
	return func(ctx context.Context) (stepResult, error) {
		select {
		case err := <-durable:
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errNoState, err)
			}
			return (*attempt.Record).PermitKept, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// signal sends a signal to all running containers, once the stop of the attempt is durable.
func (t *task) signal(sig syscall.Signal) func(context.Context) (stepResult, error) {
	a := t.agent
	var ids []executor.ID
	for i := range t.rec.Containers {
		if c := &t.rec.Containers[i]; c.Progress == attempt.Running {
			ids = append(ids, c.ID)
		}
	}
	durable := a.store.CommitAttempt(t.rec)
	exec, err := t.executor()
	return func(ctx context.Context) (stepResult, error) {
		if err != nil {
			return nil, err
		}
		select {
		case err := <-durable:
			if err != nil { // a full disk must not keep a task alive
				a.Logger.Warn("a stop is not durable", "task", t.id, "attempt", t.attempt, "error", err)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(ctx, signalTimeout)
		defer cancel()
		var errs []error
		for _, id := range ids {
			err := exec.Signal(ctx, id, sig)
			if err != nil && !errors.Is(err, executor.ErrNotRunning) && !errors.Is(err, executor.ErrNotFound) {
				errs = append(errs, err)
			}
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		return func(r *attempt.Record) { r.Signalled(sig, a.now()) }, nil
	}
}

// close reads the end of the log of the container that caused the end.
func (t *task) close(i int, def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	return func(context.Context) (stepResult, error) {
		end := t.logEnd(i, def, cluster.MaxLogTail)
		return func(r *attempt.Record) { r.Closed(end) }, nil
	}
}

// tail reads the end of the log of a container that restarts.
func (t *task) tail(i int, def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	return func(context.Context) (stepResult, error) {
		end := t.logEnd(i, def, attempt.MaxCrashTail)
		return func(r *attempt.Record) { r.Tailed(end) }, nil
	}
}

// logEnd returns the end of the log of a container, "" if there is none.
func (t *task) logEnd(i int, def *cluster.TaskDefinition, most int) string {
	if i < 0 || def == nil {
		return ""
	}
	return t.mask(func(more int) string { return logs.Tail(t.agent.logDir(t.uuid, def.Containers[i].Name), most+more) })
}

// clear removes all that is left of the attempt.
func (t *task) clear() func(context.Context) (stepResult, error) {
	a, dir := t.agent, t.agent.taskDir(t.uuid)
	desired, def := t.rec.Desired, t.currentDefinition()
	var ids []executor.ID
	for i := range t.rec.Containers {
		c := &t.rec.Containers[i]
		ids = append(append(ids, c.Old...), c.ID)
	}
	var exec executor.Executor
	var err error
	if t.rec.Executor != "" {
		exec, err = t.executor()
	}
	return func(ctx context.Context) (stepResult, error) {
		if err == nil && exec != nil {
			err = removeAll(ctx, exec, ids)
		}
		if err == nil {
			err = t.disconnect(ctx)
		}
		a.leftVolumes(&desired, def)
		t.services.mu.Lock() // no rendered files are written after this
		if err == nil {
			err = os.RemoveAll(dir)
		}
		t.services.mu.Unlock()
		if secrets := a.secretsDir(t.uuid); err == nil && secrets != "" && validUUID(t.uuid) {
			err = os.RemoveAll(secrets)
		}
		if err != nil {
			return nil, err
		}
		a.Logger.Debug("nothing is left of an attempt", "task", t.id, "attempt", t.attempt)
		return (*attempt.Record).Cleared, nil
	}
}

func removeAll(ctx context.Context, exec executor.Executor, ids []executor.ID) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	for _, id := range ids {
		if err := exec.Remove(ctx, id); err != nil {
			return fmt.Errorf("remove container %s: %w", id, err)
		}
	}
	return nil
}

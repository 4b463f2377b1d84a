package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/plain"
)

// Timeouts of one executor call; a call that hangs is repeated.
const (
	// prepareTimeout is long enough for a large image on a slow line.
	prepareTimeout = 30 * time.Minute
	startTimeout   = 30 * time.Second
	signalTimeout  = 10 * time.Second
	removeTimeout  = 2 * time.Minute
)

// executorWaitTime is how long an attempt waits for any executor of the node to work: its daemon may be starting.
const executorWaitTime = time.Minute

// errNoState means that the agent could not make its state durable.
var errNoState = errors.New("the agent's state cannot be written")

// stepWork makes the work of each step. A method is called on the task's goroutine, where it reads the record and
// queues what must become durable first. The function that it returns does the work and may run on another goroutine.
type stepWork struct{ task *Task }

// executor returns the executor of the attempt.
func (w stepWork) executor() (executor.Executor, error) {
	return w.task.parts.Executors.ByName(w.task.rec.Executor)
}

// counter returns a function that counts a try with the attempt's executor. A try that was cancelled does not count.
func (w stepWork) counter(count func(m node.Metrics, executor string, err error)) func(context.Context, error) {
	m, name := w.task.parts.Metrics, w.task.rec.Executor
	return func(ctx context.Context, err error) {
		if m != nil && (err == nil || ctx.Err() == nil) {
			count(m, name, err)
		}
	}
}

// progress returns a function that reports the progress of making a container.
func (w stepWork) progress(container string) func(string) {
	return func(text string) { w.task.Note(container, text) }
}

// makeDirs makes the directories of a run.
func (w stepWork) makeDirs(s *executor.Spec) error {
	if w.task.parts.Volatile {
		return nil
	}
	return errors.Join(os.MkdirAll(s.Dir, 0o700), os.MkdirAll(s.LogDir, 0o700))
}

// admit checks whether the node has what the attempt needs.
func (w stepWork) admit(def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	p, d, began := w.task.parts, w.task.rec.Desired, w.task.trace.began
	return func(context.Context) (stepResult, error) {
		reject := func(reason cluster.ReasonCode, message string) (stepResult, error) {
			return func(r *attempt.Record) { r.Reject(reason, message, p.Now()) }, nil
		}
		for _, port := range def.Ports {
			if d.Ports[port.Name] == 0 {
				return reject(cluster.ReasonPort, fmt.Sprintf("port %q was not assigned a number", port.Name))
			}
		}
		name, ok := p.Executors.Choose(def)
		if !ok && p.Boot()-began < executorWaitTime {
			return nil, fmt.Errorf("no executor works on the node: %w", executor.ErrUnavailable)
		}
		if !ok {
			return reject(cluster.ReasonNoExecutor, "no executor works on the node: "+p.Executors.Problem())
		}
		if len(d.Devices) > 0 {
			if _, err := def.AssignDevices(d.Devices, p.Facts().Devices); err != nil {
				return reject(cluster.ReasonDevice, err.Error())
			}
		}
		if lacks := cluster.LacksNetwork(p.Facts().Networks, def.OwnNetwork()); lacks != "" {
			return reject(cluster.ReasonNetwork, lacks)
		}
		if err := p.Volumes.Prepare(&d, def); err != nil {
			return reject(cluster.ReasonPrepare, plain.Text(err))
		}
		return func(r *attempt.Record) { r.Admitted(name, def) }, nil
	}
}

// prepare makes a container, after removing its earlier runs.
func (w stepWork) prepare(i int, def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	t := w.task
	p, c, first := t.parts, t.rec.Containers[i], t.rec.Round == 1
	desired := t.rec.Desired
	spec, lacking := p.Specs.Spec(&desired, def, i, c.ID, nil)
	exec, err := w.executor()
	created := w.counter(node.Metrics.ContainerCreated)
	return func(ctx context.Context) (stepResult, error) {
		if lacking != nil {
			created(ctx, lacking)
			problem := fmt.Sprintf("container %s: %v", spec.Container.Name, lacking)
			return func(r *attempt.Record) { r.PrepareFailed(i, problem, p.Now()) }, nil
		}
		if waits := t.services.Place(ctx, &desired, def, i, &spec); waits != nil {
			return nil, waits
		}
		if len(t.cores) > 0 {
			p.Pins.Repin(ctx) // moves other containers off these CPUs first
		}
		if err == nil {
			err = removeAll(ctx, exec, c.Old)
		}
		for _, old := range c.Old {
			_ = os.RemoveAll(p.RunDir(t.ID.UUID, old)) // clear removes the rest at the end
		}
		if err == nil {
			err = w.makeDirs(&spec)
		}
		if err == nil {
			spec.Network, err = p.Networks.Connect(ctx, &desired, def)
		}
		if err == nil {
			err = t.secrets.Place(ctx, &def.Containers[i], &spec)
			if err != nil && !errors.Is(err, executor.ErrUnsupported) {
				return nil, err // the step is retried until the secrets are available
			}
		}
		var login, noLogin atomic.Pointer[string]
		spec.Credentials = t.secrets.Credentials(ctx, &def.Containers[i], &login, &noLogin)
		limited, cancel := context.WithTimeout(ctx, prepareTimeout)
		defer cancel()
		if err == nil {
			err = w.placeArtifacts(limited, &def.Containers[i], &spec)
		}
		if err == nil {
			err = exec.Prepare(limited, spec, w.progress(spec.Container.Name))
		}
		created(ctx, err)
		switch {
		case err == nil:
			p.Pins.NoteMade(spec.ID, spec.CPUs)
			return func(r *attempt.Record) { r.WasPrepared(i) }, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case limited.Err() != nil, errors.Is(err, executor.ErrUnavailable):
			return nil, err
		case errors.Is(err, executor.ErrNoProgram):
			return w.noProgram(i, def, err), nil
		case errors.Is(err, executor.ErrUnsupported) && first:
			return func(r *attempt.Record) { r.Reject(cluster.ReasonNoExecutor, plain.Text(err), p.Now()) }, nil
		}
		problem := fmt.Sprintf("container %s: %s", spec.Container.Name, plain.Text(err))
		if why := noLogin.Load(); why != nil {
			problem += "; " + *why
		} else if errors.Is(err, executor.ErrLogin) {
			problem += secrets.LoginHint(login.Load(), desired.Owner.Cluster)
		}
		return func(r *attempt.Record) { r.PrepareFailed(i, problem, p.Now()) }, nil
	}
}

// probePorts checks whether the attempt's ports are free.
func (w stepWork) probePorts() func(context.Context) (stepResult, error) {
	p, ports := w.task.parts, w.task.rec.Desired.Ports
	return func(ctx context.Context) (stepResult, error) {
		for _, name := range slices.Sorted(maps.Keys(ports)) {
			if err := p.Checks.PortFree(ctx, ports[name]); err != nil {
				message := fmt.Sprintf("%s; the task needs it for its port %s", plain.Text(err), name)
				return func(r *attempt.Record) { r.Reject(cluster.ReasonPortTaken, message, p.Now()) }, nil
			}
		}
		return (*attempt.Record).PortsProbed, nil
	}
}

// noProgram ends the attempt, because the program of a container does not exist on this node or in its image.
func (w stepWork) noProgram(i int, def *cluster.TaskDefinition, err error) stepResult {
	p := w.task.parts
	problem := fmt.Sprintf("container %s cannot run on node %s: %s", def.Containers[i].Name, p.Name, plain.Text(err))
	return func(r *attempt.Record) { r.NoProgram(i, problem, p.Now()) }
}

// launch starts a container once the intent is durable (P4.4).
func (w stepWork) launch(i int, def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	p, id := w.task.parts, w.task.rec.Containers[i].ID
	durable := p.Store.CommitAttempt(w.task.rec)
	exec, err := w.executor()
	started := w.counter(node.Metrics.ContainerStarted)
	return func(ctx context.Context) (stepResult, error) {
		if err != nil {
			started(ctx, err)
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
		p.Pins.Repin(ctx) // the shared CPUs may have changed since the container was made
		start, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		process, err := exec.Start(start, id)
		if errors.Is(err, executor.ErrStarted) {
			err = nil
		}
		started(ctx, err)
		switch {
		case err == nil:
			return func(r *attempt.Record) { r.WasStarted(i, process, p.Now()) }, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case start.Err() != nil, errors.Is(err, executor.ErrUnavailable):
			return nil, err // the result is unknown; an executor starts an id at most once
		}
		problem := plain.Text(err)
		if left := removeAll(ctx, exec, []executor.ID{id}); left != nil { // with a timeout: it may hang as well
			return nil, fmt.Errorf("%s; remove what is left of it: %w", problem, left)
		}
		if errors.Is(err, executor.ErrNoProgram) {
			return w.noProgram(i, def, err), nil
		}
		if errors.Is(err, executor.ErrNotStarted) {
			return func(r *attempt.Record) { r.StartFailed(i, problem, p.Now()) }, nil
		}
		return func(r *attempt.Record) { r.StartInDoubt(i, problem, p.Now()) }, nil
	}
}

// discard removes a container that may or may not have run its program.
func (w stepWork) discard(i int) func(context.Context) (stepResult, error) {
	p, id := w.task.parts, w.task.rec.Containers[i].ID
	exec, err := w.executor()
	return func(ctx context.Context) (stepResult, error) {
		if err == nil {
			err = removeAll(ctx, exec, []executor.ID{id})
		}
		if err != nil {
			return nil, err
		}
		return func(r *attempt.Record) { r.WasDiscarded(i, p.Now()) }, nil
	}
}

// usePermit makes the use of a permit durable (P5.2). The attempt continues while the state cannot be written, as a
// voluntary stop can wait.
func (w stepWork) usePermit() func(context.Context) (stepResult, error) {
	durable := w.task.parts.Store.CommitAttempt(w.task.rec)
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

// leave removes the registrations of the attempt for service discovery. The attempt goes on to its end also if that
// takes too long.
func (w stepWork) leave(def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	t := w.task
	return func(ctx context.Context) (stepResult, error) {
		t.parts.Registrar.Leave(ctx, t.ID, len(def.Discovery.Consul))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return func(r *attempt.Record) { r.HasLeft(t.parts.Now()) }, nil
	}
}

// signal sends a signal to all running containers, once the stop of the attempt is durable.
func (w stepWork) signal(sig syscall.Signal) func(context.Context) (stepResult, error) {
	t := w.task
	p := t.parts
	var ids []executor.ID
	for i := range t.rec.Containers {
		if c := &t.rec.Containers[i]; c.Progress == attempt.Running {
			ids = append(ids, c.ID)
		}
	}
	durable := p.Store.CommitAttempt(w.task.rec)
	exec, err := w.executor()
	return func(ctx context.Context) (stepResult, error) {
		if err != nil {
			return nil, err
		}
		select {
		case err := <-durable:
			if err != nil { // a full disk must not keep a task alive
				p.Logger.Warn("a stop is not durable", "task", t.ID.Task, "attempt", t.ID.Attempt, "error", err)
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
		return func(r *attempt.Record) { r.Signalled(sig, p.Now()) }, nil
	}
}

// close reads the end of the log of the container that caused the end.
func (w stepWork) close(i int, def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	return func(context.Context) (stepResult, error) {
		end := w.logEnd(i, def, cluster.MaxLogTail)
		return func(r *attempt.Record) { r.Closed(end) }, nil
	}
}

// tail reads the end of the log of a container that restarts.
func (w stepWork) tail(i int, def *cluster.TaskDefinition) func(context.Context) (stepResult, error) {
	return func(context.Context) (stepResult, error) {
		end := w.logEnd(i, def, attempt.MaxCrashTail)
		return func(r *attempt.Record) { r.Tailed(end) }, nil
	}
}

// logEnd returns the end of the log of a container, "" if there is none.
func (w stepWork) logEnd(i int, def *cluster.TaskDefinition, most int) string {
	if i < 0 || def == nil {
		return ""
	}
	t := w.task
	dir := t.parts.LogDir(t.ID.UUID, def.Containers[i].Name)
	return t.secrets.Mask(func(more int) string { return logs.Tail(dir, most+more) })
}

// clear removes all that is left of the attempt.
func (w stepWork) clear() func(context.Context) (stepResult, error) {
	t := w.task
	p, dir := t.parts, t.parts.TaskDir(t.ID.UUID)
	desired, def := t.rec.Desired, t.Definition()
	var ids []executor.ID
	for i := range t.rec.Containers {
		c := &t.rec.Containers[i]
		ids = append(append(ids, c.Old...), c.ID)
	}
	var exec executor.Executor
	var err error
	if t.rec.Executor != "" {
		exec, err = w.executor()
	}
	return func(ctx context.Context) (stepResult, error) {
		if err == nil && exec != nil {
			err = removeAll(ctx, exec, ids)
		}
		if err == nil {
			err = p.Networks.Disconnect(ctx, t.ID.UUID)
		}
		p.Volumes.NoteLeft(&desired, def)
		if err == nil {
			err = t.services.RemoveFiles(dir)
		}
		if err == nil {
			err = p.Secrets.Memory.Remove(t.ID.UUID)
		}
		if err != nil {
			return nil, err
		}
		p.Logger.Debug("nothing is left of an attempt", "task", t.ID.Task, "attempt", t.ID.Attempt)
		return (*attempt.Record).Cleared, nil
	}
}

// placeArtifacts fetches the container's artifacts and adds them to its spec, with the source of its image.
func (w stepWork) placeArtifacts(ctx context.Context, c *cluster.Container, spec *executor.Spec) error {
	if w.task.parts.Volatile {
		return nil
	}
	if from := &c.ImageSource; from.Source != "" {
		spec.ImageArchive = &executor.ImageArchive{
			Checksum: from.Checksum,
			Open: func(ctx context.Context, progress func(string)) (io.ReadCloser, error) {
				return w.task.parts.Artifacts.OpenImage(ctx, from, progress)
			},
		}
	}
	for i := range c.Artifacts {
		want := &c.Artifacts[i]
		path, err := w.task.parts.Artifacts.Get(ctx, want, w.progress(c.Name))
		if err != nil {
			return err
		}
		m := executor.Mount{Source: path, Path: want.Path, ReadOnly: true}
		if want.Shared() {
			spec.Mounts = append(spec.Mounts, m)
		} else {
			spec.Copies = append(spec.Copies, m)
		}
	}
	return nil
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

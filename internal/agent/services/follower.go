// Package services gives tasks the addresses of the services that they use.
//
// Tasks get the addresses in variables and in files made from templates. A container is made once each service that it
// needs has a healthy task. Afterwards one goroutine for each such task follows the services. When the services have
// settled, the goroutine renders the files again. If the result differs from what the program got, the goroutine
// replaces the file and applies the definition's on_change. Tasks of a service restart by index after a change; one
// task rests 30 s between restarts, then ever longer.
package services

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

const (
	// settleTime is how long the services must not change before the agent applies changes; maxSettleTime limits the
	// wait.
	settleTime, maxSettleTime = time.Second, 10 * time.Second
	// staleAddressTimeout is how long a start waits for a server to confirm addresses from an earlier run of the agent.
	staleAddressTimeout = 3 * time.Second
	// splayStep is the time between the restarts of two tasks of a service for one change; maxSplay limits the time of
	// all restarts.
	splayStep, maxSplay = 5 * time.Second, time.Minute
	// minRenewalInterval is the least time between two restarts of a task for changes. It doubles with each restart
	// that follows soon after the last, up to maxRenewalInterval, so that services that restart each other settle.
	minRenewalInterval, maxRenewalInterval = 30 * time.Second, 10 * time.Minute
)

// Attempt is an attempt as the follower of its services sees it. Its methods may be called on any goroutine.
type Attempt interface {
	// View returns the newest state, nil before the first.
	View() *attempt.View
	// Ended is closed once no program of the attempt will run any more.
	Ended() <-chan struct{}
	// Renew restarts the attempt in place, unless the round is over.
	Renew(round int, why string)
	// Note shows users what a container that is being made does or waits for.
	Note(container, text string)
	// WakeUp makes the attempt report itself again.
	WakeUp()
}

// Signaller sends signals to the containers of an attempt.
type Signaller interface {
	// Signal sends a signal to a container, if it runs. The name lacks "SIG".
	Signal(ctx context.Context, container, name string) error
}

// Specs makes the executor's specs of containers.
type Specs interface {
	// Spec returns the spec of a container; serviceEnv holds the variables of its services.
	Spec(d *cluster.Desired, def *cluster.TaskDefinition, i int, id executor.ID, serviceEnv map[string]string) (
		executor.Spec, error)
}

// Provider gives attempts the addresses of the services that they use.
type Provider struct {
	Node      *node.Node
	Directory *addresses.Directory
	Specs     Specs
	Facts     func() cluster.Facts
}

// Follower gives one attempt the addresses of the services that it uses. The task's goroutine calls Advance and
// the goroutine of a step calls Place; one goroutine of its own applies changes.
type Follower struct {
	*Provider
	id         attempt.ID
	attempt    Attempt
	containers Signaller

	// mu is held while files are written.
	mu sync.Mutex
	// following is set before the first container that uses services is made.
	following  *addresses.Following
	allRunning chan struct{} // capacity 1: all containers run
	knownUp    time.Duration // Up of the round that the goroutine knows; used by the task's goroutine only
	// problem is a message for users about a running task, nil for none.
	problem atomic.Pointer[string]
}

// ForTask returns a follower that follows no service yet.
func (p *Provider) ForTask(id attempt.ID, user Attempt, containers Signaller) *Follower {
	return &Follower{Provider: p, id: id, attempt: user, containers: containers}
}

// folder returns the folder of a container's rendered content.
func (s *Follower) folder(c *cluster.Container) renderedFolder {
	return renderedFolder{filepath.Join(s.Node.TaskDir(s.id.UUID), renderedDir, c.Name), c}
}

// Message returns the message for users about a running task, "" for none.
func (s *Follower) Message() string {
	if p := s.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// RemoveFiles removes the folder with all files of the attempt. No rendered files are written during the removal, and
// none afterwards because the attempt has ended.
func (s *Follower) RemoveFiles(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return os.RemoveAll(dir)
}

// Advance starts to follow the services of the definition, and wakes the following goroutine once all containers of a
// round run. It is called on the task's goroutine.
func (s *Follower) Advance(ctx context.Context, rec *attempt.Record, def *cluster.TaskDefinition) {
	if def == nil || s.Node.Volatile || !def.FollowsServices() || rec.Terminal() {
		return
	}
	if s.following == nil {
		var names []addresses.ServiceName
		for _, n := range def.Services(rec.Desired.Owner.Cluster) {
			names = append(names, addresses.ServiceName(n))
		}
		s.allRunning = make(chan struct{}, 1)
		s.following = s.Directory.Follow(names...)
		s.Node.Go(func() { s.follow(ctx) })
	}
	if up := rec.Up; up != s.knownUp {
		if s.knownUp = up; up != 0 {
			node.Nudge(s.allRunning)
		}
	}
}

// await waits until each service that a container needs has a healthy task, and reports the reason until then.
// After a wait it also waits until the services have settled. Without an answer from a server it continues with the
// last known addresses.
func (s *Follower) await(ctx context.Context, c *cluster.Container, own string) (lookup, error) {
	f, last := s.following, s.folder(c).last()
	staleTimer := time.NewTimer(staleAddressTimeout)
	defer staleTimer.Stop()
	mayWait, waited := true, false
	for {
		changed := f.Changed()
		l := s.lookUp(c, own)
		if !mayWait {
			l = l.with(last, slices.DeleteFunc(slices.Clone(l.stale), func(p cluster.ServicePort) bool {
				return len(l.services[p]) > 0
			}))
		}
		if len(l.empty) == 0 && (len(l.stale) == 0 || !mayWait) {
			if !waited { // others may become healthy as well
				return l, nil
			}
			if waited = false; !s.waitUntilSettled(ctx) {
				return l, cmp.Or(ctx.Err(), context.Canceled)
			}
			continue
		}
		waited = waited || len(l.stale) == 0
		if l.waits != "" {
			s.attempt.Note(c.Name, "waiting for services: "+l.waits)
		}
		select {
		case <-ctx.Done():
			return l, ctx.Err()
		case <-changed:
		case <-staleTimer.C:
			mayWait = false
		}
	}
}

// Place waits for the services of a container, writes its rendered files, and adds the files and variables to
// its spec.
func (s *Follower) Place(ctx context.Context, d *cluster.Desired, def *cluster.TaskDefinition, i int,
	spec *executor.Spec,
) error {
	c := &def.Containers[i]
	if !c.FollowsServices() || s.Node.Volatile {
		return nil
	}
	l, err := s.await(ctx, c, d.Owner.Cluster)
	if err != nil {
		return err
	}
	made, err := s.render(d, def, i, l)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	folder := s.folder(c)
	if err := folder.write(made); err != nil {
		return err
	}
	if err := folder.saveLast(made); err != nil {
		return err
	}
	spec.Env, spec.Container.Command, spec.Container.Args = made.spec.Env, made.spec.Container.Command,
		made.spec.Container.Args
	spec.Rendered = folder.mounts()
	folders := c.TemplateFolders()
	spec.Container.Files = slices.DeleteFunc(slices.Clone(spec.Container.Files), func(f cluster.File) bool {
		return f.InFolder(folders) >= 0
	})
	return nil
}

// follow applies changes of the services until the attempt is over or ctx ends.
func (s *Follower) follow(ctx context.Context) {
	f := s.following
	defer f.Stop()
	var r renewals
	timer := time.NewTimer(0)
	defer timer.Stop()
	p := s.Node.NewBackoff(node.MinRetryBackoff, node.FastProbeInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.attempt.Ended():
			return
		case <-timer.C:
		case <-s.allRunning:
		case <-f.Changed():
			if !s.waitUntilSettled(ctx) {
				return
			}
		}
		next, err := s.updateContainers(ctx, &r)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.Node.Logger.Warn("changes of services could not be passed to a task; the agent tries again",
				"task", s.id.Task, "attempt", s.id.Attempt, "error", err)
			next = p.Next()
		default:
			p.Reset()
		}
		if timer.Stop(); next > 0 {
			timer.Reset(next)
		}
	}
}

// waitUntilSettled waits until nothing has changed for a while, and returns false if the attempt is over or ctx ended.
func (s *Follower) waitUntilSettled(ctx context.Context) bool {
	most, rest := time.NewTimer(maxSettleTime), time.NewTimer(settleTime)
	defer most.Stop()
	defer rest.Stop()
	for {
		s.markAllSeen()
		select {
		case <-ctx.Done():
			return false
		case <-s.attempt.Ended():
			return false
		case <-most.C:
			return true
		case <-rest.C:
			return true
		case <-s.following.Changed():
			rest.Reset(settleTime)
		}
	}
}

// markAllSeen reads all followed services, so that only later changes count.
func (s *Follower) markAllSeen() {
	for _, n := range s.following.Names() {
		s.following.Now(n)
	}
}

// updateContainers applies changes to all containers of a running task. It returns when to try again, 0 for never.
func (s *Follower) updateContainers(ctx context.Context, r *renewals) (again time.Duration, err error) {
	s.markAllSeen()
	v := s.attempt.View()
	if v == nil || v.Definition == nil || !v.Record.IsUp() {
		return 0, nil // containers that are still to be made get the changes then
	}
	var renew, problems []string
	for i := range v.Definition.Containers {
		c := &v.Definition.Containers[i]
		if !c.FollowsServices() || i >= len(v.Record.Containers) || v.Record.Containers[i].Progress != attempt.Running {
			continue
		}
		why, problem, err := s.updateContainer(ctx, v, i)
		if err != nil {
			return 0, err
		}
		renew, problems = append(renew, why...), append(problems, problem...)
	}
	s.setProblem(strings.Join(problems, "; "))
	if len(renew) == 0 {
		r.due = 0
		return 0, nil
	}
	now, round := s.Node.Boot(), v.Record.Round
	if wait := r.plan(round, splay(&v.Record.Desired), now); wait > 0 {
		return wait, nil
	}
	r.noteRestart(now)
	slices.Sort(renew)
	why := strings.Join(slices.Compact(renew), "; ")
	s.attempt.Renew(round, why)
	return 0, nil
}

// updateContainer renders the content of a running container, replaces its files, and sends the requested signals. Last
// it records the content, so that a run after a crash repeats unfinished work. It returns why the task must restart. In
// that case it records nothing: making the next round's container does that. problem is a message for users.
func (s *Follower) updateContainer(ctx context.Context, v *attempt.View, i int) (renew, problem []string, err error) {
	c, d := &v.Definition.Containers[i], &v.Record.Desired
	folder := s.folder(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	last := folder.last()
	select {
	case <-s.attempt.Ended():
		return nil, nil, nil // its folders may be gone
	default:
	}
	if last == nil {
		return nil, nil, nil // its file is missing or damaged: no content to compare with
	}
	l := s.lookUp(c, d.Owner.Cluster)
	if l.waits != "" && len(l.stale) == 0 {
		problem = append(problem, l.waits+": container "+c.Name+" continues with the last addresses")
	}
	l = l.with(last, slices.Concat(l.stale, l.empty))
	m, err := s.render(d, v.Definition, i, l)
	if err != nil {
		return nil, append(problem, err.Error()+"; its files stay as they are"), nil
	}
	restart, signals, changed := folder.differs(m, last)
	if !changed {
		return nil, problem, folder.write(m) // a crash may have left one of two files
	}
	if err := folder.write(m); err != nil {
		return nil, problem, err
	}
	if restart && !d.Batch() {
		return []string{last.changes(m)}, problem, nil
	}
	for _, signal := range signals {
		if err := s.containers.Signal(ctx, c.Name, signal); err != nil {
			return nil, problem, err
		}
	}
	s.Node.Logger.Info("changes of services were passed to a container",
		"task", s.id.Task, "attempt", s.id.Attempt, "container", c.Name, "reason", last.changes(m), "signals", signals)
	return nil, problem, folder.saveLast(m)
}

// setProblem sets the task's message for users, "" for none.
func (s *Follower) setProblem(text string) {
	var next *string
	if text != "" {
		next = &text
	}
	before := s.problem.Swap(next)
	if (before == nil) != (next == nil) || before != nil && *before != text {
		s.attempt.WakeUp()
	}
}

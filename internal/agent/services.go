package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Tasks get the addresses of the services that they use in variables and in files made from templates. A container is
// made once each service that it needs has a healthy task. Afterwards one goroutine for each such task follows the
// services. When the services have settled, the goroutine renders the files again. If the result differs from what the
// program got, the goroutine replaces the file and applies the definition's on_change.

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

// serviceState is what a task knows about the services that it uses.
type serviceState struct {
	// mu is held while files are written.
	mu sync.Mutex
	// following is set before the first container that uses services is made.
	following  *following
	allRunning chan struct{} // capacity 1: all containers run
	knownUp    time.Duration // Up of the round that the goroutine knows; used by the task's goroutine only
	// trouble is a message for users about a running task, nil for none.
	trouble atomic.Pointer[string]
}

// followServices starts to follow the services of the definition, and wakes the following goroutine once all containers
// of a round run. It is called on the task's goroutine.
func (t *task) followServices(ctx context.Context, def *cluster.TaskDefinition) {
	if def == nil || t.agent.Volatile || !def.FollowsServices() || t.rec.Terminal() {
		return
	}
	if t.services.following == nil {
		var names []serviceName
		for _, n := range def.Services(t.rec.Desired.Owner.Cluster) {
			names = append(names, serviceName(n))
		}
		t.services.allRunning = make(chan struct{}, 1)
		t.services.following = t.agent.directory().follow(names...)
		t.agent.work.Go(func() { t.follow(ctx) })
	}
	if up := t.rec.Up; up != t.services.knownUp {
		if t.services.knownUp = up; up != 0 {
			nudge(t.services.allRunning)
		}
	}
}

// lookup is the current state of the services that a container uses.
type lookup struct {
	services map[cluster.ServicePort][]cluster.TemplateAddress
	// stale lists services whose addresses may be out of date; empty lists required services without an address.
	stale, empty []cluster.ServicePort
	// waits says why the services in empty have no address, in one sentence.
	waits string
}

// lookUp collects the state of all services that a container uses.
func (t *task) lookUp(c *cluster.Container, own string) lookup {
	l := lookup{services: map[cluster.ServicePort][]cluster.TemplateAddress{}}
	var why []string
	for _, need := range c.Needs() {
		at := t.services.following.now(serviceName(need.In(own)))
		var list []cluster.TemplateAddress
		for i := range at.Addresses {
			a := &at.Addresses[i]
			if port := a.Ports[need.Port]; port != 0 || need.Port == "" {
				list = append(list, cluster.TemplateAddress{Address: a.Address, Port: port, Node: a.Node, Task: a.Task})
			}
		}
		l.services[need.ServicePort] = list
		if !at.Known || at.Stale {
			l.stale = append(l.stale, need.ServicePort)
		}
		if len(list) == 0 && !need.Optional {
			l.empty = append(l.empty, need.ServicePort)
			why = append(why, missingReason(need.ServicePort, at, own))
		}
	}
	l.waits = strings.Join(why, "; ")
	return l
}

// missingReason says why a service has no address.
func missingReason(p cluster.ServicePort, at serviceAddresses, own string) string {
	name := p.String()
	switch {
	case !at.Known:
		return fmt.Sprintf("no server has told yet where service %s is reached", name)
	case at.Missing:
		return fmt.Sprintf("there is no service %s in cluster %s", p.Service, cmp.Or(p.Cluster, own))
	case len(at.Addresses) == 0:
		return fmt.Sprintf("service %s has no healthy task", name)
	}
	ports := map[string]bool{}
	for i := range at.Addresses {
		for port := range at.Addresses[i].Ports { // order-free: sortedKeys sorts them
			ports[port] = true
		}
	}
	if len(ports) == 0 {
		return fmt.Sprintf("service %s has no port %q: it has none", name, p.Port)
	}
	return fmt.Sprintf("service %s has no port %q: it has %s", name, p.Port, strings.Join(sortedKeys(ports), ", "))
}

// awaitServices waits until each service that a container needs has a healthy task, and reports the reason meanwhile.
// After a wait it also waits until the services have settled. Without an answer from a server it continues with the
// last known addresses.
func (t *task) awaitServices(ctx context.Context, c *cluster.Container, own string) (lookup, error) {
	f, last := t.services.following, t.renderedFolder(c).last()
	staleTimer := time.NewTimer(staleAddressTimeout)
	defer staleTimer.Stop()
	mayWait, waited := true, false
	for {
		changed := f.changed()
		l := t.lookUp(c, own)
		if !mayWait {
			l = l.with(last, slices.DeleteFunc(slices.Clone(l.stale), func(p cluster.ServicePort) bool {
				return len(l.services[p]) > 0
			}))
		}
		if len(l.empty) == 0 && (len(l.stale) == 0 || !mayWait) {
			if !waited { // others may become healthy as well
				return l, nil
			}
			if waited = false; !t.waitUntilSettled(ctx) {
				return l, cmp.Or(ctx.Err(), context.Canceled)
			}
			continue
		}
		waited = waited || len(l.stale) == 0
		if l.waits != "" {
			t.progress(c.Name)("waits for services: " + l.waits)
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

// with returns the lookup with the container's last addresses in place of those of some services.
func (l lookup) with(last *lastContent, instead []cluster.ServicePort) lookup {
	if last == nil || len(instead) == 0 {
		return l
	}
	l.services = maps.Clone(l.services)
	for _, p := range instead {
		if list := last.addresses(p); len(list) > 0 {
			l.services[p] = list
			l.empty = slices.DeleteFunc(slices.Clone(l.empty), func(e cluster.ServicePort) bool { return e == p })
		}
	}
	return l
}

// variables returns the environment variables with the addresses of a container's services.
func (l lookup) variables(c *cluster.Container) map[string]string {
	env := map[string]string{}
	for _, u := range c.Services {
		if u.Env == "" {
			continue
		}
		var words []string
		name := cluster.ServiceName{Cluster: u.Cluster, Service: u.Service}
		for _, a := range l.services[cluster.ServicePort{ServiceName: name, Port: u.Port}] {
			words = append(words, a.String())
		}
		env[u.Env] = strings.Join(words, ",")
	}
	return env
}

// placeServices waits for the services of a container, writes its rendered files, and adds the files and variables to
// its spec.
func (t *task) placeServices(ctx context.Context, d *cluster.Desired, def *cluster.TaskDefinition, i int,
	spec *executor.Spec,
) error {
	c := &def.Containers[i]
	if !c.FollowsServices() || t.agent.Volatile {
		return nil
	}
	l, err := t.awaitServices(ctx, c, d.Owner.Cluster)
	if err != nil {
		return err
	}
	made, err := t.render(d, def, i, l)
	if err != nil {
		return err
	}
	t.services.mu.Lock()
	defer t.services.mu.Unlock()
	folder := t.renderedFolder(c)
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
	spec.Container.Files = slices.DeleteFunc(slices.Clone(c.Files), func(f cluster.File) bool {
		return f.InFolder(folders) >= 0
	})
	return nil
}

// renderedContent is the content that a container gets from the services.
type renderedContent struct {
	spec   executor.Spec
	texts  []string // of the container's files, by index; only those in template folders
	env    map[string]string
	lookup lookup
}

// render renders the files and variables of a container.
func (t *task) render(d *cluster.Desired, def *cluster.TaskDefinition, i int, l lookup) (renderedContent, error) {
	a, c := t.agent, &def.Containers[i]
	m := renderedContent{env: l.variables(c), lookup: l, texts: make([]string, len(c.Files))}
	var err error
	if m.spec, err = a.spec(d, def, i, "", m.env); err != nil {
		return m, err
	}
	in := cluster.TemplateInput{Services: l.services, Env: map[string]string{}}
	for _, kv := range m.spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		in.Env[name] = value
	}
	facts := a.machine.facts()
	in.Node = cluster.TemplateNode{Name: a.Name, Address: facts.Address, Arch: facts.Arch, Labels: facts.Labels}
	parts, _ := d.Task.Parts()
	in.Task = cluster.TemplateTask{ID: string(d.Task), Cluster: d.Owner.Cluster, Index: parts.Index, Count: d.Count}
	if d.Batch() {
		in.Task.Job, in.Task.Step = d.Owner.Name, parts.Step
	} else {
		in.Task.Service = d.Owner.Name
	}
	folders := c.TemplateFolders()
	for n := range c.Files {
		f := &c.Files[n]
		switch {
		case f.InFolder(folders) < 0:
		case !f.Template:
			m.texts[n] = f.Content
		default:
			text, faults := cluster.ParseTemplate(f.Content)
			if faults != nil {
				return m, fmt.Errorf("container %s: file %s: %w", c.Name, f.Path, faults)
			}
			if m.texts[n], err = text.Render(&in); err != nil {
				return m, fmt.Errorf("container %s: file %s: %w", c.Name, f.Path, err)
			}
		}
	}
	return m, nil
}

// follow applies changes of the services until the attempt is over or ctx ends.
func (t *task) follow(ctx context.Context) {
	f := t.services.following
	defer f.stop()
	var r renewals
	timer := time.NewTimer(0)
	defer timer.Stop()
	p := t.agent.newBackoff(minRetryBackoff, fastProbeInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.ended:
			return
		case <-timer.C:
		case <-t.services.allRunning:
		case <-f.changed():
			if !t.waitUntilSettled(ctx) {
				return
			}
		}
		next, err := t.updateContainers(ctx, &r)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.agent.Logger.Warn("changes of services could not be passed to a task; the agent tries again",
				"task", t.id, "attempt", t.attempt, "error", err)
			next = p.next()
		default:
			p.reset()
		}
		if timer.Stop(); next > 0 {
			timer.Reset(next)
		}
	}
}

// waitUntilSettled waits until nothing has changed for a while, and returns false if the attempt is over or ctx ended.
func (t *task) waitUntilSettled(ctx context.Context) bool {
	most, rest := time.NewTimer(maxSettleTime), time.NewTimer(settleTime)
	defer most.Stop()
	defer rest.Stop()
	for {
		t.markAllSeen()
		select {
		case <-ctx.Done():
			return false
		case <-t.ended:
			return false
		case <-most.C:
			return true
		case <-rest.C:
			return true
		case <-t.services.following.changed():
			rest.Reset(settleTime)
		}
	}
}

// markAllSeen reads all followed services, so that only later changes count as news.
func (t *task) markAllSeen() {
	for _, n := range t.services.following.names() {
		t.services.following.now(n)
	}
}

// renewals are the restarts of one task for changes of services.
type renewals struct {
	due    time.Duration // when the next restart is due, 0 for none (Boot)
	round  int           // the round that the restart ends
	last   time.Duration // when the last restart was, 0 for never (Boot)
	streak int
}

// plan returns how long to wait before the restart of a round, at most 0 once it is due.
func (r *renewals) plan(round int, splay, now time.Duration) time.Duration {
	if r.due == 0 || r.round != round {
		r.round, r.due = round, now+splay
		if rest := min(minRenewalInterval<<min(r.streak, 10), maxRenewalInterval); r.last != 0 {
			r.due = max(r.due, r.last+rest)
		}
	}
	return r.due - now
}

// noteRestart records that a restart was requested.
func (r *renewals) noteRestart(now time.Duration) {
	if r.last != 0 && now-r.last < 2*maxRenewalInterval {
		r.streak++
	} else {
		r.streak = 0
	}
	r.last, r.due = now, 0
}

// splay is how long a task waits before it restarts for a change, so that the tasks of a service restart one after the
// other.
func splay(d *cluster.Desired) time.Duration {
	parts, _ := d.Task.Parts()
	count := max(d.Count, 1)
	all := min(splayStep.Seconds()*float64(count-1), maxSplay.Seconds())
	return time.Duration(all * float64(parts.Index%count) / float64(count) * float64(time.Second))
}

// updateContainers applies changes to all containers of a running task. It returns when to try again, 0 for never.
func (t *task) updateContainers(ctx context.Context, r *renewals) (again time.Duration, err error) {
	t.markAllSeen()
	v := t.view.Load()
	if v == nil || v.def == nil || !v.rec.IsUp() {
		return 0, nil // containers that are still to be made get the changes then
	}
	var renew, trouble []string
	for i := range v.def.Containers {
		c := &v.def.Containers[i]
		if !c.FollowsServices() || i >= len(v.rec.Containers) || v.rec.Containers[i].Progress != attempt.Running {
			continue
		}
		why, problem, err := t.updateContainer(ctx, v, i)
		if err != nil {
			return 0, err
		}
		renew, trouble = append(renew, why...), append(trouble, problem...)
	}
	t.setTrouble(strings.Join(trouble, "; "))
	if len(renew) == 0 {
		r.due = 0
		return 0, nil
	}
	now, round := t.agent.Boot(), v.rec.Round
	if wait := r.plan(round, splay(&v.rec.Desired), now); wait > 0 {
		return wait, nil
	}
	r.noteRestart(now)
	slices.Sort(renew)
	why := strings.Join(slices.Compact(renew), "; ")
	t.post(func(rec *attempt.Record) {
		if rec.Renew(round, why) {
			t.agent.Logger.Info("a task is restarted in place", "task", t.id, "attempt", t.attempt, "reason", why)
		}
	})
	return 0, nil
}

// updateContainer renders the content of a running container, replaces its files, and sends the requested signals. Last
// it records the content, so that a run after a crash repeats unfinished work. It returns why the task must restart. In
// that case it records nothing: making the next round's container does that. problem is a message for users.
func (t *task) updateContainer(ctx context.Context, v *view, i int) (renew, problem []string, err error) {
	c, d := &v.def.Containers[i], &v.rec.Desired
	folder := t.renderedFolder(c)
	t.services.mu.Lock()
	defer t.services.mu.Unlock()
	last := folder.last()
	select {
	case <-t.ended:
		return nil, nil, nil // its folders may be gone
	default:
	}
	if last == nil {
		return nil, nil, nil // made by an older build without this record
	}
	l := t.lookUp(c, d.Owner.Cluster)
	if l.waits != "" && len(l.stale) == 0 {
		problem = append(problem, l.waits+": container "+c.Name+" goes on with the last addresses")
	}
	l = l.with(last, slices.Concat(l.stale, l.empty))
	m, err := t.render(d, v.def, i, l)
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
		if err := t.signalContainer(ctx, c.Name, signal); err != nil {
			return nil, problem, err
		}
	}
	t.agent.Logger.Info("changes of services were passed to a container",
		"task", t.id, "attempt", t.attempt, "container", c.Name, "reason", last.changes(m), "signals", signals)
	return nil, problem, folder.saveLast(m)
}

// setTrouble sets the task's message for users, "" for none.
func (t *task) setTrouble(text string) {
	var next *string
	if text != "" {
		next = &text
	}
	before := t.services.trouble.Swap(next)
	if (before == nil) != (next == nil) || before != nil && *before != text {
		t.wakeUp()
	}
}

// canFollow reports whether the agent can follow services.
func (a *Agent) canFollow() bool {
	_, asks := a.Source.(addressSource)
	return asks && !a.Volatile
}

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

// Tasks are told where the services are reached that they use: in variables, and in files that are made from templates.
// A container is made once all that it needs has a healthy task. Afterwards one goroutine for each such task follows
// the services: when they come to rest it makes the texts anew, and where one is another than what the program was told
// it replaces the file and does what the definition says.

const (
	// quietFor is for how long nothing may change until changes are taken in, and quietMost for how long they are
	// waited for.
	quietFor, quietMost = time.Second, 10 * time.Second
	// oldPatience is how long a start waits for a server to say whether what an earlier life of the agent was told is
	// still so.
	oldPatience = 3 * time.Second
	// splayStep is how far apart the tasks of a service restart for a change, and splayMost how long all of them take.
	splayStep, splayMost = 5 * time.Second, time.Minute
	// renewalRest is the least time between two restarts for changes of one task; it doubles with each that comes
	// within renewalCalm of the last, up to that: services that restart each other come to rest.
	renewalRest, renewalCalm = 30 * time.Second, 10 * time.Minute
)

// told is what a task knows of the services that it uses.
type told struct {
	// mu is held while the files are written.
	mu sync.Mutex
	// following is set before a container is made that uses services.
	following *following
	poke      chan struct{} // capacity 1: all containers run, so look
	up        time.Duration // of the round that the goroutine was told of; the task's goroutine's alone
	// trouble is what people should know of a task that runs, nil for nothing.
	trouble atomic.Pointer[string]
}

// followServices begins to follow what the definition names, and has its goroutine look once all containers of a round
// run. It is called on the task's goroutine.
func (t *task) followServices(ctx context.Context, def *cluster.TaskDefinition) {
	if def == nil || t.agent.Volatile || !def.Follows() || t.rec.Terminal() {
		return
	}
	if t.services.following == nil {
		var names []serviceName
		for _, n := range def.Services(t.rec.Desired.Owner.Cluster) {
			names = append(names, serviceName(n))
		}
		t.services.poke = make(chan struct{}, 1)
		t.services.following = t.agent.directory().follow(names...)
		t.agent.work.Go(func() { t.follow(ctx) })
	}
	if up := t.rec.Up; up != t.services.up {
		if t.services.up = up; up != 0 {
			nudge(t.services.poke)
		}
	}
}

// lookup is what is known now of the services that a container uses.
type lookup struct {
	services map[cluster.ServicePort][]cluster.TemplateAddress
	// old are those of which it is not known whether it is still so, and empty those that are needed and have no
	// address.
	old, empty []cluster.ServicePort
	// waits says of the latter why, in one sentence.
	waits string
}

// lookUp looks at all services that a container uses.
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
		if !at.Known || at.Old {
			l.old = append(l.old, need.ServicePort)
		}
		if len(list) == 0 && !need.Optional {
			l.empty = append(l.empty, need.ServicePort)
			why = append(why, lackOf(need.ServicePort, at, own))
		}
	}
	l.waits = strings.Join(why, "; ")
	return l
}

// lackOf says why there is no address of a service.
func lackOf(p cluster.ServicePort, at serviceAddresses, own string) string {
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
		for port := range at.Addresses[i].Ports { // order-free: they are sorted
			ports[port] = true
		}
	}
	if len(ports) == 0 {
		return fmt.Sprintf("service %s has no port %q: it has none", name, p.Port)
	}
	return fmt.Sprintf("service %s has no port %q: it has %s", name, p.Port, strings.Join(sortedKeys(ports), ", "))
}

// awaitServices waits until all that a container needs has a healthy task, and says meanwhile what it waits for; once
// it has waited, until nothing changes for a while. Where no server answers it goes on with what was told before.
func (t *task) awaitServices(ctx context.Context, c *cluster.Container, own string) (lookup, error) {
	f, last := t.services.following, t.renderedOf(c).told()
	patience := time.NewTimer(oldPatience)
	defer patience.Stop()
	patient, waited := true, false
	for {
		changed := f.changed()
		l := t.lookUp(c, own)
		if !patient {
			l = l.with(last, slices.DeleteFunc(slices.Clone(l.old), func(p cluster.ServicePort) bool {
				return len(l.services[p]) > 0
			}))
		}
		if len(l.empty) == 0 && (len(l.old) == 0 || !patient) {
			if !waited { // others may become healthy as well
				return l, nil
			}
			if waited = false; !t.quiet(ctx) {
				return l, cmp.Or(ctx.Err(), context.Canceled)
			}
			continue
		}
		waited = waited || len(l.old) == 0
		if l.waits != "" {
			t.progress(c.Name)("waits for services: " + l.waits)
		}
		select {
		case <-ctx.Done():
			return l, ctx.Err()
		case <-changed:
		case <-patience.C:
			patient = false
		}
	}
}

// with returns the lookup with what the container was told last in place of some of its services.
func (l lookup) with(last *toldLast, instead []cluster.ServicePort) lookup {
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

// variables returns those of a container's services.
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

// placeServices waits for what a container uses, writes its files that are made from templates, and names these and its
// variables in its spec.
func (t *task) placeServices(ctx context.Context, d *cluster.Desired, def *cluster.TaskDefinition, i int,
	spec *executor.Spec,
) error {
	c := &def.Containers[i]
	if !c.Follows() || t.agent.Volatile {
		return nil
	}
	l, err := t.awaitServices(ctx, c, d.Owner.Cluster)
	if err != nil {
		return err
	}
	made, err := t.make(d, def, i, l)
	if err != nil {
		return err
	}
	t.services.mu.Lock()
	defer t.services.mu.Unlock()
	box := t.renderedOf(c)
	if err := box.write(made); err != nil {
		return err
	}
	if err := box.note(made); err != nil {
		return err
	}
	spec.Env, spec.Container.Command, spec.Container.Args = made.spec.Env, made.spec.Container.Command,
		made.spec.Container.Args
	spec.Rendered = box.mounts()
	folders := c.TemplateFolders()
	spec.Container.Files = slices.DeleteFunc(slices.Clone(c.Files), func(f cluster.File) bool {
		return f.InFolder(folders) >= 0
	})
	return nil
}

// made is what there is to be told to a container.
type made struct {
	spec  executor.Spec
	texts []string // of the container's files, by index; only those in folders of templates
	env   map[string]string
	look  lookup
}

// make makes the texts and variables of a container.
func (t *task) make(d *cluster.Desired, def *cluster.TaskDefinition, i int, l lookup) (made, error) {
	a, c := t.agent, &def.Containers[i]
	m := made{env: l.variables(c), look: l, texts: make([]string, len(c.Files))}
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

// follow takes in changes of the services until the attempt is over, or ctx.
func (t *task) follow(ctx context.Context) {
	f := t.services.following
	defer f.stop()
	var r renewals
	timer := time.NewTimer(0)
	defer timer.Stop()
	p := t.agent.pause(retryFirst, lookSoon)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.ended:
			return
		case <-timer.C:
		case <-t.services.poke:
		case <-f.changed():
			if !t.quiet(ctx) {
				return
			}
		}
		next, err := t.retell(ctx, &r)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.agent.Logger.Warn("a task cannot be told of changes of services; it is tried again", "task", t.id,
				"attempt", t.attempt, "error", err)
			next = p.next()
		default:
			p.reset()
		}
		if timer.Stop(); next > 0 {
			timer.Reset(next)
		}
	}
}

// quiet waits until nothing has changed for a while, and returns false where there is nobody left to tell.
func (t *task) quiet(ctx context.Context) bool {
	most, rest := time.NewTimer(quietMost), time.NewTimer(quietFor)
	defer most.Stop()
	defer rest.Stop()
	for {
		t.lookAll()
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
			rest.Reset(quietFor)
		}
	}
}

// lookAll looks at all that is followed, so that it is known what changes later.
func (t *task) lookAll() {
	for _, n := range t.services.following.names() {
		t.services.following.now(n)
	}
}

// renewals are the restarts of one task for changes.
type renewals struct {
	due    time.Duration // when the next one is, 0 for none (Boot)
	round  int           // that it ends
	last   time.Duration // when the last one was, 0 for never (Boot)
	streak int
}

// plan returns how long the restart of a round is waited for, at most 0 once it is due.
func (r *renewals) plan(round int, splay, now time.Duration) time.Duration {
	if r.due == 0 || r.round != round {
		r.round, r.due = round, now+splay
		if rest := min(renewalRest<<min(r.streak, 10), renewalCalm); r.last != 0 {
			r.due = max(r.due, r.last+rest)
		}
	}
	return r.due - now
}

// did notes that one was asked for.
func (r *renewals) did(now time.Duration) {
	if r.last != 0 && now-r.last < 2*renewalCalm {
		r.streak++
	} else {
		r.streak = 0
	}
	r.last, r.due = now, 0
}

// splay is how long a task waits until it restarts for a change, so that not all tasks of a service do so at once.
func splay(d *cluster.Desired) time.Duration {
	parts, _ := d.Task.Parts()
	count := max(d.Count, 1)
	all := min(splayStep.Seconds()*float64(count-1), splayMost.Seconds())
	return time.Duration(all * float64(parts.Index%count) / float64(count) * float64(time.Second))
}

// retell tells all containers of a task that runs what has changed for them. It returns when to look again, 0 for no
// time.
func (t *task) retell(ctx context.Context, r *renewals) (again time.Duration, err error) {
	t.lookAll()
	v := t.view.Load()
	if v == nil || v.def == nil || !v.rec.IsUp() {
		return 0, nil // those that are made learn it by that
	}
	var renew, trouble []string
	for i := range v.def.Containers {
		c := &v.def.Containers[i]
		if !c.Follows() || i >= len(v.rec.Containers) || v.rec.Containers[i].Progress != attempt.Running {
			continue
		}
		why, problem, err := t.retellOne(ctx, v, i)
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
	r.did(now)
	slices.Sort(renew)
	why := strings.Join(slices.Compact(renew), "; ")
	t.post(func(rec *attempt.Record) {
		if rec.Renew(round, why) {
			t.agent.Logger.Info("a task is restarted in place", "task", t.id, "attempt", t.attempt, "reason", why)
		}
	})
	return 0, nil
}

// retellOne makes what a container that runs is to be told, replaces its files, and sends the signals that are asked
// for. Then it is noted what the program was told: what a crash between leaves is done again. It returns why the task
// has to be restarted for it; nothing is noted then, as the next round is told by its making. Problem is what people
// should know.
func (t *task) retellOne(ctx context.Context, v *view, i int) (renew, problem []string, err error) {
	c, d := &v.def.Containers[i], &v.rec.Desired
	box := t.renderedOf(c)
	t.services.mu.Lock()
	defer t.services.mu.Unlock()
	last := box.told()
	select {
	case <-t.ended:
		return nil, nil, nil // its folders may be gone
	default:
	}
	if last == nil {
		return nil, nil, nil // made by a build that knew nothing of it
	}
	l := t.lookUp(c, d.Owner.Cluster)
	if l.waits != "" && len(l.old) == 0 {
		problem = append(problem, l.waits+": container "+c.Name+" goes on with the last addresses")
	}
	l = l.with(last, slices.Concat(l.old, l.empty))
	m, err := t.make(d, v.def, i, l)
	if err != nil {
		return nil, append(problem, err.Error()+"; its files stay as they are"), nil
	}
	restart, signals, changed := box.differs(m, last)
	if !changed {
		return nil, problem, box.write(m) // a crash may have left one of two
	}
	if err := box.write(m); err != nil {
		return nil, problem, err
	}
	if restart && !d.Batch() {
		return []string{last.changes(m)}, problem, nil
	}
	for _, signal := range signals {
		if err := t.tellProgram(ctx, c.Name, signal); err != nil {
			return nil, problem, err
		}
	}
	t.agent.Logger.Info("a container was told of changes of services", "task", t.id, "attempt", t.attempt, "container",
		c.Name,
		"reason", last.changes(m), "signals", signals)
	return nil, problem, box.note(m)
}

// setTrouble has the task say something, or nothing.
func (t *task) setTrouble(text string) {
	var next *string
	if text != "" {
		next = &text
	}
	before := t.services.trouble.Swap(next)
	if (before == nil) != (next == nil) || before != nil && *before != text {
		t.again()
	}
}

// canFollow reports whether the agent can tell tasks of services.
func (a *Agent) canFollow() bool {
	_, asks := a.Source.(addressSource)
	return asks && !a.Volatile
}

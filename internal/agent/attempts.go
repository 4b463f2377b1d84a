package agent

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/reports"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// attempts holds the attempts of the node and the definitions that they need. Its lock makes these facts change
// together: an attempt that is added has each definition and the session that arrived before, and gets those that
// arrive later. All methods may be called concurrently.
type attempts struct {
	store   *state.Store
	reports *reports.Reports

	mu          sync.Mutex
	byUUID      map[string]*task.Task
	byTask      map[cluster.TaskID][]*task.Task // the newest last
	definitions map[cluster.Ref]*cluster.TaskDefinition
	session     attempt.Session
	counters    counters
}

// begin prepares for a run of the agent with the definitions and counters of an earlier run.
func (a *attempts) begin(store *state.Store, saved *state.Saved) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store = store
	a.byUUID, a.byTask = map[string]*task.Task{}, map[cluster.TaskID][]*task.Task{}
	a.definitions, a.session = map[cluster.Ref]*cluster.TaskDefinition{}, attempt.Session{}
	a.counters.begin(store, saved.Counters)
	for _, d := range saved.Definitions {
		a.definitions[d.Ref()] = d
	}
}

// find returns the attempt with the UUID, or the newest attempt of the task where uuid is empty, or nil.
func (a *attempts) find(id cluster.TaskID, uuid string) *task.Task {
	a.mu.Lock()
	defer a.mu.Unlock()
	if uuid != "" {
		return a.byUUID[uuid]
	}
	if all := a.byTask[id]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// has reports whether the agent has the attempt.
func (a *attempts) has(uuid string) bool { return a.find("", uuid) != nil }

// addNew registers a task that is new on the node, as add does.
func (a *attempts) addNew(t *task.Task) {
	a.mu.Lock()
	a.counters.begun(t.ID)
	a.mu.Unlock()
	a.add(t)
}

// add registers a task and gives it the session, and its definition if that is known. Its goroutine has not begun.
func (a *attempts) add(t *task.Task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := t.ID
	a.byUUID[id.UUID] = t
	all := append(a.byTask[id.Task], t)
	slices.SortStableFunc(all, func(x, y *task.Task) int { return x.ID.Attempt - y.ID.Attempt })
	a.byTask[id.Task] = all
	t.Begin(a.definitions[t.DefinitionRef()], a.session)
}

// remove forgets an attempt that has nothing left on the node, unless an event waits in its inbox. All traces of the
// attempt are removed together.
func (a *attempts) remove(t *task.Task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !t.Close() {
		return false
	}
	id := t.ID
	delete(a.byUUID, id.UUID)
	left := slices.DeleteFunc(a.byTask[id.Task], func(other *task.Task) bool { return other == t })
	if a.byTask[id.Task] = left; len(left) == 0 {
		delete(a.byTask, id.Task)
	}
	status := t.Status()
	a.counters.add(&status, time.Now())
	a.reports.Drop(id.UUID)
	a.store.ForgetAttempt(id.UUID)
	return true
}

// statuses returns all attempts, ordered by UUID.
func (a *attempts) statuses() []attempt.Status {
	a.mu.Lock()
	all := make([]attempt.Status, 0, len(a.byUUID))
	for _, t := range a.byUUID { // order-free: sorted below
		all = append(all, t.Status())
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(x, y attempt.Status) int { return cmp.Compare(x.UUID, y.UUID) })
	return all
}

// counts returns the counts of all tasks that are or were on the node, by state.CounterKey. present are their attempts.
func (a *attempts) counts(present []attempt.Status) map[string]Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counters.all(present)
}

// programs returns the ids of tasks by the pids of their running containers.
func (a *attempts) programs() map[int]string {
	pids := map[int]string{}
	for _, s := range a.statuses() {
		if s.View == nil {
			continue
		}
		for i := range s.View.Record.Containers {
			if c := &s.View.Record.Containers[i]; c.Progress == attempt.Running {
				pids[c.Process.Pid] = string(s.Task)
			}
		}
	}
	return pids
}

// images returns the images of the known definitions, by normal name.
func (a *attempts) images() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	used := map[string]bool{}
	for _, d := range a.definitions { // order-free: a set
		for _, name := range d.Images() {
			used[name] = true
		}
	}
	return used
}

// define stores a definition and passes it to the attempts that wait for it. Attempts that have a definition keep it: a
// version has another content only if it was deleted and written again, which it is while no attempt uses it.
func (a *attempts) define(d *cluster.TaskDefinition) {
	a.mu.Lock()
	if known := a.definitions[d.Ref()]; known == nil || !reflect.DeepEqual(known, d) {
		a.definitions[d.Ref()] = d
		a.store.QueueDefinition(d)
	}
	var waiting []*task.Task
	for _, t := range a.byUUID { // order-free: each task is independent
		if t.DefinitionRef() == d.Ref() && t.Definition() == nil {
			waiting = append(waiting, t)
		}
	}
	a.mu.Unlock()
	for _, t := range waiting {
		t.Defined(d)
	}
}

// known returns what the agent has, so that the server sends the rest. It forgets definitions that no attempt needs,
// because the server sends them again on a new stream.
func (a *attempts) known() (have map[string]transport.Known) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have = map[string]transport.Known{}
	needed := map[cluster.Ref]bool{}
	for uuid, t := range a.byUUID { // order-free: a map and a set
		needed[t.DefinitionRef()] = true
		if t.Definition() != nil {
			have[uuid] = t.Known()
		}
	}
	for ref := range a.definitions {
		if !needed[ref] {
			delete(a.definitions, ref)
			a.store.ForgetDefinition(ref)
		}
	}
	return have
}

// beginSession informs the tasks that a session has begun, before its first message arrives.
func (a *attempts) beginSession(s attempt.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = s
	for _, t := range a.byUUID { // order-free: each task is independent
		t.InSession(s)
	}
}

// wakeUp makes all attempts run once more.
func (a *attempts) wakeUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.byUUID { // order-free: each task is independent
		t.WakeUp()
	}
}

package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// witness sees all that is written and every start of a program, and tells what must never be.
type witness struct {
	// meddled says that foreign records were written in the place of Berth's. What was lost by that is found again
	// as well as may be, by what agents report; what was never reported may be placed again, and what is not in a report,
	// such as ports and an older definition, is not charged.
	meddled  bool
	mu       sync.Mutex
	faults   []string
	starts   map[string]int                             // by UUID
	running  map[cluster.TaskID]map[string]bool         // UUIDs of live batch programs
	outcomes map[string][]byte                          // by key, as first seen
	history  map[cluster.TaskID][]string                // what was written of batch tasks
	stopped  map[string]time.Time                       // when a stop was first seen, by UUID
	told     map[string]int                             // events of an end, by task and attempt
	records  map[string]store.Record                    // the engine's
	batches  map[string]store.Record                    // of events, kept when trimmed
	uuids    map[cluster.TaskID]map[int]map[string]bool // of all desired records ever seen
	cpu      map[cluster.Ref]cluster.MilliCPU           // by definition
}

func newWitness() *witness {
	return &witness{
		starts: map[string]int{}, running: map[cluster.TaskID]map[string]bool{}, outcomes: map[string][]byte{},
		history: map[cluster.TaskID][]string{}, stopped: map[string]time.Time{}, told: map[string]int{}, records: map[string]store.Record{}, batches: map[string]store.Record{},
		uuids: map[cluster.TaskID]map[int]map[string]bool{}, cpu: map[cluster.Ref]cluster.MilliCPU{},
	}
}

func (v *witness) fault(format string, args ...any) {
	if len(v.faults) < 20 {
		v.faults = append(v.faults, fmt.Sprintf(format, args...))
	}
}

// fault notes what must never be.
func (c *chaos) fault(format string, args ...any) {
	c.witness.mu.Lock()
	defer c.witness.mu.Unlock()
	c.witness.fault(format, args...)
}

// begins is told by ships of each start of a program.
func (c *chaos) begins(node string, as *transport.Assignment, asked time.Time) {
	v := c.witness
	v.mu.Lock()
	defer v.mu.Unlock()
	if !as.Batch() {
		return
	}
	if v.starts[as.UUID]++; v.starts[as.UUID] > 1 {
		v.fault("%s/%d was started twice in one attempt, on %s; its records were: %s", as.Task, as.Attempt, node,
			strings.Join(v.history[as.Task], "\n\t"))
	}
	if _, err := c.w.engine.Read(context.Background(), p.Outcome(as.Task, as.Attempt)); err == nil {
		v.fault("%s/%d began on %s after its outcome was written", as.Task, as.Attempt, node)
	}
	if at, ok := v.stopped[as.UUID]; ok && at.Before(asked) {
		v.fault("%s/%d began on %s, though it was stopped before its barrier", as.Task, as.Attempt, node)
	}
	if v.running[as.Task] == nil {
		v.running[as.Task] = map[string]bool{}
	}
	v.running[as.Task][as.UUID] = true
	if n := len(v.running[as.Task]); n > 1 {
		v.fault("%d programs of %s run at once", n, as.Task)
	}
}

func (c *chaos) ends(as *transport.Assignment) {
	c.witness.mu.Lock()
	defer c.witness.mu.Unlock()
	delete(c.witness.running[as.Task], as.UUID)
}

// watch follows the engine itself and checks each state that it finds.
func (c *chaos) watch(ctx context.Context) {
	w := c.w.engine.Watch(ctx, string(p), 0)
	defer w.Close()
	for {
		b, err := w.Next(ctx)
		if err != nil {
			return
		}
		c.witness.mu.Lock()
		c.witness.take(b)
		c.witness.judge()
		c.witness.mu.Unlock()
	}
}

func (v *witness) take(b store.Batch) {
	if b.Resync {
		v.records = map[string]store.Record{}
	}
	for _, ch := range b.Changes {
		key := strings.TrimPrefix(ch.Key, string(p))
		v.note(key, ch)
		if ch.Deleted {
			delete(v.records, key)
			continue
		}
		v.records[key] = ch.Record
		noun, _, _ := strings.Cut(key, "/")
		switch noun {
		case "attempt":
			if was, ok := v.outcomes[key]; ok && !bytes.Equal(was, ch.Value) {
				v.fault("the outcome %s was changed from %s to %s", key, was, ch.Value)
			}
			v.outcomes[key] = ch.Value
		case "state":
			d, err := store.Decode[cluster.Desired](ch.Value)
			if err == nil && d.Stop != nil && v.stopped[d.UUID].IsZero() {
				v.stopped[d.UUID] = time.Now()
			}
		case "status":
			v.barrier(strings.TrimPrefix(key, "status/"), ch.Record)
		case "event":
			v.event(ch.Record)
		}
	}
}

// note keeps the history of a job's tasks, for the message of a fault.
func (v *witness) note(key string, ch store.Change) {
	parts := strings.Split(key, "/")
	if len(parts) < 3 {
		return
	}
	task := cluster.TaskID(parts[2])
	if parts[0] == "attempt" {
		task = cluster.TaskID(parts[1])
	}
	if p, ok := task.Parts(); ok && p.Step != "" {
		v.history[task] = append(v.history[task], fmt.Sprintf("%s %d %s: %s", time.Now().Format("04:05.000"), ch.Modified, key, ch.Value))
	}
}

// barrier checks that no start barrier of a job's task was committed after a stop (P4.3).
func (v *witness) barrier(rest string, r store.Record) {
	o, err := store.Decode[cluster.Observed](r.Value)
	if err != nil || o.State != cluster.StateStarting {
		return
	}
	s := v.records["state/"+rest]
	d, err := store.Decode[cluster.Desired](s.Value)
	if err == nil && d.UUID == o.UUID && d.Batch() && d.Stop != nil && s.Modified < r.Modified {
		v.fault("the barrier of %s/%d was passed after its stop was written", o.Task, o.Attempt)
	}
	if a := v.records[fmt.Sprintf("attempt/%s/%d", o.Task, o.Attempt)]; a.Key != "" && a.Modified < r.Modified {
		v.fault("the barrier of %s/%d was passed after its outcome was written", o.Task, o.Attempt)
	}
}

// event counts what the log says of ends; a batch is written once.
func (v *witness) event(r store.Record) {
	if was, ok := v.batches[r.Key]; ok {
		if !bytes.Equal(was.Value, r.Value) {
			v.fault("the event %s was changed", r.Key)
		}
		return
	}
	v.batches[r.Key] = r
	b, err := store.Decode[cluster.EventBatch](r.Value)
	if err != nil {
		v.fault("event %s: %v", r.Key, err)
		return
	}
	for _, e := range b.Events {
		switch cluster.State(strings.TrimPrefix(e.Type, "task.")) {
		case cluster.StateSucceeded, cluster.StateFailed, cluster.StateRejected, cluster.StateLost, cluster.StateCancelled:
			v.told[fmt.Sprintf("attempt/%s/%d", e.Task, e.Attempt)]++
		default:
		}
	}
}

// placed is an attempt as the records of one revision show it.
type placed struct {
	desired  *cluster.Desired
	observed *cluster.Observed
}

// judge checks the records of one revision: what is reserved on nodes, and how many attempts of a task have no outcome.
func (v *witness) judge() {
	all := v.attempts()
	used := map[string]cluster.MilliCPU{}
	ports := map[string]string{}
	live := map[cluster.TaskID]string{}
	for id, a := range all {
		d := a.desired
		key := fmt.Sprintf("attempt/%s/%d", d.Task, d.Attempt)
		_, ended := v.records[key]
		if !ended {
			if other, ok := live[d.Task]; ok {
				v.fault("%s has two attempts without an outcome: %s and %s", d.Task, other, id)
			}
			live[d.Task] = id
		}
		if v.meddled || a.observed != nil && a.observed.Gone {
			continue
		}
		if used[d.Node] += v.cpu[d.Definition]; used[d.Node] > shipCPU {
			v.fault("%s holds %d of %d mCPU, the last of it %s %+v", d.Node, used[d.Node], shipCPU, id, *d)
		}
		for _, port := range d.Ports {
			at := fmt.Sprintf("%s:%d", d.Node, port)
			if ports[at] != "" {
				v.fault("%s is held twice, by %s and %s", at, ports[at], id)
			}
			ports[at] = id
		}
	}
}

// attempts joins plan records, desired records and what was observed, by UUID.
func (v *witness) attempts() map[string]*placed {
	all := map[string]*placed{}
	add := func(d *cluster.Desired, planned bool) {
		key := fmt.Sprintf("attempt/%s/%d", d.Task, d.Attempt)
		if _, ended := v.records[key]; planned && ended {
			return // the plan's word ends with the outcome
		}
		if v.uuids[d.Task] == nil {
			v.uuids[d.Task] = map[int]map[string]bool{}
		}
		of := v.uuids[d.Task]
		if of[d.Attempt] == nil {
			of[d.Attempt] = map[string]bool{}
		}
		if of[d.Attempt][d.UUID] = true; len(of[d.Attempt]) == 2 && !v.meddled {
			v.fault("%s/%d was placed twice", d.Task, d.Attempt)
			of[d.Attempt]["told"] = true
		}
		all[d.UUID] = &placed{desired: d}
	}
	for key, r := range v.records {
		noun, rest, _ := strings.Cut(key, "/")
		switch {
		case noun == "plan":
			if pr, err := store.Decode[cluster.PlanRecord](r.Value); err == nil {
				for i := range pr.Owners {
					for j := range pr.Owners[i].Tasks {
						add(pr.Desired(&pr.Owners[i], &pr.Owners[i].Tasks[j]), true)
					}
				}
			}
		case noun == "state" && strings.Contains(rest, "/"):
			if d, err := store.Decode[cluster.Desired](r.Value); err == nil {
				add(d, false)
			}
		}
	}
	for key, r := range v.records {
		if noun, rest, _ := strings.Cut(key, "/"); noun == "status" && strings.Contains(rest, "/") {
			if o, err := store.Decode[cluster.Observed](r.Value); err == nil && all[o.UUID] != nil {
				all[o.UUID].observed = o
			}
		}
	}
	return all
}

// leftovers tells what should not be there once all is quiet.
func (v *witness) leftovers() (left []string) {
	var newest string
	for key := range v.records {
		if strings.HasPrefix(key, "plan/") && key > newest {
			newest = key
		}
	}
	for key, r := range v.records {
		noun, rest, _ := strings.Cut(key, "/")
		switch {
		case noun == "plan":
			pr, err := store.Decode[cluster.PlanRecord](r.Value)
			settled := r.Created == r.Modified && err == nil && len(pr.Owners) == 0
			if err != nil || len(pr.Owners) > 0 || key != newest && !settled {
				left = append(left, key)
			}
		case (noun == "state" || noun == "status") && strings.Contains(rest, "/"):
			task := cluster.TaskID(rest[strings.Index(rest, "/")+1:])
			parts, _ := task.Parts()
			if parts.Step != "" || v.records["service/"+parts.Cluster+"/"+parts.Owner].Key == "" {
				left = append(left, key)
			}
		}
	}
	return left
}

// ended checks at the end that each outcome was told of once, and nothing that was not written.
func (v *witness) ended() {
	for key, n := range v.told {
		if _, ok := v.outcomes[key]; !ok {
			v.fault("an event tells of the end of %s, which was not written", key)
		} else if n > 1 {
			v.fault("%d events tell of the end of %s", n, key)
		}
	}
	for key := range v.outcomes {
		if v.told[key] == 0 {
			v.fault("no event tells of the end of %s", key)
		}
	}
}

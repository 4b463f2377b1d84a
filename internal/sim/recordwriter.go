package sim

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// hasRecordWriters reports whether programs place the tasks of a domain by records in the store.
func (s *Story) hasRecordWriters(domain string) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.Fault == Records && e.Target == domain })
}

// writesBlindly reports whether such a program writes over whatever is there.
func (s *Story) writesBlindly() bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.Fault == Records && e.Arg == modeSenseless })
}

// addRecordWriters gives a domain the scheduler kv: programs write records, die, return, overlap, are late or write
// anything over anything. Leaders change meanwhile, and the user changes the scheduler.
func (a *generator) addRecordWriters() {
	r := a.random
	domain := cluster.DefaultDomain
	if a.story.claims() && r.IntN(3) == 0 {
		domain = otherDomain
	}
	mode := func() string {
		return []string{modeCareful, modeCareful, modeCareful, modeSlow, modeSenseless}[r.IntN(5)]
	}
	a.add(time.Duration(r.IntN(10_000))*time.Millisecond, Records, domain, 0, mode())
	for range r.IntN(3) {
		a.add(a.randomTime(), Records, domain, time.Second+a.span(30*time.Second, 2*time.Minute), mode())
	}
	for range r.IntN(4) {
		at := a.randomTime()
		switch r.IntN(4) {
		case 0, 1:
			a.add(at, ServerCrash, leaderTarget, a.span(3*time.Second, 20*time.Second), "")
		case 2:
			a.add(at, CrashAt, a.server(), a.span(3*time.Second, 20*time.Second), "plan after 1")
		default:
			a.add(at, User, domain, 0, "builtin")
			if r.IntN(3) > 0 {
				a.add(at+a.span(5*time.Second, 40*time.Second), User, domain, 0, "external")
			}
		}
	}
}

// writeRecords writes commands as records into the store, as its own tools do. A careful program starts and moves tasks
// by keys that do not exist, and writes over a record only in order to stop the attempt. A senseless one writes over
// whatever is there, in any form, and deletes records.
func (p *proposer) writeRecords(ctx context.Context, commands []cluster.ProposalCommand, d *dice, senseless bool) {
	for i := range commands {
		c := &commands[i]
		node := c.Node
		record := cluster.TaskCommand{Attempt: c.Attempt, UUID: c.UUID, Reason: c.Reason}
		switch c.Action {
		case cluster.ProposeWait:
			continue
		case cluster.ProposeMove:
			record.UUID = ""
		case cluster.ProposeEvict:
			record.Stop = true
			node = p.state.nodeOf(c.UUID)
		case cluster.ProposePlace:
		}
		if node == "" {
			continue
		}
		value, err := json.Marshal(record)
		if err != nil {
			panic(err) // a fault of the simulator
		}
		group := store.Group{Ops: []store.Op{{Key: prefix.Desired(node, c.Task), Value: value}}}
		switch {
		case !senseless && !bool(record.Stop):
			group.Compares = []store.Compare{{Key: group.Ops[0].Key}}
		case senseless && d.below(3) == 0:
			group.Ops[0].Value = []byte(pick(d, []string{
				"", "{", "[]", `{"stop":1}`, `{"task":"another"}`, `{"node":"n77"}`, `{"attempt":7}`, `{"stop":false}`,
			}))
		case senseless && d.below(6) == 0:
			group.Ops[0].Delete, group.Ops[0].Value = true, nil
		}
		if _, err := p.fleet.engine.Commit(ctx, []store.Group{group}); err != nil {
			return
		}
		p.fleet.checker.countCommand()
		p.state.refused[[2]string{string(c.Task), node}] = time.Now().Add(refusalKept)
	}
}

// nodeOf returns the node of an attempt by the state, "" if there is none.
func (s *proposerState) nodeOf(uuid string) string {
	for name, n := range s.nodes { // order-free: one at most
		if slices.ContainsFunc(n.Tasks, func(t cluster.SchedulingTask) bool { return t.UUID == uuid }) {
			return name
		}
	}
	return ""
}

// isCommanded reports whether a record is one that another program wrote.
func isCommanded(was store.Record) bool {
	return was.Key != "" && !strings.Contains(string(was.Value), `,"seal":`)
}

// countCommand counts a record that another program wrote.
func (v *observation) countCommand() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.actions.Commands++
}

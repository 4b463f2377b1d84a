package sim

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/store"
)

// timedAction is the begin or end of a fault.
type timedAction struct {
	at time.Duration
	do func()
}

// play runs the story to its end.
func (f *fleet) play() {
	var all []timedAction
	for _, e := range f.story.Events {
		begin, end := f.actions(e)
		if begin != nil {
			all = append(all, timedAction{e.At, begin})
		}
		if end != nil {
			all = append(all, timedAction{e.At + e.For, end})
		}
	}
	slices.SortStableFunc(all, func(a, b timedAction) int { return int(a.at - b.at) })
	for _, m := range all {
		if !f.waitUntil(m.at) {
			return
		}
		m.do()
	}
	f.waitUntil(f.story.End())
	if f.day != nil {
		f.day.awaitEnd()
	}
}

// waitUntil waits until the story has run for the given time, and checks the fleet every few seconds. It reports false
// if a breach ends the story.
func (f *fleet) waitUntil(at time.Duration) bool {
	for {
		if f.options.StopAtOnce && f.checker.hasBreach() {
			return false
		}
		left := at - time.Since(f.began)
		if left <= 0 {
			return true
		}
		time.Sleep(min(left, 5*time.Second)) // in-bubble: every fleet is in one
		f.checker.liveness.checkDeadNodes()
	}
}

// actions returns the actions at the begin and end of an event; either may be nil.
func (f *fleet) actions(e Event) (begin, end func()) {
	if begin, end := f.actServer(e); begin != nil {
		return f.withLeaderFault(begin, end)
	}
	if begin, end := f.actEngine(e); begin != nil {
		return f.withLeaderFault(begin, end)
	}
	if begin, end := f.actNode(e); begin != nil {
		return begin, end
	}
	switch e.Fault {
	case Cut:
		begin, end = func() { f.net.countCut(e.Target, 1) }, func() { f.net.countCut(e.Target, -1) }
	case Noise:
		if late := e.duration(0); late > 0 {
			return func() { f.net.setLateness(e.Target, late) }, func() { f.net.setLateness(e.Target, 0) }
		}
		begin, end = func() { f.net.countNoise(e.Target, 1) }, func() { f.net.countNoise(e.Target, -1) }
	case User:
		return func() { f.orderUser(e) }, nil
	case Scheduler, Records:
		var kill func()
		begin = func() { kill = f.startProposer(e.Target, e.Arg, e.Fault == Records) }
		if e.For > 0 {
			end = func() { kill() }
		}
		return begin, end
	case Load:
		return func() { f.external.set(e.Arg) }, nil
	default:
		f.checker.reportBreach("converges", "the story has an unknown fault: %s", e.String())
		return nil, nil
	}
	if strings.ContainsAny(e.Target, "nx") { // the link of an agent or a scheduler does not hinder leaders
		return begin, end
	}
	return f.withLeaderFault(begin, end)
}

// withLeaderFault notes for the checker that a fault hinders leaders during the event.
func (f *fleet) withLeaderFault(begin, end func()) (b, e func()) {
	return func() { f.checker.liveness.countLeaderFaults(1); begin() }, func() {
		if end != nil {
			end()
		}
		f.checker.liveness.countLeaderFaults(-1)
	}
}

func (f *fleet) actServer(e Event) (begin, end func()) {
	h := f.host(e.Target)
	switch e.Fault {
	case ServerCrash:
		return func() {
			if s := f.leader(); e.Target == leaderTarget && s != nil {
				h = s.host
			}
			h.countHold(1)
		}, func() { h.countHold(-1) }
	case CrashAt:
		k, err := parseCrashPoint(e)
		if err != nil {
			f.checker.reportBreach("converges", "%s: %v", e.String(), err)
			return func() {}, nil
		}
		return func() { f.disk.set(func(d *disk) { d.crashPoints = append(d.crashPoints, k) }) }, nil
	case ServerPause:
		var paused *server
		return func() {
				if paused = h.liveServer(); paused != nil {
					paused.paused.Store(true)
					f.net.countCut(h.id, 1)
				}
			}, func() {
				if paused != nil {
					paused.paused.Store(false)
					f.net.countCut(h.id, -1)
				}
			}
	case WallJump:
		return func() { h.wall.Add(int64(e.duration(time.Minute))) }, nil
	case Lag:
		lag := e.duration(3 * time.Second)
		return func() { f.disk.set(func(k *disk) { k.lags[e.Target] += lag }) },
			func() { f.disk.set(func(k *disk) { k.lags[e.Target] = max(0, k.lags[e.Target]-lag) }) }
	case BootJump:
		if strings.HasPrefix(e.Target, "s") {
			return func() { h.boot.Add(int64(e.duration(time.Minute))) }, nil
		}
	default:
	}
	return nil, nil
}

func (f *fleet) actEngine(e Event) (begin, end func()) {
	count := func(of func(k *disk) map[string]int) (begin, end func()) {
		return func() { f.disk.set(func(k *disk) { of(k)[e.Target]++ }) },
			func() { f.disk.set(func(k *disk) { of(k)[e.Target] = max(0, of(k)[e.Target]-1) }) }
	}
	switch e.Fault {
	case EngineCrash:
		return f.engine.Crash, f.engine.Restart
	case EngineFull:
		return f.engine.ReachQuota, func() { f.engine.Fill(false) }
	case EngineSlow:
		slow := e.duration(300 * time.Millisecond)
		return func() { f.disk.set(func(k *disk) { k.slow[e.Target] += slow }) },
			func() { f.disk.set(func(k *disk) { k.slow[e.Target] = max(0, k.slow[e.Target]-slow) }) }
	case EngineStall:
		return func() {
			f.disk.set(func(k *disk) { k.stall++ })
		}, func() { f.disk.set(func(k *disk) { k.stall = max(0, k.stall-1) }) }
	case EngineCompact:
		return f.engine.Compact, nil
	case EngineLate:
		if noun, late, ok := strings.Cut(e.Arg, " "); ok {
			d, err := time.ParseDuration(late)
			if err != nil {
				return nil, nil
			}
			return func() { f.disk.set(func(k *disk) { k.rules = append(k.rules, rule{e.Target, noun, d, 1}) }) }, nil
		}
		return count(func(k *disk) map[string]int { return k.lates })
	case EngineDeaf:
		return count(func(k *disk) map[string]int { return k.lostAcks })
	case Save:
		return f.snapshot, nil
	case Restore:
		return func() { f.restore(e.Arg == "raw") }, nil
	case Foreign:
		return func() { f.overwriteRecords(e) }, nil
	default:
		return nil, nil
	}
}

func (f *fleet) actNode(e Event) (begin, end func()) {
	n := f.node(e.Target)
	switch e.Fault {
	case AgentCrash:
		return func() { n.countHold(1) }, func() { n.countHold(-1) }
	case Reboot, Wipe, Replace:
		return func() {
			n.countHold(1)
			if e.Fault != Wipe {
				f.checker.excuseNode(n.name)
				n.reboot()
			}
			if e.Fault != Reboot {
				n.disk.Wipe()
			}
		}, func() { n.countHold(-1) }
	case Kill:
		return func() {
			for _, r := range n.machine.History() {
				if r.Ended.IsZero() {
					f.checker.excuseAttempt(r.Labels["berth.uuid"])
					_ = n.machine.Kill(r.ID)
					return
				}
			}
		}, nil
	case Trouble:
		if e.Arg == "late-start" {
			return func() { n.addLateStarts(1) }, func() { n.addLateStarts(-1) }
		}
		return func() {
			f.checker.countExecutorFaults(n.name, 1)
			n.addTrouble(1)
		}, func() { n.addTrouble(-1); f.checker.countExecutorFaults(n.name, -1) }
	case Pressure:
		return func() { n.pressed.Add(1) }, func() { n.pressed.Add(-1) }
	case DiskFails:
		return func() { n.fails.Add(1) }, func() { n.fails.Add(-1) }
	case Lie:
		return func() { n.falseReports.addKind(e.Arg, 1) }, func() { n.falseReports.addKind(e.Arg, -1) }
	case BootJump:
		return func() { n.boot.Add(int64(e.duration(time.Minute))) }, nil
	default:
		return nil, nil
	}
}

func (n *node) addLateStarts(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lateStarts = max(0, n.lateStarts+by)
}

func (n *node) addTrouble(by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trouble = max(0, n.trouble+by)
}

// foreignTimeout is the time after which another program gives up a write to a store that is down. The story goes on
// only then.
const foreignTimeout = time.Second

// overwriteRecords overwrites the records of one task of a node (P3.9).
func (f *fleet) overwriteRecords(e Event) {
	ctx, cancel := context.WithTimeout(f.ctx, foreignTimeout)
	defer cancel()
	f.checker.mu.Lock()
	var keys []string
	for key := range f.checker.records {
		if strings.HasPrefix(key, "state/"+e.Target+"/") || e.Arg == "status" &&
			strings.HasPrefix(key, "status/"+e.Target+"/") {
			keys = append(keys, key)
		}
	}
	f.checker.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	d := f.random.roll("foreign")
	chosen := keys[d.below(len(keys))]
	ops := []store.Op{{Key: string(prefix) + chosen, Value: []byte("not a record"), Delete: e.Arg == "delete"}}
	if e.Arg == "edit" {
		r, err := f.engine.Read(ctx, ops[0].Key)
		if err != nil {
			return
		}
		ops[0].Value = bytes.Replace(r.Value, []byte(`,"seal":`),
			[]byte(`,"stop":{"class":"mandatory","reason":"cancelled","ended":true},"seal":`), 1)
		f.checker.lifecycle.noteEdit(ops[0].Value)
	}
	if _, task, ok := strings.Cut(strings.TrimPrefix(chosen, "state/"), "/"); ok &&
		(e.Arg == "both" || e.Arg == "delete") {
		ops = append(ops, store.Op{
			Key: string(prefix) + "status/" + e.Target + "/" +
				task, Value: []byte("neither"), Delete: e.Arg == "delete",
		})
	}
	_, _ = f.engine.Commit(ctx, []store.Group{{Ops: ops}})
}

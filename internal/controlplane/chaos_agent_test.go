package controlplane_test

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// ship is a node of the chaos test. Its programs are as real as its agent lets them be: they outlive the agent's
// death, and end with a reboot, which also takes the agent's memory.
type ship struct {
	c      *chaos
	name   string
	random *rand.Rand // used by the ship's goroutine alone, and by others while that does not run
	// cut says that the node reaches no server.
	cut     atomic.Bool
	session uint64
	loads   map[string]*load
	stop    func()
}

// load is an attempt on a ship.
type load struct {
	as    transport.Assignment
	o     cluster.Observed
	live  bool      // its program runs
	at    time.Time // of its next step
	dirty bool      // the server does not know its state
}

// sail begins a life of the agent.
func (a *ship) sail() {
	ctx, cancel := context.WithCancel(a.c.w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if !a.cut.Load() {
				a.live(ctx)
			}
			a.steps()
			sleep(ctx, 50*time.Millisecond)
		}
	})
	a.stop = func() {
		cancel()
		running.Wait()
	}
}

// reboot ends all programs and, as the data directory is lost, everything that the agent knew. It must not run.
func (a *ship) reboot() {
	for id, l := range a.loads {
		a.end(l)
		delete(a.loads, id)
	}
	a.session = 0
}

// live is one session.
func (a *ship) live(ctx context.Context) {
	server := a.c.w.serves.Load()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(server.ctx, cancel)()
	var full []cluster.Observed
	for _, l := range a.loads {
		if l.o.State != "" {
			full = append(full, l.o)
		}
	}
	welcome, err := server.dispatch.Register(ctx, transport.Registration{Node: a.name, Previous: a.session, Tasks: full, Facts: cluster.Facts{
		CPU: shipCPU, Memory: 8 * cluster.GiB, Disk: 100 * cluster.GiB, Executors: []cluster.ExecutorFact{{Name: "containerd"}},
	}})
	if err != nil {
		if over, ok := errors.AsType[*transport.SessionError](err); ok {
			a.session = over.Newest
		}
		return
	}
	a.session = welcome.Session
	messages := make(chan transport.Message, 10_000)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ask := transport.AssignmentsRequest{Node: a.name, Session: a.session, Have: a.have()}
	running.Go(func() {
		defer cancel()
		_ = server.dispatch.Assign(ctx, ask, func(ms []transport.Message) error {
			for _, m := range ms {
				select {
				case messages <- m:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	a.talk(ctx, server, messages)
}

func (a *ship) have() map[string]uint64 {
	have := map[string]uint64{}
	for id, l := range a.loads {
		have[id] = l.as.Revision
		if l.as.Stop != nil && !l.o.Gone { // what it asks has not been done: have it sent again
			have[id] = 0
		}
	}
	return have
}

// talk steps and reports until the session or the ship's connection ends.
func (a *ship) talk(ctx context.Context, server *server, messages <-chan transport.Message) {
	var last time.Time
	for seq := uint64(1); ; {
		for more := true; more; {
			select {
			case m := <-messages:
				a.hear(m)
			default:
				more = false
			}
		}
		a.steps()
		var asked []*load
		report := transport.Report{Node: a.name, Session: a.session, Seq: seq}
		for _, l := range a.loads {
			if l.dirty {
				asked = append(asked, l)
				report.Tasks = append(report.Tasks, l.o)
			}
		}
		if len(asked) > 0 || time.Since(last) >= 2*time.Second {
			last = time.Now()
			if !a.deliver(ctx, server, report, asked) {
				return
			}
			seq++
		}
		sleep(ctx, 50*time.Millisecond)
		if ctx.Err() != nil || a.cut.Load() {
			return
		}
	}
}

// deliver sends a report, now and then late, twice, or without hearing the first answer.
func (a *ship) deliver(ctx context.Context, server *server, report transport.Report, asked []*load) bool {
	wild := !a.c.calm.Load()
	sent := time.Now() // for the first time: that is what a barrier's 30 seconds and its truth count from
	if wild && a.random.IntN(5) == 0 {
		sleep(ctx, time.Duration(a.random.IntN(400))*time.Millisecond)
	}
	if wild && a.random.IntN(10) == 0 {
		_, _ = server.dispatch.Report(ctx, report)
	}
	reply, err := server.dispatch.Report(ctx, report)
	for tries := 0; err != nil && tries < 3 && ctx.Err() == nil && !errors.Is(err, transport.ErrSession); tries++ {
		sleep(ctx, 200*time.Millisecond)
		reply, err = server.dispatch.Report(ctx, report)
	}
	if err != nil || a.cut.Load() {
		return false
	}
	for _, l := range asked {
		no, refused := reply.Refused[l.o.UUID]
		switch {
		case refused && no.Retry:
			continue
		case l.o.State != cluster.StateStarting || !l.as.Batch():
		case refused:
			l.o.State, l.o.Reason = cluster.StateCancelled, cluster.ReasonBarrier
			continue
		case time.Since(sent) < 30*time.Second:
			a.begin(l, sent)
			continue
		default:
			continue
		}
		l.dirty = false
	}
	return true
}

func (a *ship) hear(m transport.Message) {
	switch {
	case m.Assignment != nil:
		l := a.loads[m.Assignment.UUID]
		if l == nil {
			l = &load{at: time.Now(), o: cluster.Observed{
				Task: m.Assignment.Task, Attempt: m.Assignment.Attempt, UUID: m.Assignment.UUID,
			}}
			a.loads[m.Assignment.UUID] = l
		}
		l.as = *m.Assignment
	case m.Forget != nil:
		if l := a.loads[m.Forget.UUID]; l != nil {
			if l.live {
				a.c.fault("%s was told to forget %s/%d, whose program runs", a.name, l.o.Task, l.o.Attempt)
				a.end(l)
			}
			delete(a.loads, m.Forget.UUID)
		}
	}
}

// steps takes the next step of every attempt that is due.
func (a *ship) steps() {
	for _, l := range a.loads {
		if !time.Now().Before(l.at) && !l.o.Gone {
			a.step(l)
		}
	}
}

func (a *ship) step(l *load) {
	was := l.o
	wait := time.Duration(50+a.random.IntN(300)) * time.Millisecond
	switch {
	case l.as.Ended():
		a.end(l)
		if !l.o.State.Terminal() {
			l.o.State, l.o.Reason = cluster.StateCancelled, l.as.Stop.Reason
		}
		l.o.Gone = true
	case l.o.State.Terminal():
		return
	case l.as.Stop != nil:
		a.end(l)
		l.o.State, l.o.Reason, l.o.Finished = cluster.StateCancelled, l.as.Stop.Reason, time.Now()
	case l.o.State == "":
		l.o.State = cluster.StatePreparing
		if !a.c.calm.Load() && a.random.IntN(15) == 0 {
			l.o.State, l.o.Reason = cluster.StateRejected, cluster.ReasonPrepare
		}
	case l.o.State == cluster.StatePreparing && l.as.Batch():
		l.o.State = cluster.StateStarting
	case l.o.State == cluster.StatePreparing:
		a.begin(l, time.Time{})
	case l.o.State == cluster.StateStarting: // asked again with the next report
		l.dirty = true
	case l.as.Batch():
		a.end(l)
		l.o.State, l.o.Finished = cluster.StateSucceeded, time.Now()
		if fails(l.o.Task, l.o.Attempt) {
			l.o.State, l.o.Reason = cluster.StateFailed, cluster.ReasonExit
		}
	case l.o.Health != cluster.HealthHealthy:
		l.o.Health = cluster.HealthHealthy
		wait = 5 * time.Second
	case !a.c.calm.Load() && a.random.IntN(30) == 0:
		a.end(l)
		l.o.State, l.o.Reason, l.o.Finished = cluster.StateFailed, cluster.ReasonRestartLimit, time.Now()
	default:
		wait = 5 * time.Second
	}
	l.at = time.Now().Add(wait)
	l.dirty = l.dirty || was.State != l.o.State || was.Health != l.o.Health || was.Gone != l.o.Gone
}

// fails says which attempts of jobs fail: the same in every run.
func fails(task cluster.TaskID, attempt int) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(task) + "/" + strconv.Itoa(attempt)))
	return h.Sum32()%4 == 0
}

// begin starts the program, a batch one after its barrier, which was asked for at the given time.
func (a *ship) begin(l *load, asked time.Time) {
	a.c.begins(a.name, &l.as, asked)
	l.live, l.dirty = true, true
	l.o.State, l.o.Health, l.o.Started = cluster.StateRunning, cluster.HealthUnknown, time.Now()
	l.at = time.Now().Add(time.Duration(100+a.random.IntN(900)) * time.Millisecond)
}

// end ends the program, if it runs.
func (a *ship) end(l *load) {
	if l.live {
		l.live = false
		a.c.ends(&l.as)
	}
}

package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

const (
	shipCPU = 4000
	// chaosSeeds is how many seeds a plain run tries; BERTH_CHAOS_SEEDS asks for others, BERTH_CHAOS_SEED for a
	// single one. One seed gives the same faults to the same calls, as far as the order of goroutines allows.
	chaosSeeds = 60
	chaosTime  = 90 * time.Second
	calmTime   = 20 * time.Minute
)

// chaos is a whole domain under random faults: one server after the other, a nasty engine, nasty agents, and a user
// who keeps changing his mind.
type chaos struct {
	w       *world
	witness *witness
	ships   []*ship
	calm    atomic.Bool

	mu     sync.Mutex // of random, which several goroutines use
	random *rand.Rand
	late   sync.WaitGroup

	// wanted is what the user was told is stored.
	services map[string]cluster.Service
	jobs     map[string]cluster.Job
}

// TestChaos runs a domain under random faults and checks what must never be at every revision, and that all comes
// right once the faults end.
func TestChaos(t *testing.T) {
	first, n := uint64(1), chaosSeeds
	if v := os.Getenv("BERTH_CHAOS_SEEDS"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	if v := os.Getenv("BERTH_CHAOS_SEED"); v != "" {
		first, _ = strconv.ParseUint(v, 10, 64)
		n = 1
	}
	if testing.Short() {
		n = min(n, 5)
	}
	for seed := first; seed < first+uint64(n); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runChaos(t, seed) })
		})
	}
}

func runChaos(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 99))
	c := &chaos{
		w: &world{t: t, began: time.Now(), engine: memory.New(memory.Options{
			Consul: seed%4 == 0, Random: rand.New(rand.NewPCG(seed, 7)),
		})},
		witness:  newWitness(),
		random:   random,
		services: map[string]cluster.Service{},
		jobs:     map[string]cluster.Job{},
	}
	c.witness.meddled = seed%3 == 0
	c.w.faulty = c.w.engine.Open(memory.Hooks{Before: c.before, After: c.after})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.watch(ctx) })
	for v, cpu := range []cluster.MilliCPU{900, 400} {
		ref := cluster.Ref{Name: "d", Version: v + 1}
		c.witness.cpu[ref] = cpu
		c.w.put(p.Definition(ref), &cluster.TaskDefinition{Name: "d", Version: v + 1, Containers: []cluster.Container{{
			Name: "main", Image: "i", Resources: cluster.Resources{CPU: cpu},
		}}, Ports: []cluster.Port{{Name: "http", Port: v * 8080}}}) // the second has a fixed port
	}
	c.w.definition(9, 64_000)
	c.w.start()
	for i := range 3 {
		a := &ship{c: c, name: fmt.Sprintf("n%d", i+1), loads: map[string]*load{}, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		c.ships = append(c.ships, a)
		a.sail()
	}
	c.putService("big", func(s *cluster.Service) { s.Count, s.Definition.Version = 1, 9 })
	c.storm()
	c.settleDown()
	for _, a := range c.ships {
		a.stop()
	}
	c.w.server.stop()
	cancel()
	running.Wait()
	c.late.Wait()
	c.witness.ended()
	for _, f := range c.witness.faults {
		t.Errorf("seed %d: %s", seed, f)
	}
}

func (c *chaos) chance(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// before lets a commit be slow, lost, or lost and written much later.
func (c *chaos) before(ctx context.Context, groups []store.Group) error {
	if c.calm.Load() {
		return nil
	}
	switch c.chance(24) {
	case 0, 3, 4:
		sleep(ctx, time.Duration(c.chance(500))*time.Millisecond)
	case 1:
		return fmt.Errorf("lost on its way: %w", store.ErrUnknown)
	case 2:
		delay := time.Duration(c.chance(8000)) * time.Millisecond
		c.late.Go(func() {
			time.Sleep(delay) // in-bubble: runChaos makes one
			_, _ = c.w.engine.Commit(context.Background(), groups)
		})
		return fmt.Errorf("late: %w", store.ErrUnknown)
	}
	return nil
}

// after loses acknowledgements.
func (c *chaos) after(ctx context.Context, groups []store.Group, result store.Result) error {
	if !c.calm.Load() && c.chance(25) == 0 {
		return memory.Unacknowledged(ctx, groups, result)
	}
	return nil
}

// storm is the time of faults.
func (c *chaos) storm() {
	for end := time.Now().Add(chaosTime); time.Now().Before(end); {
		time.Sleep(time.Duration(200+c.chance(3000)) * time.Millisecond) // in-bubble: runChaos makes one
		switch a := c.ships[c.chance(len(c.ships))]; c.chance(16) {
		case 0, 1:
			c.w.server.stop()
			time.Sleep(time.Duration(c.chance(2000)) * time.Millisecond) // in-bubble: runChaos makes one
			c.w.start()
		case 2:
			c.w.engine.Crash()
			time.Sleep(time.Duration(c.chance(1500)) * time.Millisecond) // in-bubble: runChaos makes one
			c.w.engine.Restart()
		case 3:
			c.w.engine.Fill(true)
			time.Sleep(time.Duration(c.chance(3000)) * time.Millisecond) // in-bubble: runChaos makes one
			c.w.engine.Fill(false)
		case 4:
			c.w.engine.Compact()
		case 5:
			a.stop()
			a.sail()
		case 6:
			a.stop()
			a.reboot()
			a.sail()
		case 7:
			c.meddle()
		case 8:
			a.cut.Store(!a.cut.Load())
		default:
			c.change()
		}
	}
}

// meddle is somebody who writes where only the control plane or an agent may (P3.9).
func (c *chaos) meddle() {
	if !c.witness.meddled {
		return
	}
	c.witness.mu.Lock()
	var keys []string
	for key := range c.witness.records {
		if noun, rest, _ := strings.Cut(key, "/"); (noun == "state" || noun == "status") && strings.Contains(rest, "/") {
			keys = append(keys, key)
		}
	}
	c.witness.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	_, _ = c.w.engine.Commit(context.Background(), []store.Group{{Ops: []store.Op{
		{Key: string(p) + keys[c.chance(len(keys))], Value: []byte("not a record")},
	}}})
}

// change is what the user does.
func (c *chaos) change() {
	name := []string{"web", "api"}[c.chance(2)]
	job := []string{"batch", "nightly"}[c.chance(2)]
	switch c.chance(6) {
	case 0, 1:
		n := c.chance(4)
		c.putService(name, func(s *cluster.Service) { s.Count, s.Deleted = n, false })
	case 2: // a rollout or a restart
		v := 1 + c.chance(2)
		if name == "api" {
			v = 1 // there are three nodes, and so three tasks with the fixed port
		}
		c.putService(name, func(s *cluster.Service) {
			s.Definition.Version, s.Deleted = v, false
			s.Generation++
		})
	case 3:
		c.putService(name, func(s *cluster.Service) { s.Deleted = true })
	default:
		count := 1 + c.chance(20)
		c.putJob(job, func(j *cluster.Job) {
			j.Steps[0].Count = count
			j.Generation++
		})
	}
}

// write repeats a user's compare-and-set until it is acknowledged, as a client does.
func (c *chaos) write(key string, draft func(old []byte) any) {
	for try := 0; ; try++ {
		rev, old := uint64(0), []byte(nil)
		r, err := c.w.engine.Read(context.Background(), key)
		if err == nil {
			rev, old = r.Modified, r.Value
		}
		value, encodeErr := store.Encode(draft(old))
		if encodeErr != nil {
			c.w.t.Fatal(encodeErr)
		}
		if err == nil || errors.Is(err, store.ErrNotFound) {
			res, err := c.w.engine.Commit(context.Background(), []store.Group{{
				Compares: []store.Compare{{Key: key, Modified: rev}}, Ops: []store.Op{{Key: key, Value: value}},
			}})
			if err == nil && res.Applied[0] {
				return
			}
		}
		time.Sleep(100 * time.Millisecond) // in-bubble: runChaos makes one
	}
}

func (c *chaos) putService(name string, change func(*cluster.Service)) {
	c.write(p.Service("c", name), func(old []byte) any {
		s := c.services[name]
		if s.Name == "" {
			s = cluster.Service{Cluster: "c", Name: name, Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500}
			s.Generation = 1
		}
		deleted := s.Deleted
		change(&s)
		if old == nil && deleted || deleted != s.Deleted {
			s.Generation++
		}
		c.services[name] = s
		return &s
	})
}

func (c *chaos) putJob(name string, change func(*cluster.Job)) {
	c.write(p.Job("c", name), func([]byte) any {
		j := c.jobs[name]
		if j.Name == "" {
			j = cluster.Job{Cluster: "c", Name: name, Priority: 500, Steps: []cluster.Step{{
				Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Retries: 2,
			}}}
		}
		j.Steps = []cluster.Step{j.Steps[0]}
		change(&j)
		c.jobs[name] = j
		return &j
	})
}

// settleDown ends all faults and waits until everything is as the user wants it.
func (c *chaos) settleDown() {
	c.calm.Store(true)
	for _, a := range c.ships {
		a.cut.Store(false)
	}
	began := time.Now()
	var wrong string
	for time.Since(began) < calmTime {
		time.Sleep(time.Second) // in-bubble: runChaos makes one
		if wrong = c.wrong(); wrong == "" {
			return
		}
	}
	s := c.w.server.tables.Snapshot()
	for row := range s.AllAttempts() {
		c.w.t.Logf("%s/%d on %s: desired %+v observed %+v outcome %+v", row.Task, row.Number, row.Node, row.Desired, row.Observed, row.Outcome)
	}
	c.w.t.Errorf("not as wanted after %v without faults: %s", calmTime, wrong)
}

// wrong says what is not as the user wants it.
func (c *chaos) wrong() string {
	server := c.w.server
	s := server.tables.Snapshot()
	for name, want := range c.services {
		e, ok := s.Service("c", name)
		if want.Deleted && ok {
			return name + " is not removed"
		}
		if want.Deleted || name == "big" {
			continue
		}
		if !ok || e.Value.Count != want.Count || e.Value.Generation != want.Generation {
			return name + " is not stored as it was acknowledged"
		}
		n := 0
		for row := range s.Attempts(want.Owner()) {
			if row.Outcome == nil && row.Observed.Healthy() && row.Desired != nil && row.Desired.Definition == want.Definition {
				n++
			}
		}
		if n != want.Count {
			return fmt.Sprintf("%s has %d healthy tasks, want %d", name, n, want.Count)
		}
	}
	for name, want := range c.jobs {
		e, ok := s.Job("c", name)
		if !ok || e.Value.Generation != want.Generation {
			return name + " is not stored as it was acknowledged"
		}
		var tasks []reconciler.Task
		for row := range s.Attempts(want.Owner()) {
			tasks = append(tasks, reconciler.Task{Attempt: row.Attempt})
		}
		st := reconciler.StatusOfJob(reconciler.JobInput{Owner: want.Owner(), Spec: e.Value, Tasks: tasks})
		if !st.Done() || st.Running > 0 {
			return fmt.Sprintf("%s is %s: %+v", name, st.State, st)
		}
	}
	if w, ok := server.plane.Waiting(cluster.ServiceTask("c", "big", 1, 0)); !ok || w.Sentence == "" {
		return "a task waits without a reason"
	}
	c.witness.mu.Lock()
	defer c.witness.mu.Unlock()
	if left := c.witness.leftovers(); len(left) > 0 {
		return fmt.Sprintf("left over: %v", left)
	}
	return ""
}

// Package year simulates a domain for a long time, to show what grows with it. Every day has new jobs, definitions,
// nodes and clusters, and the same amount of work.
//
// The API server, the control plane with its projection, and the tables are the real ones, over the model of the store.
// The clock and the agents are simulated: the clock advances as soon as nothing changes at its present time, and agents
// write their reports to the store. No part fails, except that the leader changes now and then and the wall clock may
// jump.
package year

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// Times of a simulation.
const (
	// firstStride is the advance of the clock after a change, and maxStride the longest one while nothing happens.
	firstStride, maxStride = time.Millisecond, time.Hour
	// strideFactor is the growth of the advance while nothing happens.
	strideFactor = 60
	// maxStepsPerHour is the number of steps after which an hour counts as endless.
	maxStepsPerHour = 200_000
	// history is the number of changes that the store keeps for watches that lag. None does here, and the changes
	// would count as memory of the leader.
	history = 1000
)

// Usage is the size of the records of one kind.
type Usage struct{ Keys, Bytes int }

// World is a domain in simulated time. One goroutine at a time may use it. Close ends it.
type World struct {
	engine *memory.Engine
	tables *store.Tables
	server *apiserver.Server
	plane  *controlplane.Rehearsal
	agents *agents
	wall   time.Time     // without jumps
	jump   time.Duration // of the wall clock
	boot   time.Duration // the boot-time clock
	terms  int
	stop   func()
	// reviews are the clusters of single days that are not deleted yet.
	reviews []string

	mu    sync.Mutex
	sizes map[string]int    // bytes of each record
	usage map[string]*Usage // by the noun of the key
	ended int               // outcomes of attempts that were written
}

// New returns an empty domain with a leader.
func New(ctx context.Context) (*World, error) {
	w := &World{wall: newYear(), boot: time.Hour, sizes: map[string]int{}, usage: map[string]*Usage{}}
	w.engine = memory.New(memory.Options{History: history, Observe: w.observe})
	log := slog.New(slog.DiscardHandler)
	w.tables = store.NewTables(store.TablesConfig{Engine: w.engine, Logger: log})
	running, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { _ = w.tables.Run(running) })
	w.stop = func() {
		cancel()
		parts.Wait()
	}
	select {
	case <-w.tables.Synced():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w.server = apiserver.New(apiserver.Config{
		Engine: w.engine, Tables: w.tables, Log: log, Now: w.now, Clock: w.clock, Permissions: cluster.Permissions(),
	})
	w.agents = newAgents(w)
	return w, w.Lead(ctx)
}

// Close ends the domain.
func (w *World) Close() {
	w.plane.Close()
	w.agents.follow.Close()
	w.stop()
}

func (w *World) now() time.Time       { return w.wall.Add(w.jump) }
func (w *World) clock() time.Duration { return w.boot }

// Lead has another server take over. The first call makes the first leader.
func (w *World) Lead(ctx context.Context) error {
	if w.plane != nil {
		w.plane.Close()
	}
	w.terms++
	var err error
	w.plane, err = controlplane.Rehearse(ctx, controlplane.Config{
		Engine: shown{w.engine, w.tables}, Tables: w.tables, Domain: cluster.DefaultDomain,
		Server: fmt.Sprintf("s%d", 1+w.terms%2), Random: rand.New(rand.NewPCG(1, uint64(w.terms))),
		Logger: slog.New(slog.DiscardHandler), Now: w.now, Clock: w.clock,
		KeepDefinitions: keepDefinitions,
	})
	return err
}

// shown is an engine whose commits are in the tables when they return.
type shown struct {
	store.Engine
	tables *store.Tables
}

// Commit is part of store.Engine.
func (s shown) Commit(ctx context.Context, groups []store.Group) (store.Result, error) {
	r, err := s.Engine.Commit(ctx, groups)
	if err == nil {
		_, err = s.tables.WaitFor(ctx, r.Revision)
	}
	return r, err
}

// JumpBy sets the wall clocks of all machines forward or back.
func (w *World) JumpBy(d time.Duration) { w.jump += d }

// Pass lets time pass: it runs the control plane and the agents until then.
func (w *World) Pass(ctx context.Context, d time.Duration) error {
	until, stride := w.boot+d, firstStride
	for steps := 0; w.boot < until; steps++ {
		if steps > maxStepsPerHour*int(1+d/time.Hour) {
			return fmt.Errorf("the domain is not at rest after %d steps in %v", steps, d)
		}
		before := w.tables.Snapshot().Revision()
		next, err := w.plane.Step(ctx)
		if err != nil {
			return fmt.Errorf("decide: %w", err)
		}
		if err := w.agents.step(ctx); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		if w.tables.Snapshot().Revision() != before {
			stride = firstStride
		} else {
			stride = min(strideFactor*max(stride, next), maxStride)
		}
		left := until - w.boot
		if at, ok := w.agents.nextEnd(); ok {
			left = min(left, max(at-w.boot, 0))
		}
		w.wall, w.boot = w.wall.Add(min(stride, left)), w.boot+min(stride, left)
	}
	return nil
}

// errConflict is the error of a request that the present objects forbid.
var errConflict = errors.New("conflict")

// Call sends a request to the API server as an operator. An answer other than a success is an error.
func (w *World) Call(ctx context.Context, method, path string, body any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "year", Net: "unix"}))
	r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(text))
	r.RemoteAddr = "@"
	reply := httptest.NewRecorder()
	w.server.ServeHTTP(reply, r)
	switch {
	case reply.Code == http.StatusConflict:
		return fmt.Errorf("%s %s: %w: %s", method, path, errConflict, reply.Body.String())
	case reply.Code >= http.StatusMultipleChoices:
		return fmt.Errorf("%s %s: status %d: %s", method, path, reply.Code, reply.Body.String())
	}
	return nil
}

// observe counts what the store holds.
func (w *World) observe(changes []store.Change, _ uint64, _ bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		noun, _, _ := strings.Cut(strings.TrimPrefix(c.Key, store.DefaultPrefix), "/")
		u := w.usage[noun]
		if u == nil {
			u = new(Usage)
			w.usage[noun] = u
		}
		old, existed := w.sizes[c.Key]
		if existed {
			u.Keys, u.Bytes = u.Keys-1, u.Bytes-old
			delete(w.sizes, c.Key)
		}
		if !c.Deleted {
			if noun == "attempt" && !existed {
				w.ended++
			}
			size := len(c.Key) + len(c.Value)
			w.sizes[c.Key] = size
			u.Keys, u.Bytes = u.Keys+1, u.Bytes+size
		}
	}
}

// Usage returns the size of the store by the noun of the keys.
func (w *World) Usage() map[string]Usage {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[string]Usage, len(w.usage))
	for noun, u := range w.usage {
		all[noun] = *u
	}
	return all
}

// Ended returns the number of attempts that have ended.
func (w *World) Ended() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// Heap returns the bytes in use on the heap of the process.
func Heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one runs the finalizers of what the second one frees
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

package sim

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
)

// settleLimit is the time that a world may take after the last fault to become as users want it. It is longer than any
// back-off and than a job's limit of silence.
const settleLimit = 30 * time.Minute

// Options control the run of a story.
type Options struct {
	// Without disables clauses of the protocol.
	Without clause.Set
	// Verbose keeps the chronicle: every revision and every program.
	Verbose bool
	// Logs writes what the parts log to the standard error.
	Logs bool
	// History keeps the lines of which Result.Digest is made.
	History bool
	// StopAtOnce ends the world with the first breach.
	StopAtOnce bool
	// injected, unless nil, runs after the story: for tests of the witness.
	injected func(*World)
}

// Result is the result of a story.
type Result struct {
	Violations []Violation
	// Chronicle is filled by Options.Verbose.
	Chronicle []string
	// Starts and Ends count programs, Revisions the revisions of the store. Took is the duration of the world.
	Starts, Ends int
	Revisions    uint64
	Leaders      int
	Deeds        Deeds
	Took         time.Duration
	// Digest is a hash of the whole history: every revision of the store, with what was written, and every start and
	// end of a program.
	Digest string
	// History holds the lines of the history if Options.History is set.
	History []string
	// Crashes counts the servers that CrashAt killed.
	Crashes int
}

// World is one domain under a story.
type World struct {
	story      *Story
	options    Options
	ctx        context.Context //nolint:containedctx // the world's life
	began      time.Time
	random     *randomness
	net        *network
	disk       *disk
	engine     *memory.Engine
	witness    *witness
	hosts      []*host
	nodes      []*node
	byName     map[string]*node
	user       *user
	background sync.WaitGroup // goroutines outside of any life
	savedStore []byte
	external   *externalMetrics
	orders     int          // orders that the user has not carried out
	crashes    atomic.Int64 // servers killed by CrashAt
	// generations are the generations of the services when faults ended.
	generations map[string]uint64
}

// storyTimeout is the wall-clock time after which a story counts as endless. Stories take a second or two. A story that
// breaks and waits for its world to settle takes ten times that.
const storyTimeout = 4 * time.Minute

// Run runs a story in a bubble of its own. An endless story, in which a goroutine waits for ever while the bubble's
// clock advances, ends the process. It then prints the story and the stacks of all goroutines.
func Run(t *testing.T, story *Story, options Options) Result {
	t.Helper()
	var result Result
	watchdog := time.AfterFunc(storyTimeout, func() {
		fmt.Fprintf(os.Stderr, "seed %d does not end:\n%s", story.Seed, story.String())
		debug.SetTraceback("all")
		panic(fmt.Sprintf("the story of seed %d has not ended after %v", story.Seed, storyTimeout))
	})
	defer watchdog.Stop()
	synctest.Test(t, func(*testing.T) { result = run(story, options) })
	return result
}

func run(story *Story, options Options) Result {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &World{
		story: story, options: options, ctx: ctx, began: time.Now(), random: newChance(story.Seed),
		byName: map[string]*node{}, external: &externalMetrics{},
	}
	w.net = newNetwork(w.random)
	w.disk = newDisk(w.began)
	w.witness = newWitness(story)
	w.witness.verbose, w.witness.history = options.Verbose, options.History
	w.engine = memory.New(memory.Options{
		Consul: story.Consul, Random: rand.New(rand.NewPCG(story.Seed, 7)), Observe: w.witness.observe,
	})
	w.setUp()
	w.play()
	if options.injected != nil {
		options.injected(w)
	}
	w.endFaults()
	w.settle()
	w.end(cancel)
	return Result{
		Violations: w.witness.faults, Chronicle: w.witness.log, Starts: w.witness.starts, Ends: w.witness.ends,
		Revisions: w.revision(), Leaders: len(w.witness.leaders), Deeds: w.witness.deeds, Took: time.Since(w.began),
		Crashes: int(w.crashes.Load()), Digest: hex.EncodeToString(w.witness.digest.Sum(nil)), History: w.witness.lines,
	}
}

func (w *World) revision() uint64 {
	l, err := w.engine.List(context.Background(), "none/")
	if err != nil {
		return 0
	}
	return l.Revision
}

// setUp creates the world: its definitions, a service that fits nowhere, servers and nodes.
func (w *World) setUp() {
	for _, d := range definitions() {
		w.witness.cpu[d.Ref()] = d.Demand().CPU
		w.witness.definitions[d.Ref()] = d
		value, err := store.Encode(d)
		if err == nil {
			_, err = w.engine.Commit(w.ctx,
				[]store.Group{{Ops: []store.Op{{Key: prefix.Definition(d.Ref()), Value: value}}}})
		}
		if err != nil {
			panic(err) // a fault of the simulator
		}
	}
	value, err := store.Encode(cluster.Cluster{Name: inCluster, Domain: cluster.DefaultDomain})
	if err == nil {
		_, err = w.engine.Commit(w.ctx,
			[]store.Group{{Ops: []store.Op{{Key: prefix.Cluster(inCluster), Value: value}}}})
	}
	if err != nil {
		panic(err) // a fault of the simulator
	}
	for i := range w.story.Servers {
		w.hosts = append(w.hosts, &host{w: w, id: name("s", i+1)})
	}
	for i := range w.story.Nodes {
		n := newNode(w, name("n", i+1))
		w.nodes = append(w.nodes, n)
		w.byName[n.name] = n
	}
	w.user = newUser(w)
	w.background.Go(func() { w.user.run(w.ctx) })
	w.background.Go(func() { w.user.recover(w.ctx) })
	for _, h := range w.hosts {
		h.start()
	}
	for _, n := range w.nodes {
		n.start()
	}
	w.orderUser(Event{Target: "big", Arg: "scale 1"})
}

// orderUser sends an order to the user.
func (w *World) orderUser(e Event) {
	w.orders++
	w.user.orders <- e
}

func (w *World) node(name string) *node {
	if n := w.byName[name]; n != nil {
		return n
	}
	return w.nodes[0]
}

func (w *World) host(id string) *host {
	for _, h := range w.hosts {
		if h.id == id {
			return h
		}
	}
	return w.hosts[0]
}

// logger returns the logger of a part.
func (w *World) logger(who string) *slog.Logger {
	if !w.options.Logs {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(&timestampWriter{w: w},
		&slog.HandlerOptions{Level: slog.LevelDebug})).With("who", who)
}

// timestampWriter writes log lines with the world's time.
type timestampWriter struct{ w *World }

// Write is part of io.Writer.
func (s *timestampWriter) Write(b []byte) (int, error) {
	_, rest, _ := strings.Cut(string(b), " ")
	_, _ = fmt.Fprintf(os.Stderr, "%v %s", time.Since(s.w.began), rest)
	return len(b), nil
}

// leader returns the server that leads, as far as any server knows, or nil.
func (w *World) leader() *server {
	for _, h := range w.hosts {
		s := h.now()
		if s == nil {
			continue
		}
		if l, ok := s.tables.Snapshot().Leader(cluster.DefaultDomain); ok {
			return w.host(l.Value.Holder).now()
		}
	}
	return nil
}

// end stops everything and returns when no goroutine is left.
func (w *World) end(cancel func()) {
	for _, n := range w.nodes {
		n.kill()
	}
	for _, h := range w.hosts {
		h.kill()
	}
	cancel()
	w.background.Wait()
}

// snapshot takes a copy of the store.
func (w *World) snapshot() {
	var b bytes.Buffer
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	if err := w.engine.Snapshot(ctx, &b); err == nil {
		w.savedStore = b.Bytes()
	}
}

// restore replaces the store by the last copy while all servers are stopped, as an operator does. With raw it acts like
// a tool that is not Berth's and leaves no mark.
func (w *World) restore(raw bool) {
	if w.savedStore == nil {
		return
	}
	for _, h := range w.hosts {
		h.hold(1)
	}
	w.engine.Fill(false)
	if err := w.engine.Restore(bytes.NewReader(w.savedStore)); err != nil {
		panic(err) // a fault of the simulator
	}
	if !raw && !w.options.Without.Off(clause.Incarnation) {
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		if err := election.Reincarnate(ctx, w.engine, prefix, "a snapshot was restored"); err != nil {
			w.witness.reportBreach("converges", "restore: %v", err)
		}
		cancel()
	}
	for _, h := range w.hosts {
		h.hold(-1)
	}
}

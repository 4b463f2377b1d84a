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
	"github.com/berthd/berth/internal/store/memory"
)

// settleLimit is how long a world may take, once faults have ended, to become as users asked. It is longer than any
// back-off, and than a job's limit of silence.
const settleLimit = 30 * time.Minute

// Options are how a story is told.
type Options struct {
	// Without switches clauses of the protocol off.
	Without clause.Set
	// Verbose keeps the chronicle: every revision and every program.
	Verbose bool
	// Logs writes what the parts log to the standard error.
	Logs bool
	// History keeps the lines of which Result.Digest is made.
	History bool
	// StopAtOnce ends the world with the first breach.
	StopAtOnce bool
	// planted, unless nil, is run once the story is told: for tests of the witness.
	planted func(*World)
}

// Result is what a story came to.
type Result struct {
	Violations []Violation
	// Chronicle is filled by Options.Verbose.
	Chronicle []string
	// Starts and Ends count programs, Revisions what was written, Took the world's time.
	Starts, Ends int
	Revisions    uint64
	Leaders      int
	Deeds        Deeds
	Took         time.Duration
	// Digest is a hash of the whole history: every revision of the store, with what was written, and every start and
	// end of a program.
	Digest string
	// History holds its lines, where Options.History asks for them.
	History []string
	// Struck counts the servers that were killed by CrashAt.
	Struck int
}

// World is one domain under a story.
type World struct {
	story   *Story
	options Options
	ctx     context.Context //nolint:containedctx // the world's life
	began   time.Time
	chance  *chance
	net     *network
	disk    *disk
	engine  *memory.Engine
	witness *witness
	hosts   []*host
	nodes   []*node
	byName  map[string]*node
	user    *user
	late    sync.WaitGroup // goroutines of nobody's life
	saved   []byte
	outside *outside
	orders  int          // that the user has not carried out
	struck  atomic.Int64 // servers killed by CrashAt
	// generations are those of the services when faults ended.
	generations map[string]uint64
}

// hangs is how long a story may take by the clock on the wall before it counts as one that never ends. Stories take a
// second or two, those that break and wait for their world to settle ten times that.
const hangs = 4 * time.Minute

// Run tells a story in a bubble of its own. One that never ends, as a goroutine waits for ever while the bubble's clock
// goes on, ends the process: with the story, and with what all goroutines do.
func Run(t *testing.T, story *Story, options Options) Result {
	t.Helper()
	var result Result
	watchdog := time.AfterFunc(hangs, func() {
		fmt.Fprintf(os.Stderr, "seed %d does not end:\n%s", story.Seed, story.String())
		debug.SetTraceback("all")
		panic(fmt.Sprintf("the story of seed %d has not ended after %v", story.Seed, hangs))
	})
	defer watchdog.Stop()
	synctest.Test(t, func(*testing.T) { result = run(story, options) })
	return result
}

func run(story *Story, options Options) Result {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &World{
		story: story, options: options, ctx: ctx, began: time.Now(), chance: newChance(story.Seed),
		byName: map[string]*node{}, outside: &outside{},
	}
	w.net = newNetwork(w.chance)
	w.disk = newDisk(w.began)
	w.witness = newWitness(story)
	w.witness.verbose, w.witness.history = options.Verbose, options.History
	w.engine = memory.New(memory.Options{
		Consul: story.Consul, Random: rand.New(rand.NewPCG(story.Seed, 7)), Observe: w.witness.observe,
	})
	w.furnish()
	w.play()
	if options.planted != nil {
		options.planted(w)
	}
	w.calm()
	w.settle()
	w.end(cancel)
	return Result{
		Violations: w.witness.faults, Chronicle: w.witness.log, Starts: w.witness.starts, Ends: w.witness.ends,
		Revisions: w.revision(), Leaders: len(w.witness.leaders), Deeds: w.witness.deeds, Took: time.Since(w.began),
		Struck: int(w.struck.Load()), Digest: hex.EncodeToString(w.witness.digest.Sum(nil)), History: w.witness.lines,
	}
}

func (w *World) revision() uint64 {
	l, err := w.engine.List(context.Background(), "none/")
	if err != nil {
		return 0
	}
	return l.Revision
}

// furnish begins the world: its definitions, a service that fits nowhere, servers and nodes.
func (w *World) furnish() {
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
	w.late.Go(func() { w.user.run(w.ctx) })
	w.late.Go(func() { w.user.recover(w.ctx) })
	for _, h := range w.hosts {
		h.start()
	}
	for _, n := range w.nodes {
		n.start()
	}
	w.order(Event{Target: "big", Arg: "scale 1"})
}

// order has the user act.
func (w *World) order(e Event) {
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

// logger returns where a part logs to.
func (w *World) logger(who string) *slog.Logger {
	if !w.options.Logs {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(&stamped{w: w}, &slog.HandlerOptions{Level: slog.LevelDebug})).With("who", who)
}

// stamped writes log lines with the world's time.
type stamped struct{ w *World }

// Write is part of io.Writer.
func (s *stamped) Write(b []byte) (int, error) {
	_, rest, _ := strings.Cut(string(b), " ")
	_, _ = fmt.Fprintf(os.Stderr, "%v %s", time.Since(s.w.began), rest)
	return len(b), nil
}

// leader returns the server that leads, as far as any knows, or nil.
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

// end stops everything. It returns when no goroutine is left.
func (w *World) end(cancel func()) {
	for _, n := range w.nodes {
		n.kill()
	}
	for _, h := range w.hosts {
		h.kill()
	}
	cancel()
	w.late.Wait()
}

// snapshot takes a copy of the store.
func (w *World) snapshot() {
	var b bytes.Buffer
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	if err := w.engine.Snapshot(ctx, &b); err == nil {
		w.saved = b.Bytes()
	}
}

// restore replaces the store by the last copy, as an operator does: with all servers stopped.
//
// Raw is to restore it with a tool that is not Berth's, so that nothing tells of it.
func (w *World) restore(raw bool) {
	if w.saved == nil {
		return
	}
	for _, h := range w.hosts {
		h.hold(1)
	}
	w.engine.Fill(false)
	if err := w.engine.Restore(bytes.NewReader(w.saved)); err != nil {
		panic(err) // a fault of the simulator
	}
	if !raw && !w.options.Without.Off(clause.Incarnation) {
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		if err := store.Reincarnate(ctx, w.engine, prefix, "a snapshot was restored"); err != nil {
			w.witness.fault("converges", "restore: %v", err)
		}
		cancel()
	}
	for _, h := range w.hosts {
		h.hold(-1)
	}
}

package sim

import (
	"bytes"
	"cmp"
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
	"github.com/berthd/berth/internal/sim/ci"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
)

// settleLimit bounds the time from the last fault to the state that users want. It is longer than any back-off and than
// a job's limit of silence.
const settleLimit = 30 * time.Minute

// Options control the run of a story.
type Options struct {
	// Without disables clauses of the protocol.
	Without clause.Set
	// Verbose keeps the chronicle: every revision and every program.
	Verbose bool
	// Logs writes what the parts log to the standard error.
	Logs bool
	// History keeps the lines that Result.Digest is computed from.
	History bool
	// StopAtOnce ends the story with the first breach.
	StopAtOnce bool
	// Day, unless nil, adds the work of a CI system to the story.
	Day *ci.Config
	// Timeout, unless 0, replaces storyTimeout.
	Timeout time.Duration
	// injected, unless nil, runs after the story: for tests of the checker.
	injected func(*fleet)
}

// Result is the result of a story.
type Result struct {
	Violations []Violation
	// Chronicle is filled by Options.Verbose.
	Chronicle []string
	// Starts and Ends count programs, Revisions the revisions of the store. Took is the virtual duration of the story.
	Starts, Ends int
	Revisions    uint64
	Leaders      int
	Actions      ActionCounts
	Took         time.Duration
	// Digest is a hash of the whole history: every revision of the store, with what was written, and every start and
	// end of a program.
	Digest string
	// History holds the lines of the history if Options.History is set.
	History []string
	// Crashes counts the servers that CrashAt killed.
	Crashes int
	// Day counts what the work of Options.Day exercised.
	Day DayStats
}

// fleet is all servers, nodes and users of a story, with the network and the disks between them.
type fleet struct {
	story      *Story
	options    Options
	ctx        context.Context //nolint:containedctx // the life of the fleet
	began      time.Time
	random     *randomness
	net        *network
	disk       *disk
	engine     *memory.Engine
	checker    *checker
	hosts      []*host
	nodes      []*node
	byName     map[string]*node
	user       *user
	day        *day           // nil without Options.Day
	proposers  int            // processes of external schedulers that were started
	calm       atomic.Bool    // faults have ended
	background sync.WaitGroup // goroutines outside of any process
	savedStore []byte
	external   *externalMetrics
	orders     int          // orders that the user has not carried out
	crashes    atomic.Int64 // servers killed by CrashAt
	// generations are the generations of the services when faults ended.
	generations map[string]uint64
}

// storyTimeout is the wall-clock time after which a story counts as endless. Stories take a second or two. A story that
// breaks and waits for its fleet to settle takes ten times that.
const storyTimeout = 4 * time.Minute

// Run runs a story in a bubble of its own. An endless story, in which a goroutine waits forever while the bubble's
// clock advances, ends the process. It then prints the story and the stacks of all goroutines.
func Run(t *testing.T, story *Story, options Options) Result {
	t.Helper()
	var result Result
	timeout := cmp.Or(options.Timeout, storyTimeout)
	watchdog := time.AfterFunc(timeout, func() {
		fmt.Fprintf(os.Stderr, "seed %d does not end:\n%s", story.Seed, story.String())
		debug.SetTraceback("all")
		panic(fmt.Sprintf("the story of seed %d has not ended after %v", story.Seed, timeout))
	})
	defer watchdog.Stop()
	synctest.Test(t, func(*testing.T) { result = run(story, options) })
	return result
}

func run(story *Story, options Options) Result {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &fleet{
		story: story, options: options, ctx: ctx, began: time.Now(), random: newRandomness(story.Seed),
		byName: map[string]*node{}, external: &externalMetrics{},
	}
	f.net = newNetwork(f.random)
	f.disk = newDisk(f.began)
	f.checker = newChecker(story)
	f.checker.verbose, f.checker.keepsHistory = options.Verbose, options.History
	f.engine = memory.New(memory.Options{
		Consul: story.Consul, Random: rand.New(rand.NewPCG(story.Seed, 7)), Observe: f.checker.observe,
	})
	if options.Day != nil {
		f.day = newDay(f, *options.Day)
	}
	f.setUp()
	f.play()
	if options.injected != nil {
		options.injected(f)
	}
	f.endFaults()
	f.settle()
	f.end(cancel)
	result := Result{
		Violations: f.checker.breaches,
		Chronicle:  f.checker.chronicle,
		Starts:     f.checker.programs.starts,
		Ends:       f.checker.programs.ends,
		Revisions:  f.revision(),
		Leaders:    len(f.checker.leaders),
		Actions:    f.checker.actions,
		Took:       time.Since(f.began),
		Crashes: int(
			f.crashes.Load(),
		),
		Digest:  hex.EncodeToString(f.checker.digest.Sum(nil)),
		History: f.checker.historyLines,
	}
	if f.day != nil {
		result.Day = f.day.checker.summary()
	}
	return result
}

func (f *fleet) revision() uint64 {
	revision, err := f.engine.Revision(context.Background(), "")
	if err != nil {
		panic(err) // a fault of the simulator
	}
	return revision
}

// maxJobs is the quota of jobs that have tasks at the same time.
const maxJobs = 2

// setUp creates the fleet: its definitions, a service that fits nowhere, servers and nodes.
func (f *fleet) setUp() {
	for _, d := range definitions() {
		f.addDefinition(d)
	}
	f.putRecord(prefix.Cluster(inCluster), cluster.Cluster{
		Name: inCluster, Domain: cluster.DefaultDomain, Permissions: []cluster.Permission{cluster.PermitHostNetwork},
		Quota: &cluster.Quota{Jobs: maxJobs},
	})
	if f.story.hasLoans() {
		f.setUpLoans()
	}
	if f.story.claims() {
		f.putRecord(prefix.Domain(otherDomain),
			cluster.Domain{Name: otherDomain, Number: 1, Scheduler: f.story.domainScheduler(otherDomain)})
		f.putRecord(prefix.Cluster(otherCluster), cluster.Cluster{Name: otherCluster, Domain: otherDomain})
	}
	if f.story.immediate() || f.story.domainScheduler(cluster.DefaultDomain) != nil {
		d := cluster.Domain{
			Name: cluster.DefaultDomain, Scheduler: f.story.domainScheduler(cluster.DefaultDomain),
		}
		if f.story.immediate() {
			d.Projection = cluster.ProjectionImmediate
		}
		if f.story.claims() {
			d.Number = 1 // the last number that was given
		}
		f.putRecord(prefix.Domain(cluster.DefaultDomain), d)
	}
	if f.day != nil {
		f.setUpDay()
	}
	for i := range f.story.Servers {
		f.hosts = append(f.hosts, &host{fleet: f, id: name("s", i+1)})
	}
	for i := range f.story.Nodes {
		n := newNode(f, name("n", i+1))
		f.nodes = append(f.nodes, n)
		f.byName[n.name] = n
	}
	f.user = newUser(f)
	if f.day != nil {
		f.setUpPools()
	}
	f.background.Go(func() { f.user.run(f.ctx) })
	f.background.Go(func() { f.user.runRecovery(f.ctx) })
	for _, h := range f.hosts {
		h.start()
	}
	for _, n := range f.nodes {
		n.start()
	}
	f.orderUser(Event{Target: "big", Arg: "scale 1"})
	if f.day != nil {
		f.day.begin()
	}
}

// addDefinition writes a task definition, and tells the checkers.
func (f *fleet) addDefinition(d *cluster.TaskDefinition) {
	f.checker.cpu[d.Ref()] = d.Demand().CPU
	f.checker.definitions[d.Ref()] = d
	f.putRecord(prefix.Definition(d.Ref()), d)
}

// putRecord writes a record before the first server starts.
func (f *fleet) putRecord(key string, record any) {
	value, err := store.Encode(record)
	if err == nil {
		_, err = f.engine.Commit(f.ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
	}
	if err != nil {
		panic(err) // a fault of the simulator
	}
}

// orderUser sends an order to the user.
func (f *fleet) orderUser(e Event) {
	f.orders++
	f.user.orders <- e
}

func (f *fleet) node(name string) *node {
	if n := f.byName[name]; n != nil {
		return n
	}
	return f.nodes[0]
}

func (f *fleet) host(id string) *host {
	for _, h := range f.hosts {
		if h.id == id {
			return h
		}
	}
	return f.hosts[0]
}

// logger returns the logger of a part.
func (f *fleet) logger(who string) *slog.Logger {
	if !f.options.Logs {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(&timestampWriter{fleet: f},
		&slog.HandlerOptions{Level: slog.LevelDebug})).With("who", who)
}

// timestampWriter writes log lines with the fleet's time.
type timestampWriter struct{ fleet *fleet }

// Write is part of io.Writer.
func (s *timestampWriter) Write(b []byte) (int, error) {
	_, rest, _ := strings.Cut(string(b), " ")
	_, _ = fmt.Fprintf(os.Stderr, "%v %s", time.Since(s.fleet.began), rest)
	return len(b), nil
}

// leader returns the server that leads the default domain, as far as any server knows, or nil.
func (f *fleet) leader() *server { return f.leaderOf(cluster.DefaultDomain) }

// leaderOf returns the server that leads a domain, as far as any server knows, or nil.
func (f *fleet) leaderOf(domain string) *server {
	for _, h := range f.hosts {
		s := h.liveServer()
		if s == nil {
			continue
		}
		if l, ok := s.tables.Snapshot().Leader(domain); ok {
			return f.host(l.Value.Holder).liveServer()
		}
	}
	return nil
}

// end stops everything and returns when no goroutine is left.
func (f *fleet) end(cancel func()) {
	for _, n := range f.nodes {
		n.kill()
	}
	for _, h := range f.hosts {
		h.kill()
	}
	cancel()
	f.background.Wait()
}

// snapshot takes a copy of the store.
func (f *fleet) snapshot() {
	var b bytes.Buffer
	ctx, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	if err := f.engine.Snapshot(ctx, "", &b); err == nil {
		f.savedStore = b.Bytes()
	}
}

// restore replaces the store by the last copy while all servers are stopped, as an operator does. With raw it acts like
// a tool that is not Berth's and leaves no mark.
func (f *fleet) restore(raw bool) {
	if f.savedStore == nil {
		return
	}
	for _, h := range f.hosts {
		h.countHold(1)
	}
	f.engine.Fill(false)
	if err := f.engine.Restore(bytes.NewReader(f.savedStore)); err != nil {
		panic(err) // a fault of the simulator
	}
	if !raw && !f.options.Without.Off(clause.Incarnation) {
		ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
		if err := election.Reincarnate(ctx, f.engine, prefix, "a snapshot was restored"); err != nil {
			f.checker.reportBreach("converges", "restore: %v", err)
		}
		cancel()
	}
	for _, h := range f.hosts {
		h.countHold(-1)
	}
}

// Package agent is the program of a node: it is told which tasks the node should run, moves each of
// them one step at a time, and reports what it sees.
//
// The agent dials its server, registers and so begins a session. One stream brings assignments; reports
// go the other way, one at a time. Each attempt has a record (package attempt), which is kept on disk (package
// state), and a goroutine that asks the record for the next step, takes it through an executor, and
// tells the record what came of it. Nothing of that needs the server but the start barrier of batch: while
// the server is away services are restarted, checks are made, and stops that were accepted are completed.
//
// Ending the agent ends no task. The next one finds the records and the executors' containers, and goes on.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/agent/requests"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
)

// Config is what an agent needs. Name, Source and one Executor must be given, and DataDir unless
// Volatile is set.
type Config struct {
	// Name of the node.
	Name string
	// DataDir holds the agent's state, the tasks' directories and logs, and the volumes that it keeps.
	DataDir string
	// Volatile keeps the agent's state in memory only and makes no directories for containers, for simulations
	// of many nodes with executors that need none.
	Volatile bool
	// Outlives, unless nil, keeps the state of a Volatile agent over its lives.
	Outlives *state.Memory
	Source   Source
	// Executors that the node may have, the default first. Those that do not work are left out, and asked again.
	Executors []executor.Executor
	// Retired are executors that take nothing new. What an earlier agent began with them is theirs to its end.
	Retired []executor.Executor
	Logger  *slog.Logger // default: discard
	// Tracer makes spans of what becomes of an assignment; nil makes none.
	Tracer *telemetry.Tracer
	// Labels are reported with the facts, and so is Version of the agent.
	Labels  cluster.Labels
	Version string
	// CPU, Memory, Disk and Address, unless empty, are reported instead of the machine's.
	CPU     cluster.MilliCPU
	Memory  cluster.Bytes
	Disk    cluster.Bytes
	Address string
	// ReservedPorts are taken by others than tasks.
	ReservedPorts []int
	// Credentials, unless nil, returns what a registry wants for its images, or empty strings.
	Credentials func(registry string) (user, secret string)

	// HostVolumes are folders that definitions can name, and HostPaths those below which they can name any path: "/" is
	// anywhere, none is nowhere. All of them are absolute.
	HostVolumes []HostVolume
	HostPaths   []string

	// SecretsDir, unless empty, is the folder in memory for the secrets of tasks. Default: one below /run, the user's
	// run directory or /dev/shm, whichever is in memory.
	SecretsDir string

	// Boot is the boot-time clock (P9.1): never 0, never going back while the machine runs. Default: the machine's.
	Boot func() time.Duration
	// Facts finds out about the machine; what it returns besides an error is used. Default: the machine's.
	Facts func(dir string) (cluster.Facts, error)
	// Devices, unless nil, finds the machine's devices; what it returns besides an error is used.
	Devices func(ctx context.Context) ([]devices.Device, error)
	// Networks, unless nil, makes networks for tasks that have one of their own; without it such tasks are refused.
	Networks Networks
	// Names says how questions for names are answered.
	Names NamesConfig
	// CPUs are those that all tasks run on, ordered. They must be given where the agent offers cores to single tasks.
	CPUs []int
	// Stats measures what the machine uses; it is called by one goroutine, every few seconds, with DataDir. Default:
	// the machine's own, and none for a Volatile agent, which then reports none.
	Stats func(dir string) (cluster.NodeStats, error)
	// Samples, unless nil, is handed what each container has used since it began, after each measurement, by the
	// goroutine that measures, which goes on when it returns.
	Samples func([]telemetry.ContainerSample)
	// Scarcity measures how short of memory the machine is, as often and by the same goroutine. Default: the machine's
	// own, or where Stats is given from what that says.
	Scarcity func() (facts.Scarcity, error)
	// PressureStall and PressureFree are when the node counts as short of memory: the share of the time that tasks wait
	// for memory, where the kernel tells, default DefaultPressureStall; and the share of memory that is free, of the
	// machine or of what all tasks may use, default DefaultPressureFree. In percent. Where the kernel tells how long
	// tasks wait, the machine's share counts only if it is another than the default.
	PressureStall float64
	PressureFree  float64
	// TaskCgroup is the control group of all tasks, default "/berth".
	TaskCgroup string
	// ImageHigh and ImageLow are how full the disks of images and of artifacts may be, in percent: from the one on
	// those of either are removed that nothing uses, down to the other. Default DefaultImageHigh and DefaultImageLow;
	// an ImageHigh of 100 or more removes none.
	ImageHigh, ImageLow float64
	// Artifacts bounds what is fetched for tasks. Default: as artifact.Config says, in a folder of DataDir.
	Artifacts artifact.Config
	// Requests returns how many requests the program at a port of this node has answered so far. Default: to ask it.
	Requests func(ctx context.Context, port int, m cluster.Meter) (float64, error)
	// PortFree returns nil if a task could listen on the port now. Default: to try.
	PortFree func(port int) error
	// Probe, unless nil, looks instead of the network for http and tcp checks.
	Probe func(ctx context.Context, c *cluster.Check, ports map[string]int) error
	// Random returns numbers from 0 up to 1 for jitter. Default: random ones.
	Random func() float64
	// Without switches clauses of the protocol off, in tests only.
	Without clause.Set
}

func (c *Config) defaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Boot == nil {
		c.Boot = boottime.Now
	}
	if c.Facts == nil {
		c.Facts = facts.Gather
	}
	if c.TaskCgroup == "" {
		c.TaskCgroup = "/berth"
	}
	if c.Stats == nil && !c.Volatile {
		meter := new(facts.Meter)
		c.Stats = meter.Measure
		if c.Scarcity == nil {
			c.Scarcity = func() (facts.Scarcity, error) { return meter.Scarcity(c.TaskCgroup) }
		}
	}
	if c.ImageHigh <= 0 {
		c.ImageHigh = DefaultImageHigh
	}
	if c.ImageLow <= 0 {
		c.ImageLow = min(DefaultImageLow, c.ImageHigh)
	}
	if c.PortFree == nil {
		c.PortFree = facts.PortFree
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
}

// Validate returns what is missing.
func (c *Config) Validate() error {
	var errs []error
	if !cluster.ValidNodeName(c.Name) {
		errs = append(errs, fmt.Errorf("node name %q: want lower-case letters, digits, \"-\" and \".\"", c.Name))
	}
	if c.Source == nil {
		errs = append(errs, errors.New("an agent needs a server"))
	}
	if len(c.Executors) == 0 {
		errs = append(errs, errors.New("an agent needs an executor"))
	}
	if c.DataDir == "" {
		errs = append(errs, errors.New("an agent needs a data directory"))
	}
	return errors.Join(errs...)
}

// Agent runs the tasks of one node.
type Agent struct {
	Config

	store   *state.Store
	reports *reports
	machine machine

	mu          sync.Mutex
	tasks       map[string]*task           // by UUID
	byID        map[cluster.TaskID][]*task // the attempts of each task, the newest last
	definitions map[cluster.Ref]*cluster.TaskDefinition
	mark        state.Mark
	present     attempt.Session
	hearing     lifecycle.Hearing // when words to checks can come

	// displaced belongs to the goroutine that registers: how often in a row another agent took the session away.
	displaced int

	// use and squeeze belong to the goroutine that measures.
	use      taskUse
	squeeze  squeeze
	requests requestRates

	volumes volumes
	found   *found // what runs here and is in no record
	pins    *pins  // who runs on which CPUs
	book    *directory
	names   *nameDesk

	artifacts *artifact.Store
	room      room // on the disks of images and artifacts

	work    sync.WaitGroup // goroutines of tasks and streams
	streams atomic.Int64   // byte streams that are open

	imagesRemoved, imagesFreed atomic.Int64 // to make room, since the agent was made; the latter in bytes
}

// New returns an agent; it starts nothing.
func New(c Config) (*Agent, error) {
	c.defaults()
	c.Logger = c.Logger.With(telemetry.KeyNode, c.Name)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if dir, err := filepath.Abs(c.DataDir); err == nil {
		c.DataDir = dir
	}
	a := &Agent{Config: c}
	a.book = newDirectory(a)
	a.names = newNameDesk(a)
	a.artifacts = a.openArtifacts()
	if a.Requests == nil {
		reader := requests.New()
		a.Requests = func(ctx context.Context, port int, m cluster.Meter) (float64, error) {
			return reader.Count(ctx, a.machine.facts().Address, port, m)
		}
	}
	return a, nil
}

// Run runs the node until ctx ends; that leaves the tasks running. It returns an error only if it could not
// begin: the state on disk is not to be had. It may be called again after it returned.
func (a *Agent) Run(ctx context.Context) error {
	path := filepath.Join(a.DataDir, "agent.db")
	if a.Volatile {
		path = ""
	}
	store, err := state.Open(path, a.Logger)
	if err != nil {
		return err
	}
	if a.Volatile && a.Outlives != nil {
		store = state.OpenMemory(a.Outlives, a.Logger)
	}
	saved, err := store.Load()
	if err != nil {
		return errors.Join(err, store.Close())
	}
	a.store = store
	a.reports = newReports(a)
	a.tasks, a.byID = map[string]*task{}, map[cluster.TaskID][]*task{}
	a.definitions = map[cluster.Ref]*cluster.TaskDefinition{}
	a.found, a.pins = newFound(), newPins()
	a.machine.again = make(chan struct{}, 1)
	a.volumes.begin()
	a.use, a.squeeze = taskUse{}, squeeze{}
	a.mark, a.present, a.hearing = saved.Mark, attempt.Session{}, lifecycle.Hearing{}
	for _, d := range saved.Definitions {
		a.definitions[d.Ref()] = d
	}

	var writer sync.WaitGroup
	written, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()
	var writeErr error
	writer.Go(func() { writeErr = store.Run(written) })

	if l, ok := a.Source.(learner); ok {
		l.Learn(saved.Mark.Servers)
	}
	a.look(ctx)
	a.work.Go(func() { a.watchMachine(ctx) })
	if a.Stats != nil {
		a.measure()
		a.work.Go(func() { a.watchUse(ctx) })
		a.work.Go(func() { a.watchRequests(ctx) })
	}
	if !a.Volatile {
		a.work.Go(func() { a.tidyLogs(ctx) })
		a.work.Go(func() { a.watchVolumes(ctx) })
		a.work.Go(func() { a.watchRoom(ctx) })
	}
	if !a.Volatile {
		a.book.load()
		a.work.Go(func() { a.book.keep(ctx) })
		a.names.begin(ctx)
	}
	a.resume(ctx, saved.Attempts)
	if a.Networks != nil {
		a.work.Go(func() { a.sweepNetworks(ctx) })
	}
	if len(a.CPUs) > 0 {
		a.work.Go(func() { a.watchPins(ctx) })
	}
	a.sessions(ctx)
	a.work.Wait()
	if a.Networks != nil {
		if err := a.Networks.Close(); err != nil {
			a.Logger.Warn("the networks of tasks were not let go of", "error", err)
		}
	}
	stopWriter()
	writer.Wait()
	return writeErr
}

// now is the time on both clocks.
func (a *Agent) now() attempt.Now { return attempt.Now{Boot: a.Boot(), Wall: time.Now()} }

// saw raises the highest token and session that are persisted (P1.6).
func (a *Agent) saw(t cluster.Token, session uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.mark
	if t.Compare(m.Token) > 0 {
		m.Token = t
	}
	if session != 0 {
		m.Session = session
	}
	if m.Token != a.mark.Token || m.Session != a.mark.Session {
		a.mark = m
		a.store.QueueMark(m)
	}
}

// learned keeps the list of servers that one of them told, for the next life of the agent. The Source hears it by
// itself.
func (a *Agent) learned(servers []string) {
	if len(servers) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(servers, a.mark.Servers) {
		a.mark.Servers = servers
		a.store.QueueMark(a.mark)
	}
}

// inSession tells the tasks that a session has begun, before anything is heard in it.
func (a *Agent) inSession(w transport.Welcome) {
	s := attempt.Session{Number: w.Session, Asks: w.Wire >= transport.PermitVersion && !a.Without.Off(clause.Permit)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.present = s
	for _, t := range a.tasks { // order-free: each is told by itself
		t.inSession(s)
	}
}

func (a *Agent) marked() state.Mark {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mark
}

// task returns the newest attempt of a task, or the one with the UUID unless that is empty, or nil.
func (a *Agent) task(id cluster.TaskID, uuid string) *task {
	a.mu.Lock()
	defer a.mu.Unlock()
	if uuid != "" {
		return a.tasks[uuid]
	}
	if all := a.byID[id]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// add makes a task known, with its definition where there is one.
func (a *Agent) add(t *task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks[t.uuid] = t
	all := append(a.byID[t.id], t)
	slices.SortStableFunc(all, func(x, y *task) int { return x.attempt - y.attempt })
	a.byID[t.id] = all
	t.def = a.definitions[t.definition]
	t.rec.InSession(a.present) // its goroutine has not begun
}

// remove forgets an attempt of which nothing is left, unless it may be wanted again. Who finds it gone finds all of it
// gone.
func (a *Agent) remove(t *task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !t.leave() {
		return false
	}
	delete(a.tasks, t.uuid)
	left := slices.DeleteFunc(a.byID[t.id], func(other *task) bool { return other == t })
	if a.byID[t.id] = left; len(left) == 0 {
		delete(a.byID, t.id)
	}
	a.reports.drop(t.uuid)
	a.store.ForgetAttempt(t.uuid)
	return true
}

// pause waits for a time that doubles with each failure, with jitter, or until ctx ends.
type pause struct {
	first, most time.Duration
	random      func() float64
	failures    int
}

func (a *Agent) pause(first, most time.Duration) *pause {
	return &pause{first: first, most: most, random: a.Random}
}

// next returns the next wait: from half of it to the whole, so that many agents do not come together.
func (p *pause) next() time.Duration {
	d := p.most
	if p.failures < 20 && p.first<<p.failures < p.most {
		d = p.first << p.failures
	}
	p.failures++
	return d/2 + time.Duration(p.random()*float64(d/2))
}

func (p *pause) reset() { p.failures = 0 }

// or returns p, or the other where there is none.
func (p *pause) or(other *pause) *pause {
	if p == nil {
		return other
	}
	return p
}

// wait waits for the next time and reports false if ctx ended.
func (p *pause) wait(ctx context.Context) bool {
	timer := time.NewTimer(p.next())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// registration is the whole state of the node (P6.4).
func (a *Agent) registration() (transport.Registration, []sent) {
	mark := a.marked()
	tasks, versions := a.reports.full()
	tasks = append(tasks, a.strays()...)
	return transport.Registration{
		Node: a.Name, Previous: mark.Session, Token: mark.Token, Facts: a.machine.facts(), Tasks: tasks,
		Stats: a.machine.use(), Displaced: a.displaced, Wire: transport.WireVersion, WireMin: transport.WireMin,
	}, versions
}

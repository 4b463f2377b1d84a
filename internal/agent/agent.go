// Package agent runs the tasks of one node. It receives assignments from a server, moves each attempt one step at a
// time, and reports the state that it observes.
//
// The agent dials its server and registers; the registration begins a session. One stream brings assignments; reports
// go the other way, one at a time. Each attempt has a record (package attempt), which is kept on disk (package state).
// A goroutine for each attempt asks the record for the next step, performs the step with an executor, and records the
// result. Only the start barrier of batch tasks needs the server. Without a server the agent still restarts services,
// runs checks and completes accepted stops.
//
// The end of the agent ends no task. The next agent finds the records and the executors' containers, and continues.
//
// # Metrics of tasks
//
// Agents keep counters and report rates. `cluster.Counts` never leaves the node. `cluster.UseDetail` holds rates over
// about ten seconds. It is sent when it changed by half and by a noticeable amount, with a report that is due anyway;
// it never causes one. CPU and memory are read every 2 s, the rest every 10 s for each attempt, spread over that time:
// 200 containers cost 16 ms in ten seconds. Prometheus reads the agents, at an address that is off by default and must
// be loopback without a token. A scrape returns the last measurement, so it costs none. Series are bounded to 1,000
// containers a node and fewer than 20 series each. The network belongs to a task and not to a container, and each
// namespace counts once. The owner is in the labels `service` or `job_name`, because Prometheus would rename a label
// `job`. Rates come from differences of the kernel's totals and not from `avg10`, so all cover the same time. Servers
// do not export metrics of tasks: they would be one page of a million lines, and no counter can be made of rates.
//
// # Names and services
//
// An address change costs the agent a copy of the list. Names are prepared at the first question after a change (0.16
// ms for both with 1,000 addresses; parsing a whole list takes 3 ms). The file for the agent's next life is written at
// most each second and takes a fiftieth of a core at most. A difference that does not fit changes nothing: the agent
// logs it and asks for whole lists until the end of the session. A file whose lists do not match their stamps is
// usable, but no base for differences. Tasks of a service restart by index after a change; one task rests 30 s between
// restarts, then ever longer.
//
// # Secrets
//
// A file's folder is bound into the container and not the file, because only then a replacement by rename is visible.
// The supervisor of the process executor reads variables from tmpfs when it starts the program. containerd keeps the
// description of a container on disk, so berth itself is bound into the container's /dev, reads the file and becomes
// the program; an image's program then needs memory for berth's start. The writer of a log reads the values at the
// first line, and again when a stat shows that a folder changed; no description holds a value. Writers of logs read
// present and former values by one function (executor.SecretValues).
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

// Config configures an agent. Name, Source and one Executor are required, and DataDir unless Volatile is set.
type Config struct {
	// Name of the node.
	Name string
	// DataDir holds the agent's state, the tasks' directories and logs, and the volumes that it keeps.
	DataDir string
	// Volatile keeps the agent's state in memory only and makes no directories for containers. Simulations of many
	// nodes use it with executors that need no directories.
	Volatile bool
	// Outlives, unless nil, keeps the state of a Volatile agent from one run to the next.
	Outlives *state.Memory
	Source   Source
	// Executors are the executors that the node may have, the default first. The agent leaves out those that do not
	// work and probes them again.
	Executors []executor.Executor
	// Retired are executors that get no new tasks. Tasks that an earlier agent began with them stay with them to the
	// end.
	Retired []executor.Executor
	Logger  *slog.Logger // default: discard
	// Tracer records spans of the work on an assignment; nil records none.
	Tracer *telemetry.Tracer
	// Labels and Version are reported with the facts; Version is the agent's.
	Labels  cluster.Labels
	Version string
	// CPU, Memory, Disk and Address, unless empty, are reported instead of the machine's.
	CPU     cluster.MilliCPU
	Memory  cluster.Bytes
	Disk    cluster.Bytes
	Address string
	// ReservedPorts are ports that programs other than tasks use.
	ReservedPorts []int
	// Credentials, unless nil, returns the login for a registry, or empty strings.
	Credentials func(registry string) (user, secret string)

	// HostVolumes are folders that definitions name. HostPaths are folders below which definitions may name any path:
	// "/" allows every path, an empty list allows none. All of them are absolute.
	HostVolumes []HostVolume
	HostPaths   []string

	// SecretsDir, unless empty, is the folder in memory for the secrets of tasks. Default: the first of /run, the
	// user's run directory and /dev/shm that is in memory, with a folder of its own.
	SecretsDir string

	// Boot is the boot-time clock (P9.1): never 0, never going back while the machine runs. Default: the machine's.
	Boot func() time.Duration
	// Facts measures the machine. The agent uses the result even with an error. Default: the machine's.
	Facts func(dir string) (cluster.Facts, error)
	// Devices, unless nil, finds the machine's devices. The agent uses the result even with an error.
	Devices func(ctx context.Context) ([]devices.Device, error)
	// Networks, unless nil, makes the networks of tasks that have their own; without it the agent refuses such tasks.
	Networks Networks
	// Names configures the answers to DNS questions.
	Names NamesConfig
	// CPUs are the CPUs that all tasks run on, in ascending order. They are required where the agent offers single
	// cores to tasks.
	CPUs []int
	// Stats measures what the machine uses. One goroutine calls it with DataDir, every few seconds. Default: the
	// machine's own; a Volatile agent has no default and then reports no statistics.
	Stats func(dir string) (cluster.NodeStats, error)
	// Samples, unless nil, gets the use of each container since its start, after each measurement. The measuring
	// goroutine calls it and waits for its return.
	Samples func([]telemetry.ContainerSample)
	// Scarcity measures how short of memory the machine is, as often as Stats and on the same goroutine. Default: the
	// machine's own, or a value derived from Stats where Stats is given.
	Scarcity func() (facts.Scarcity, error)
	// PressureStall and PressureFree are the thresholds of memory pressure, in percent. PressureStall is the share of
	// time that tasks wait for memory, where the kernel reports it (PSI); default DefaultPressureStall. PressureFree is
	// the free share of memory, of the machine or of the limit of all tasks; default DefaultPressureFree. Where the
	// kernel reports the waiting time, the machine's free share counts only if PressureFree differs from the default.
	PressureStall float64
	PressureFree  float64
	// TaskCgroup is the control group of all tasks, default "/berth".
	TaskCgroup string
	// ImageHigh and ImageLow are fill levels of the disks of images and artifacts, in percent. At ImageHigh the agent
	// removes unused images and artifacts until the disk is down to ImageLow. Defaults: DefaultImageHigh and
	// DefaultImageLow. An ImageHigh of 100 or more removes nothing.
	ImageHigh, ImageLow float64
	// Artifacts limits the artifacts that the agent fetches for tasks. Default: as artifact.Config says, in a folder of
	// DataDir.
	Artifacts artifact.Config
	// Requests returns the number of requests that the program at a port of this node has answered so far. Default: the
	// agent asks the program.
	Requests func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error)
	// PortFree returns nil if a task could listen on the port now. Default: the agent tries to listen.
	PortFree func(port int) error
	// Probe, unless nil, replaces the network in http and tcp checks.
	Probe func(ctx context.Context, c *cluster.Check, ports map[string]int) error
	// Random returns numbers in [0, 1) for jitter. Default: a random generator.
	Random func() float64
	// Without disables clauses of the protocol, in tests only.
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
		meter := new(facts.Sampler)
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

// Validate returns an error for each missing or invalid setting.
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
	session     attempt.Session
	ttlWindow   lifecycle.TTLWindow // when updates of ttl checks can arrive

	// displaced counts how often in a row another agent took the session over. It belongs to the goroutine that
	// registers.
	displaced int

	// The next three fields belong to the goroutine that measures.
	use      taskUse
	pressure memoryPressure
	requests requestRates

	volumes  volumes
	orphans  *orphans // containers without a record
	pins     *pins    // which containers run on which CPUs
	services *directory
	names    *nameServer

	artifacts *artifact.Store
	room      room // the disks of images and artifacts

	work    sync.WaitGroup // goroutines of tasks and streams
	streams atomic.Int64   // byte streams that are open

	imagesRemoved, imagesFreed atomic.Int64 // removed to free disk space since New; imagesFreed in bytes
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
	a.services = newDirectory(a)
	a.names = newNameServer(a)
	a.artifacts = a.openArtifacts()
	if a.Requests == nil {
		reader := requests.New()
		a.Requests = func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error) {
			return reader.Count(ctx, a.machine.facts().Address, port, m)
		}
	}
	return a, nil
}

// Run runs the node until ctx ends, and leaves the tasks running. It returns an error only if it cannot open or write
// the state on disk. It may be called again after it returned.
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
	a.orphans, a.pins = newOrphans(), newPins()
	a.machine.probeNow = make(chan struct{}, 1)
	a.volumes.begin()
	a.use, a.pressure = taskUse{}, memoryPressure{}
	a.mark, a.session, a.ttlWindow = saved.Mark, attempt.Session{}, lifecycle.TTLWindow{}
	for _, d := range saved.Definitions {
		a.definitions[d.Ref()] = d
	}

	var writer sync.WaitGroup
	written, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()
	var writeErr error
	writer.Go(func() { writeErr = store.Run(written) })

	if l, ok := a.Source.(serverLearner); ok {
		l.Learn(saved.Mark.Servers)
	}
	a.probeMachine(ctx)
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
		a.services.load()
		a.work.Go(func() { a.services.run(ctx) })
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
			a.Logger.Warn("the networks of tasks were not closed", "error", err)
		}
	}
	stopWriter()
	writer.Wait()
	return writeErr
}

// now returns the time on both clocks.
func (a *Agent) now() attempt.Now { return attempt.Now{Boot: a.Boot(), Wall: time.Now()} }

// raiseMark raises the persisted token and session to higher values (P1.6).
func (a *Agent) raiseMark(t cluster.Token, session uint64) {
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

// rememberServers persists a server list that a server sent, for the next run of the agent. The Source gets the list by
// itself.
func (a *Agent) rememberServers(servers []string) {
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

// beginSession tells the tasks that a session has begun, before its first message arrives.
func (a *Agent) beginSession(w transport.Welcome) {
	s := attempt.Session{Number: w.Session, Asks: w.Wire >= transport.PermitVersion && !a.Without.Off(clause.Permit)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = s
	for _, t := range a.tasks { // order-free: each task is independent
		t.inSession(s)
	}
}

func (a *Agent) currentMark() state.Mark {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mark
}

// task returns the attempt with the UUID, or the newest attempt of the task where uuid is empty, or nil.
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

// add registers a task and gives it its definition if that is known.
func (a *Agent) add(t *task) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks[t.uuid] = t
	all := append(a.byID[t.id], t)
	slices.SortStableFunc(all, func(x, y *task) int { return x.attempt - y.attempt })
	a.byID[t.id] = all
	t.def = a.definitions[t.definition]
	t.rec.Session = a.session // its goroutine has not begun
}

// remove forgets an attempt that has nothing left on the node, unless an event waits in its inbox. All traces of the
// attempt go at once.
func (a *Agent) remove(t *task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !t.closeInbox() {
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

// backoff is a waiting time that doubles with each failure, with jitter.
type backoff struct {
	shortest, longest time.Duration
	random            func() float64
	failures          int
}

func (a *Agent) newBackoff(shortest, longest time.Duration) *backoff {
	return &backoff{shortest: shortest, longest: longest, random: a.Random}
}

// next returns the next waiting time: between half of it and all of it, so that many agents do not retry at the same
// moment.
func (p *backoff) next() time.Duration {
	d := p.longest
	if p.failures < 20 && p.shortest<<p.failures < p.longest {
		d = p.shortest << p.failures
	}
	p.failures++
	return d/2 + time.Duration(p.random()*float64(d/2))
}

func (p *backoff) reset() { p.failures = 0 }

// orElse returns p, or other if p is nil.
func (p *backoff) orElse(other *backoff) *backoff {
	if p == nil {
		return other
	}
	return p
}

// wait waits for the next waiting time and reports false if ctx ended.
func (p *backoff) wait(ctx context.Context) bool {
	timer := time.NewTimer(p.next())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// registration returns the complete state of the node (P6.4).
func (a *Agent) registration() (transport.Registration, []reportItem) {
	mark := a.currentMark()
	tasks, versions := a.reports.allEntries()
	tasks = append(tasks, a.orphanReports()...)
	return transport.Registration{
		Node: a.Name, Previous: mark.Session, Token: mark.Token, Facts: a.machine.facts(), Tasks: tasks,
		Stats: a.machine.latestStats(), Displaced: a.displaced, Wire: transport.WireVersion, WireMin: transport.WireMin,
	}, versions
}

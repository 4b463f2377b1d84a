// Package node holds what all parts of an agent share: the node's name and folders, its clocks and random numbers, its
// log, and the goroutines that the agent waits for when it ends.
package node

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/pause"
)

// Backoff of an agent's requests to its server, and of steps that a single failure ends.
const (
	// MinDialBackoff and MaxDialBackoff limit the time between attempts to reach the server.
	MinDialBackoff = 200 * time.Millisecond
	MaxDialBackoff = 10 * time.Second
	// MinRetryBackoff is the shortest time between two attempts of one step or one report.
	MinRetryBackoff = 100 * time.Millisecond
	// FastProbeInterval is how often the agent probes its machine while an executor fails. It is also the longest time
	// between two attempts of a step that waits for an executor.
	FastProbeInterval = 5 * time.Second
)

// Node is what all parts of an agent share. Its fields do not change after the agent was made, so all goroutines may
// read them.
type Node struct {
	// Name of the node.
	Name string
	// DataDir holds all files of the agent. A Volatile agent has none.
	DataDir  string
	Volatile bool
	Logger   *slog.Logger
	// Boot is the boot-time clock (P9.1): never 0, never going back while the machine runs.
	Boot func() time.Duration
	// Random returns numbers in [0, 1) for jitter.
	Random func() float64
	// Metrics counts what happens on the node; nil counts nothing.
	Metrics Metrics
	// Without disables clauses of the protocol, in tests only.
	Without clause.Set

	work sync.WaitGroup
}

// Metrics counts what happens on a node, from the start of its agent on. The calls must return immediately. They may be
// concurrent.
type Metrics interface {
	// ContainerCreated counts a try to make a container, and ContainerStarted one to start its program. A try that the
	// agent gave up itself, since the attempt has to stop, does not count.
	ContainerCreated(executor string, err error)
	ContainerStarted(executor string, err error)
	// Connected counts an assignment stream that the agent opened, and Interrupted one that ended before the agent did.
	Connected()
	Interrupted()
	// LogLinesLost counts lines of a task's output that one reader did not get. Not written are those that could not be
	// stored. The others were deleted before the reader came to them.
	LogLinesLost(lines int64, written bool)
}

// Now returns the time on both clocks.
func (n *Node) Now() attempt.Now { return attempt.Now{Boot: n.Boot(), Wall: time.Now()} }

// Go runs f on a goroutine that Wait waits for.
func (n *Node) Go(f func()) { n.work.Go(f) }

// Wait waits until all goroutines of Go have ended.
func (n *Node) Wait() { n.work.Wait() }

// NewBackoff returns a backoff between the shortest and the longest waiting time, with the jitter of the node.
func (n *Node) NewBackoff(shortest, longest time.Duration) *pause.Backoff {
	return &pause.Backoff{Shortest: shortest, Longest: longest, Random: n.Random}
}

// TaskDir is the folder of all files of an attempt except its volumes and logs.
func (n *Node) TaskDir(uuid string) string { return filepath.Join(n.DataDir, "tasks", uuid) }

// RunDir is the folder of one run of a container. The path is short because sockets are made in it.
func (n *Node) RunDir(uuid string, id executor.ID) string {
	return filepath.Join(n.TaskDir(uuid), strings.TrimPrefix(string(id), uuid+"-"))
}

// LogRoot is the folder of the logs of all attempts, with one folder each.
func (n *Node) LogRoot() string { return filepath.Join(n.DataDir, "logs") }

// LogDir is the folder of the logs of all runs of a container.
func (n *Node) LogDir(uuid, container string) string {
	return filepath.Join(n.LogRoot(), uuid, container)
}

// Nudge puts a value into a channel of capacity 1, unless it holds one already. It never blocks.
func Nudge(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/plain"
)

// Executors holds the executors of the node. An executor counts as working if it answered its newest probe. Tasks stay
// with the executor that they began with, also while it fails. One goroutine probes; all others may read.
type Executors struct {
	node *node.Node
	// offered are the executors that the node may have, the default first. retired get no new tasks.
	offered, retired []executor.Executor

	mu             sync.Mutex
	working        []Named // of offered, in their order
	workingRetired []Named // of retired
	// byName holds all executors that ever answered.
	byName  map[string]executor.Executor
	problem string // errors of the offered executors that failed their newest probe
}

// Named is an executor with its own name.
type Named struct {
	executor.Executor
	Name string
}

// NewExecutors returns executors before their first answer. Retired executors get no new tasks.
func NewExecutors(n *node.Node, offered, retired []executor.Executor) *Executors {
	return &Executors{node: n, offered: offered, retired: retired, byName: map[string]executor.Executor{}}
}

// probe asks all executors whether they work, and adds the working ones to the facts. It logs once why an executor does
// not work, except for retired ones: a retired executor may never have run anything.
func (e *Executors) probe(ctx context.Context, f *cluster.Facts) {
	working, facts, failures := probeAll(ctx, e.offered)
	f.Executors = append(f.Executors, facts...)
	retired, _, _ := probeAll(ctx, e.retired)
	var text string
	if err := errors.Join(failures...); err != nil {
		text = plain.Text(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.working, e.workingRetired = working, retired
	for _, n := range slices.Concat(retired, working) {
		e.byName[n.Name] = n.Executor
	}
	if text != e.problem && text != "" {
		e.node.Logger.Warn("an executor does not work on this machine", "error", text)
	}
	e.problem = text
}

// probeAll asks executors whether they work.
func probeAll(ctx context.Context, all []executor.Executor) (
	working []Named, facts []cluster.ExecutorFact, failures []error,
) {
	for _, e := range all {
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		fact, err := e.Probe(probe)
		cancel()
		if err != nil {
			failures = append(failures, err)
			continue
		}
		facts = append(facts, fact)
		working = append(working, Named{e, fact.Name})
	}
	return working, facts, failures
}

// Problem says why offered executors failed their newest probe, in one line. It is empty if all work.
func (e *Executors) Problem() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.ReplaceAll(e.problem, "\n", "; ")
}

// failing reports whether an offered executor failed its newest probe.
func (e *Executors) failing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem != ""
}

// ByName returns the executor with the name. An executor that has not answered since the agent began may do so later;
// until then the error is executor.ErrUnavailable.
func (e *Executors) ByName(name string) (executor.Executor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	found, ok := e.byName[name]
	if !ok {
		return nil, fmt.Errorf("executor %q: %w", name, executor.ErrUnavailable)
	}
	return found, nil
}

// offers returns the working executors that get new tasks, in the order of the configuration.
func (e *Executors) offers() []Named {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.working
}

// All returns the working executors, the retired ones last.
func (e *Executors) All() []Named {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Concat(e.working, e.workingRetired)
}

// Choose returns the name of the executor for a definition. Definitions with images get the first executor that holds
// images; others get the first one that holds none. If there is no match, the first working executor is used.
func (e *Executors) Choose(d *cluster.TaskDefinition) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	image := slices.ContainsFunc(d.Containers, func(c cluster.Container) bool { return c.Image != "" })
	for _, n := range e.working {
		if _, holds := n.Executor.(executor.ImageStore); holds == image {
			return n.Name, true
		}
	}
	if len(e.working) == 0 {
		return "", false
	}
	return e.working[0].Name, true
}

// ImageStore returns the first working executor that holds images, or nil.
func (e *Executors) ImageStore() executor.ImageStore {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.working {
		if s, ok := n.Executor.(executor.ImageStore); ok {
			return s
		}
	}
	return nil
}

// ImageKeeper returns the first working executor that pulls and removes images, or nil.
func (e *Executors) ImageKeeper() executor.ImageKeeper {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.working {
		if k, ok := n.Executor.(executor.ImageKeeper); ok {
			return k
		}
	}
	return nil
}

// VolumeOwner returns the user of the first container that writes to the volume. An executor that resolves users gives
// the user on the node; otherwise the user must be numeric.
func (e *Executors) VolumeOwner(def *cluster.TaskDefinition, volume string) (uid, gid int, ok bool) {
	name, _ := e.Choose(def)
	chosen, _ := e.ByName(name)
	namer, _ := chosen.(executor.UserNamer)
	for i := range def.Containers {
		c := &def.Containers[i]
		writes := slices.ContainsFunc(c.Mounts, func(m cluster.Mount) bool { return m.Volume == volume && !m.ReadOnly })
		if !writes {
			continue
		}
		if namer != nil {
			uid, gid, err := namer.UserOf(c)
			return uid, gid, err == nil
		}
		user, group, two := strings.Cut(c.User, ":")
		if !two {
			group = user
		}
		uid, err := strconv.Atoi(user)
		if err != nil {
			return 0, 0, false
		}
		gid, err := strconv.Atoi(group)
		return uid, gid, err == nil
	}
	return 0, 0, false
}

// Package single runs a server and an agent in one process, for `berth dev` and `berth standalone`.
package single

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/contexts"
	"github.com/berthd/berth/internal/serve/handover"
	"github.com/berthd/berth/internal/serve/hostdriver"
	"github.com/berthd/berth/internal/serve/node"
	"github.com/berthd/berth/internal/serve/server"
	"github.com/berthd/berth/internal/version"
)

// Process is a server and the agent of the same machine. Run closes both.
type Process struct {
	// Open opens the server. A node that moves between owners opens several, one after the other.
	Open func(context.Context) (*server.Server, error)
	Node node.Config
	// Handover moves the node between its own server and those of a fleet; nil for a node that always drives itself.
	Handover *handover.Mover
	// Stdout gets the address in one line, once both serve.
	Stdout io.Writer
	// Notices, unless nil, makes the process that of a user at a terminal. Commands of the user find it by a context of
	// its own. At the end, Notices gets a line about the tasks that continue.
	Notices io.Writer
}

// Run runs the node until the context ends: with its own server, or as the agent of other servers. Containers continue
// after the end.
func (p *Process) Run(ctx context.Context) error {
	idle := true
	var err error
	for again := true; again; {
		idle, again, err = p.runOwner(ctx)
	}
	if idle && p.Node.Executors.Idle(ctx) {
		err = errors.Join(err, p.Node.Executors.StopAll(ctx))
	}
	return errors.Join(err, p.Node.Executors.Close())
}

// runOwner runs the node until its owner changes or the context ends. It reports whether no task of the own server is
// left, and whether another owner follows.
func (p *Process) runOwner(ctx context.Context) (idle, again bool, err error) {
	journal := handover.Journal{Phase: api.HandoverOwn}
	var moved <-chan struct{}
	if p.Handover != nil {
		if journal, moved, err = p.Handover.Begin(); err != nil {
			return false, false, err
		}
	}
	within, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-moved:
			end()
		case <-within.Done():
		}
	}()
	if journal.DrivesItself() {
		idle, err = p.runOwn(within)
	} else {
		idle, err = true, p.runForServers(within, &journal)
	}
	if err == nil && ctx.Err() == nil && within.Err() != nil {
		return idle, true, nil
	}
	return idle, false, err
}

// runForServers runs the agent of other servers, and beside it the node's own server if that takes the node back.
func (p *Process) runForServers(ctx context.Context, j *handover.Journal) error {
	c := p.Node
	c.Servers, c.Known, c.Host.Mover = j.Servers, &node.ServerList{Given: j.Servers}, p.Handover
	var err error
	if c.Keeper, err = p.Handover.Keeper(c.Known.All); err != nil {
		return err
	}
	c.Log.Info("the node is driven by other servers, although its flags are those of a node that drives itself",
		"servers", j.Servers, "since", j.Since, "back", "berth node release "+c.Name)
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return node.Run(within, c) })
	if j.Phase != api.HandoverReturning {
		fmt.Fprintf(p.Stdout, "berth: the agent of %s\n", strings.Join(j.Servers, ", "))
		return group.Wait()
	}
	s, err := p.Open(within)
	if err != nil {
		// The agent goes on without it.
		c.Log.Error("the node's own server does not start", "error", err)
		return group.Wait()
	}
	group.Go(func() error { return s.Run(within) })
	group.Go(func() error { return onceReady(within, s, p.Handover.Run) })
	return group.Wait()
}

// runOwn runs the server and the agent of the node. It reports whether no task is left.
func (p *Process) runOwn(ctx context.Context) (idle bool, err error) {
	s, err := p.Open(ctx)
	if err != nil {
		return false, err
	}
	if p.Notices != nil {
		end, err := p.addContext(ctx, s)
		if err != nil {
			fmt.Fprintf(p.Notices, "berth: commands in other terminals need --addr %s: %v\n", s.Listeners[0].URL(), err)
		} else {
			defer end()
		}
	}
	own, err := client.New(client.Config{Addr: s.Listeners[0].URL(), Agent: "berth-host/" + version.String()})
	if err != nil {
		return false, errors.Join(err, s.Close())
	}
	defer own.Close()
	c := p.Node
	c.Host.Driver = hostdriver.New(hostdriver.Config{Node: c.Name, Client: own, Log: c.Log})
	if p.Handover != nil {
		c.Host.Mover = p.Handover
	}
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(within) })
	group.Go(func() error {
		return onceReady(within, s, func(ctx context.Context) error { return node.Run(ctx, c) })
	})
	group.Go(func() error {
		if s.WaitReady(within) != nil || s.WaitNodeReady(within, c.Name) != nil {
			return nil //nolint:nilerr // Run of the server reports why it ended
		}
		fmt.Fprintf(p.Stdout, "berth: ready at %s\n", server.PreferredURL(s.Listeners))
		return nil
	})
	if p.Handover != nil {
		group.Go(func() error { return onceReady(within, s, p.Handover.Run) })
	}
	err = group.Wait()
	live := s.CountLiveTasks()
	if live > 0 && err == nil && p.Notices != nil {
		text := "tasks continue, the next `berth dev` manages them"
		if live == 1 {
			text = "task continues, the next `berth dev` manages it"
		}
		fmt.Fprintf(p.Notices, "berth: ended; %d %s again\n", live, text)
	}
	return live == 0, err
}

// onceReady runs a function once the server serves.
func onceReady(ctx context.Context, s *server.Server, run func(context.Context) error) error {
	if s.WaitReady(ctx) != nil {
		return nil //nolint:nilerr // Run of the server reports why it ended
	}
	return run(ctx)
}

// addContext adds the context of this process, so that commands find it, and returns the function that removes it. If
// another context is the current one, it prints how to choose this one.
func (p *Process) addContext(ctx context.Context, s *server.Server) (end func(), err error) {
	path, err := contexts.Path()
	if err != nil {
		return nil, err
	}
	name, current, err := contexts.SetDev(ctx, path, s.Config.DataDir, s.Listeners[0].URL())
	if err != nil {
		return nil, err
	}
	if name != current {
		fmt.Fprintf(p.Notices, "berth: the current context is %s; this server is the context %s: "+
			"berth --context %s status, or berth context use %s\n", current, name, name, name)
	}
	return func() {
		if err := contexts.RemoveDev(path, name, s.Config.DataDir); err != nil {
			fmt.Fprintf(p.Notices, "berth: the context %s remains: %v\n", name, err)
		}
	}, nil
}

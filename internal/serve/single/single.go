// Package single runs a server and an agent in one process, for `berth dev` and `berth standalone`.
package single

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/contexts"
	"github.com/berthd/berth/internal/serve/hostdriver"
	"github.com/berthd/berth/internal/serve/node"
	"github.com/berthd/berth/internal/serve/server"
	"github.com/berthd/berth/internal/version"
)

// Process is a server and the agent of the same machine. Run closes both.
type Process struct {
	Server *server.Server
	Node   node.Config
	// Stdout gets the address in one line, once both serve.
	Stdout io.Writer
	// Notices, unless nil, makes the process that of a user at a terminal. Commands of the user find it by a context of
	// its own. At the end, Notices gets a line about the tasks that continue.
	Notices io.Writer
}

// Run runs the server and the agent until the context ends. Containers continue after the end.
func (p *Process) Run(ctx context.Context) error {
	if p.Notices != nil {
		end, err := p.addContext(ctx)
		if err != nil {
			fmt.Fprintf(p.Notices, "berth: commands in other terminals need --addr %s: %v\n",
				p.Server.Listeners[0].URL(), err)
		} else {
			defer end()
		}
	}
	s := p.Server
	own, err := client.New(client.Config{Addr: s.Listeners[0].URL(), Agent: "berth-host/" + version.String()})
	if err != nil {
		return err
	}
	defer own.Close()
	p.Node.Host.Driver = hostdriver.New(hostdriver.Config{Node: p.Node.Name, Client: own, Log: p.Node.Log})
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(within) })
	group.Go(func() error {
		if s.WaitReady(within) != nil {
			return nil //nolint:nilerr // Run of the server reports why it ended
		}
		return node.Run(within, p.Node)
	})
	group.Go(func() error {
		if s.WaitReady(within) != nil || s.WaitNodeReady(within, p.Node.Name) != nil {
			return nil //nolint:nilerr // Run of the server reports why it ended
		}
		fmt.Fprintf(p.Stdout, "berth: ready at %s\n", server.PreferredURL(s.Listeners))
		return nil
	})
	err = group.Wait()
	live := s.CountLiveTasks()
	if live > 0 && err == nil && p.Notices != nil {
		text := "tasks continue, the next `berth dev` manages them"
		if live == 1 {
			text = "task continues, the next `berth dev` manages it"
		}
		fmt.Fprintf(p.Notices, "berth: ended; %d %s again\n", live, text)
	}
	if live == 0 && p.Node.Executors.Idle(ctx) {
		err = errors.Join(err, p.Node.Executors.StopAll(ctx))
	}
	return errors.Join(err, p.Node.Executors.Close())
}

// addContext adds the context of this process, so that commands find it, and returns the function that removes it. If
// another context is the current one, it prints how to choose this one.
func (p *Process) addContext(ctx context.Context) (end func(), err error) {
	path, err := contexts.Path()
	if err != nil {
		return nil, err
	}
	s := p.Server
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

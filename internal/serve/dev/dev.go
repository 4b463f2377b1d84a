// Package dev runs a server and an agent in one process.
package dev

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

// Run runs the server and the agent until the context ends. It prints the address on stdout once both serve. At the end
// it prints on stderr how many tasks keep running.
func Run(ctx context.Context, s *server.Server, n node.Config, stdout, stderr io.Writer) error {
	end, err := addContext(ctx, s, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "berth: commands in other terminals need --addr %s: %v\n", s.Listeners[0].URL(), err)
	} else {
		defer end()
	}
	own, err := client.New(client.Config{Addr: s.Listeners[0].URL(), Agent: "berth-host/" + version.String()})
	if err != nil {
		return err
	}
	defer own.Close()
	n.Host.Driver = hostdriver.New(hostdriver.Config{Node: n.Name, Client: own, Log: n.Log})
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(within) })
	group.Go(func() error {
		if s.WaitReady(within) != nil {
			return nil //nolint:nilerr // Run of the server reports why it ended
		}
		return node.Run(within, n)
	})
	group.Go(func() error {
		if s.WaitReady(within) != nil || s.WaitNodeReady(within, n.Name) != nil {
			return nil //nolint:nilerr // Run of the server reports why it ended
		}
		fmt.Fprintf(stdout, "berth: ready at %s\n", server.PreferredURL(s.Listeners))
		return nil
	})
	err = group.Wait()
	live := s.CountLiveTasks()
	if live > 0 && err == nil {
		text := "tasks continue, the next `berth dev` manages them"
		if live == 1 {
			text = "task continues, the next `berth dev` manages it"
		}
		fmt.Fprintf(stderr, "berth: ended; %d %s again\n", live, text)
	}
	if live == 0 {
		err = errors.Join(err, n.Executors.StopAll(ctx))
	}
	return errors.Join(err, n.Executors.Close())
}

// addContext adds the context of this process, so that commands find it, and returns the function that removes it. If
// another context is the current one, it prints how to choose this one.
func addContext(ctx context.Context, s *server.Server, stderr io.Writer) (end func(), err error) {
	path, err := contexts.Path()
	if err != nil {
		return nil, err
	}
	name, current, err := contexts.SetDev(ctx, path, s.Config.DataDir, s.Listeners[0].URL())
	if err != nil {
		return nil, err
	}
	if name != current {
		fmt.Fprintf(stderr, "berth: the current context is %s; this server is the context %s: "+
			"berth --context %s status, or berth context use %s\n", current, name, name, name)
	}
	return func() {
		if err := contexts.RemoveDev(path, name, s.Config.DataDir); err != nil {
			fmt.Fprintf(stderr, "berth: the context %s remains: %v\n", name, err)
		}
	}, nil
}

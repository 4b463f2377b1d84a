// Package dev runs a server and an agent in one process.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/serve/node"
	"github.com/berthd/berth/internal/serve/server"
)

// Run runs the server and the agent until the context ends. It prints the address on stdout once both serve. At the end
// it prints on stderr how many tasks keep running.
func Run(ctx context.Context, s *server.Server, n node.Config, stdout, stderr io.Writer) error {
	forget, err := s.WriteAddressFile()
	if err != nil {
		n.Log.Warn("other terminals will need --addr", "error", err)
	} else {
		defer forget()
	}
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

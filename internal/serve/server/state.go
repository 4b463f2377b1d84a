package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
)

// WaitNodeReady waits until the node is ready.
func (s *Server) WaitNodeReady(ctx context.Context, node string) error {
	for {
		snap := s.tables.Snapshot()
		if n, ok := snap.Node(node); ok && n.Value.State == cluster.NodeReady {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.tables.Changed(snap.Revision()):
		}
	}
}

// CountLiveTasks returns the number of tasks with live attempts in the tables.
func (s *Server) CountLiveTasks() int {
	n := 0
	for row := range s.tables.Snapshot().AllAttempts() {
		if o := row.Observed; o != nil && !o.State.Terminal() && !o.Gone {
			n++
		}
	}
	return n
}

// WriteAddressFile writes the address to the user's configuration folder, where other commands find it. The returned
// function removes it.
func (s *Server) WriteAddressFile() (forget func(), err error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "berth")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "addr")
	text := s.Listeners[0].URL() + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return func() {
		if b, err := os.ReadFile(path); err == nil && string(b) == text {
			_ = os.Remove(path) // a command that finds a stale address reports it
		}
	}, nil
}

// WaitReady waits until the domain has a leader and the tables show it.
func (s *Server) WaitReady(ctx context.Context) error {
	for {
		snap := s.tables.Snapshot()
		if _, ok := snap.Leader(cluster.DefaultDomain); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.tables.Changed(snap.Revision()):
		}
	}
}

// PreferredURL returns the address to show to users. HTTP is preferred.
func PreferredURL(listeners []*apiserver.Listener) string {
	for _, l := range listeners {
		if strings.HasPrefix(l.URL(), "http://") {
			return l.URL()
		}
	}
	return listeners[0].URL()
}

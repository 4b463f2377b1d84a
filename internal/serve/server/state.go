package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/cluster"
)

// Joined waits until the node is ready.
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

// Live counts the tasks of which something runs, as far as the tables know.
func (s *Server) CountLiveTasks() int {
	n := 0
	for row := range s.tables.Snapshot().AllAttempts() {
		if o := row.Observed; o != nil && !o.State.Terminal() && !o.Gone {
			n++
		}
	}
	return n
}

// Remember writes the address where commands in other terminals of the same user look for it, and returns
// what takes it away again.
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
			_ = os.Remove(path) // a stale address is told as such by whoever finds it
		}
	}, nil
}

// Ready waits until the server has a leader and its tables show it.
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

// PreferredURL is the address to tell people: HTTP where there is one.
func PreferredURL(listeners []*apiserver.Listener) string {
	for _, l := range listeners {
		if strings.HasPrefix(l.URL(), "http://") {
			return l.URL()
		}
	}
	return listeners[0].URL()
}

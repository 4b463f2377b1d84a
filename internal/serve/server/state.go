package server

import (
	"context"
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

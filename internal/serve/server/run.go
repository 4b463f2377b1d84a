package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/store/election"
)

// stageTimeout bounds one stage of the shutdown. It exceeds the time that the API gives to requests in flight.
const stageTimeout = 6 * time.Second

// Run serves until the context ends or a part fails, then stops the parts in stages. First the leadership ends, so that
// another server takes over immediately. Then the agents' sessions end, so that they move to other servers. The
// remaining parts, which both need, end last.
func (s *Server) Run(ctx context.Context) error {
	first := make(chan error, len(s.parts)+3)
	stage := func(parts ...part) (end func()) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		var running sync.WaitGroup
		for _, p := range parts {
			running.Go(func() {
				if err := p.run(ctx); err != nil && ctx.Err() == nil {
					first <- fmt.Errorf("%s: %w", p.name, err)
				}
			})
		}
		return func() {
			cancel()
			ended := make(chan struct{})
			go func() {
				running.Wait()
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(stageTimeout):
				s.Config.Log.Warn("a part of the server ends slowly", "part", parts[0].name)
			}
		}
	}
	rest := stage(append(s.parts, part{"the API", func(ctx context.Context) error {
		listeners := slices.Clip(s.Listeners)
		if s.passive != nil {
			listeners = append(listeners, s.passive.listener)
		}
		return s.api.Serve(ctx, listeners...)
	}})...)
	agents := stage(part{"the agents' sessions", s.dispatch.Run})
	lead := stage(part{"the control planes", s.planes.Run})
	var err error
	select {
	case <-ctx.Done():
	case err = <-first:
	}
	lead()
	s.handOverLeadership(ctx)
	agents()
	rest()
	if err := s.Close(); err != nil {
		s.Config.Log.Error("the store was not closed cleanly", "error", err)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// handOverLeadership releases the domains that this server leads, so that the others need not wait for its silence
// (P1.3). The server no longer writes, and the store refuses its late writes (P1.4).
func (s *Server) handOverLeadership(ctx context.Context) {
	if s.settings == nil && s.members != nil {
		return // there is no other server
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for domain, l := range s.tables.Snapshot().Leaders() {
		if l.Value.Holder != s.ID {
			continue
		}
		if err := election.HandOver(ctx, s.engine, s.tables.Prefix(), domain, s.ID); err != nil {
			s.Config.Log.Info("the leadership could not be handed over; another server takes it once this server is "+
				"silent", "domain", domain, "error", err)
		}
	}
}

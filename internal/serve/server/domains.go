package server

import (
	"math/rand/v2"
	"time"

	"github.com/berthd/berth/internal/apiserver/schedulingapi"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/measure"
	"github.com/berthd/berth/internal/peers"
	"github.com/berthd/berth/internal/serve/domains"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
)

// planeConfig returns the configuration of a domain's control plane. The leader of the default domain runs on the
// server of the store's leader (P1.3). Those of other domains are spread.
func (s *Server) planeConfig(engine store.Engine, metrics *telemetry.Planes, domain string) controlplane.Config {
	c := controlplane.Config{
		Engine:   engine,
		Tables:   s.tables,
		Domain:   domain,
		Server:   s.ID,
		Random:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Logger:   s.Config.Log,
		Now:      time.Now,
		Clock:    boottime.Now,
		Measurer: measure.New(measure.Config{Egress: s.Config.Egress}),
		Metrics:  metrics.Of(domain), Tracer: s.tracer,
		KeepDefinitions: s.Config.KeepDefinitions,
	}
	c.Foreign, _ = s.engine.(store.ForeignFollower)
	if domain == cluster.DefaultDomain {
		c.Member = s.members
	} else {
		c.Spread = &domains.Spread{Domain: domain, Server: s.ID, Peers: s.otherServers}
	}
	return c
}

// otherServers returns the other servers, for the spreading of leaders.
func (s *Server) otherServers() (all []domains.Peer) {
	now := boottime.Now()
	for _, p := range s.peers.Status() {
		all = append(all, domains.Peer{ID: p.Server.ID, Reached: p.Reached, For: now - p.Since})
	}
	return all
}

// leads reports whether this server leads the default domain.
func (s *Server) leads() bool { return s.peers.Leads(cluster.DefaultDomain) }

// ownReasons returns the reasons of this server's control plane of a domain, nil if it runs none.
func (s *Server) ownReasons(domain string) peers.Reasons {
	if p := s.planes.Of(domain); p != nil {
		return p
	}
	return nil
}

// schedulingLeader answers schedulers for the domains that this server leads.
func (s *Server) schedulingLeader() *schedulingapi.Leader {
	return &schedulingapi.Leader{
		PlaneOf: func(domain string) schedulingapi.Plane {
			if p := s.planes.Of(domain); p != nil {
				return p
			}
			return nil
		},
		Log: s.Config.Log,
	}
}

// ownTrace returns the decision trace of an attempt, if this server placed it.
func (s *Server) ownTrace(task cluster.TaskID, attempt int) (cluster.DecisionTrace, bool) {
	parts, _ := task.Parts()
	c, _ := s.tables.Snapshot().Cluster(parts.Cluster)
	if p := s.planes.Of(c.Value.InDomain()); p != nil {
		return p.DecisionTrace(task, attempt)
	}
	return cluster.DecisionTrace{}, false
}

// leaderViews returns what views know of the leaders.
func (s *Server) leaderViews() views.Leader {
	l := views.LeaderOn(func(domain string) views.Plane {
		if p := s.planes.Of(domain); p != nil {
			return p
		}
		return nil
	})
	l.Reasons, l.DecisionTrace = s.peers, s.peers.DecisionTrace
	return l
}

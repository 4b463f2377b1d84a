package apiserver

import (
	"slices"

	"github.com/berthd/berth/internal/apiserver/route"
)

// The description of the API is generated from the routes.
//
//go:generate go test -count=1 -run ^TestOpenAPI$ . -args -write

// operations returns the routes of all operations, in the order of the API's description.
func (s *Server) operations() []route.Route {
	cfg := &s.cfg
	back := backend{reads: s.reads, writer: s.writer, lists: s.lists, domain: cfg.Domain, now: cfg.Now}
	work := workloads{backend: back, look: s.look}
	agents := agentStreams{nodes: cfg.Nodes}
	pins := &imagePins{tables: cfg.Tables, agents: agents, look: s.look}
	s.engine = &engineState{source: cfg.Members, disk: cfg.Health}
	s.tasks = &tasksAPI{work}
	s.health = &healthAPI{
		reads: s.reads, domain: cfg.Domain, engine: s.engine, storage: cfg.Engine, prefix: cfg.Prefix, audit: cfg.Audit,
		backups: cfg.Backups, keeper: cfg.Keeper,
	}
	s.servers = &serversAPI{
		backend: back, serverID: cfg.ServerID, members: cfg.Members, reach: cfg.Reach, engine: s.engine,
	}
	s.masterKeys = &masterKeysAPI{backend: back, keys: cfg.Keys}
	s.joining = &joinAPI{
		backend: back, authority: cfg.Authority, vault: cfg.Vault, joiner: cfg.Join, log: cfg.Log,
	}
	s.documents = &documentsAPI{}
	nodes := &nodesAPI{backend: back, nodeView: s.nodeView}
	logs := &logsAPI{tasks: s.tasks, agents: agents, streams: s.metrics.streams}
	exec := &execAPI{tasks: s.tasks, agents: agents, streams: s.metrics.streams}
	return slices.Concat(
		s.health.routes(), s.documents.routes(), (&applyAPI{back, pins}).routes(), (&clustersAPI{back}).routes(),
		(&definitionsAPI{back, pins}).routes(), (&diffsAPI{back}).routes(), (&servicesAPI{work}).routes(),
		(&rolloutsAPI{work}).routes(), (&scalesAPI{work}).routes(), (&jobsAPI{work}).routes(),
		(&cronsAPI{work}).routes(), s.explainRoutes(), s.rebalanceRoutes(),
		(&simulateAPI{simulator: cfg.Simulator}).routes(), (&rebalancingsAPI{back}).routes(),
		(&reservationsAPI{back}).routes(),
		s.tasks.routes(), logs.routes(), exec.routes(), (&checksAPI{s.tasks, agents}).routes(), exec.terminalRoutes(),
		nodes.routes(), nodes.actionRoutes(),
		s.statusRoutes(), s.servers.routes(),
		(&storeCopyAPI{s.reads, cfg.Engine, s.metrics.streams, cfg.Log}).routes(), (&recoveryAPI{back}).routes(),
		(&domainAPI{back, s.massSilence}).routes(), (&settingsAPI{cfg.ServerID, cfg.Settings}).routes(),
		s.events.Routes(), (&imagesAPI{cfg.Tables, agents}).routes(), (&volumesAPI{cfg.Tables, agents}).routes(),
		(&tokensAPI{back, cfg.Authority}).routes(), s.joining.routes(),
		(&secretsAPI{back, cfg.Vault}).routes(), s.masterKeys.routes(),
	)
}

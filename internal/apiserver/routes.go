package apiserver

import (
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
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
	pins := &imagePins{tables: cfg.Tables, agents: agents,
		node: func(snap *store.Snapshot) func(string) *scheduler.Node {
			return s.look(snap).node
		}}
	s.engine = &engineState{source: cfg.Members, disk: cfg.Health}
	s.tasks = &tasksAPI{workloads: work}
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
	nodes := &nodesAPI{
		backend: back, names: nodeNames, nodeView: s.nodeView, lasting: lasting[api.NodeView](),
	}
	logs := &logsAPI{tables: cfg.Tables, find: s.tasks.task, agents: agents, streams: s.metrics.streams}
	exec := &execAPI{tables: cfg.Tables, find: s.tasks.task, agents: agents, streams: s.metrics.streams}
	return slices.Concat(
		s.health.routes(), s.documents.routes(), (&applyAPI{backend: back, pins: pins}).routes(),
		(&clustersAPI{backend: back}).routes(),
		(&definitionsAPI{backend: back, pins: pins}).routes(), (&diffsAPI{backend: back}).routes(),
		(&servicesAPI{work}).routes(),
		(&rolloutsAPI{work}).routes(), (&scalesAPI{work}).routes(), (&jobsAPI{work}).routes(),
		(&cronsAPI{work}).routes(), s.explainRoutes(), s.rebalanceRoutes(),
		(&simulateAPI{simulator: cfg.Simulator}).routes(), (&rebalancingsAPI{backend: back, whyLeft: whyLeft}).routes(),
		(&reservationsAPI{backend: back}).routes(),
		s.tasks.routes(), logs.routes(), exec.routes(),
		(&checksAPI{tables: cfg.Tables, find: s.tasks.task, agents: agents}).routes(), exec.terminalRoutes(),
		nodes.routes(), nodes.actionRoutes(),
		s.statusRoutes(), s.servers.routes(),
		(&storeCopyAPI{reads: s.reads, engine: cfg.Engine, streams: s.metrics.streams, log: cfg.Log}).routes(),
		(&recoveryAPI{backend: back}).routes(),
		(&domainAPI{backend: back, massSilence: s.massSilence}).routes(),
		(&settingsAPI{serverID: cfg.ServerID, settings: cfg.Settings}).routes(),
		s.events.Routes(), (&imagesAPI{tables: cfg.Tables, agents: agents}).routes(),
		(&volumesAPI{tables: cfg.Tables, agents: agents}).routes(),
		(&tokensAPI{backend: back, authority: cfg.Authority}).routes(), s.joining.routes(),
		(&secretsAPI{backend: back, vault: cfg.Vault}).routes(), s.masterKeys.routes(),
	)
}

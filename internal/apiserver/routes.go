package apiserver

import (
	"slices"

	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/catalog"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/apiserver/domainapi"
	"github.com/berthd/berth/internal/apiserver/nodeapi"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/schedulingapi"
	"github.com/berthd/berth/internal/apiserver/status"
	"github.com/berthd/berth/internal/apiserver/workload"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// The description of the API is generated from the routes.
//
//go:generate go test -count=1 -run ^TestOpenAPI$ . -args -write

// operations returns the routes of all operations, in the order of the API's description.
func (s *Server) operations() []route.Route {
	cfg := &s.cfg
	back := backend.Backend{Reads: s.reads, Writer: s.writer, Lists: s.lists, Now: cfg.Now}
	agents := agentapi.Streams{Nodes: cfg.Nodes}
	pins := &agentapi.Pins{
		Tables: cfg.Tables, Agents: agents,
		Node: func(snap *store.Snapshot) func(string) *scheduler.Node {
			return func(name string) *scheduler.Node {
				n, _ := snap.Node(name)
				if n.Value == nil {
					return nil
				}
				return s.views.At(snap).In(n.Value.Domain).Records.Node(name)
			}
		},
	}
	work := workload.Common{Backend: back, Views: s.views, Pins: pins}
	engine := &control.EngineState{Source: cfg.Server.Members, Disk: cfg.Server.Health}
	s.health = &control.HealthAPI{
		Reads: s.reads, Engine: engine, Storage: cfg.Engine, Prefix: cfg.Prefix, Audit: cfg.Audit,
		Backups: cfg.Server.Backups, Keeper: cfg.Trust.Keeper,
	}
	servers := &control.ServersAPI{
		Backend: back, ServerID: cfg.Server.ID, Members: cfg.Server.Members, Reach: cfg.Server.Reach, Engine: engine,
	}
	masterKeys := &credentials.MasterKeysAPI{Backend: back, Keys: cfg.Trust.Keys}
	s.joining = &credentials.JoinAPI{
		Backend: back, Authority: cfg.Trust.Authority, Vault: cfg.Trust.Vault, Joiner: cfg.Trust.Join, Log: cfg.Log,
	}
	s.documents = &documentsAPI{}
	s.status = &status.API{
		Backend: back, ServerID: cfg.Server.ID, Engine: engine, Servers: servers, MasterKeys: masterKeys,
		Views: s.views, Backups: cfg.Server.Backups,
	}
	domains := &domainapi.API{Backend: back, Views: s.views}
	nodes := &nodeapi.API{Backend: back, Views: s.views}
	logs := &agentapi.LogsAPI{Tables: cfg.Tables, Find: work.FindTask, Agents: agents, Streams: s.metrics.streams}
	exec := &agentapi.ExecAPI{Tables: cfg.Tables, Find: work.FindTask, Agents: agents, Streams: s.metrics.streams}
	return slices.Concat(
		s.health.Routes(), s.documents.routes(), (&catalog.ApplyAPI{Backend: back, Pins: pins}).Routes(),
		(&catalog.ClustersAPI{Backend: back}).Routes(), (&catalog.PoolsAPI{Backend: back}).Routes(),
		(&catalog.ProfilesAPI{Backend: back}).Routes(),
		(&catalog.DefinitionsAPI{Backend: back, Pins: pins}).Routes(), (&catalog.DiffsAPI{Backend: back}).Routes(),
		(&workload.ServicesAPI{Common: work}).Routes(), (&workload.RolloutsAPI{Common: work}).Routes(),
		(&workload.ScalesAPI{Common: work}).Routes(), (&workload.JobsAPI{Common: work}).Routes(),
		(&workload.CronsAPI{Common: work}).Routes(),
		(&workload.EndpointsAPI{Common: work}).Routes(), (&workload.ExplainAPI{Common: work}).Routes(),
		(&workload.QueueAPI{Common: work}).Routes(),
		(&planning.RebalancePlanAPI{Backend: back, Views: s.views}).Routes(),
		(&planning.SimulateAPI{Simulator: cfg.Simulator}).Routes(),
		(&planning.RebalancingsAPI{Backend: back}).Routes(),
		(&planning.ReservationsAPI{Backend: back}).Routes(),
		(&workload.TasksAPI{Common: work}).Routes(), logs.Routes(), exec.Routes(),
		(&agentapi.ChecksAPI{Tables: cfg.Tables, Find: work.FindTask, Agents: agents}).Routes(), exec.TerminalRoutes(),
		nodes.Routes(), nodes.ActionRoutes(), nodes.HandoverRoutes(),
		s.status.Routes(), (&workload.TroublesAPI{Common: work}).Routes(), servers.Routes(),
		(&control.StoreCopyAPI{Reads: s.reads, Engine: cfg.Engine, Streams: s.metrics.streams, Log: cfg.Log}).Routes(),
		(&control.RecoveryAPI{Backend: back}).Routes(),
		domains.Routes(),
		(&schedulingapi.API{
			Backend: back, View: domains.View, Leader: cfg.Scheduling.Leader, Others: cfg.Scheduling.Others,
		}).Routes(),
		(&control.SettingsAPI{ServerID: cfg.Server.ID, Settings: cfg.Server.Settings}).Routes(),
		s.events.Routes(), (&agentapi.ImagesAPI{Tables: cfg.Tables, Agents: agents}).Routes(),
		(&agentapi.VolumesAPI{Tables: cfg.Tables, Agents: agents}).Routes(),
		(&credentials.TokensAPI{Backend: back, Authority: cfg.Trust.Authority}).Routes(), s.joining.Routes(),
		(&credentials.SecretsAPI{Backend: back, Vault: cfg.Trust.Vault}).Routes(), masterKeys.Routes(),
	)
}

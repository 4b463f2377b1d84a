package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/backup"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/heap"
	"github.com/berthd/berth/internal/keyring"
	"github.com/berthd/berth/internal/measure"
	"github.com/berthd/berth/internal/peers"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/etcd"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/version"
)

// Server is the control plane of one process: store, tables, plane, dispatcher, the talk with other servers, and API.
type Server struct {
	Config   Config
	ID       string
	settings *datadir.Settings // nil for a server that only serves its own machine
	engine   *etcd.Engine
	tables   *store.Tables
	plane    *controlplane.Plane
	dispatch *dispatcher.Dispatcher
	peers    *peers.Peers
	keeper   *pki.Keeper // nil like settings
	audit    *audit.Log
	tracer   *telemetry.Tracer // nil where no spans are wanted
	api      *apiserver.Server
	vault    *secrets.Vault
	keyring  *keyring.Keyring
	// parts run beside the plane, the dispatcher and the API.
	parts     []part
	Listeners []*apiserver.Listener
	tokenFile string
}

// part is something that runs as long as the server does.
type part struct {
	name string
	run  func(context.Context) error
}

// Open opens the store and the listeners. What it opened, close closes.
func Open(ctx context.Context, c Config) (s *Server, err error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	s = &Server{Config: c, tokenFile: filepath.Join(c.DataDir, "token")}
	// 1. Who this is.
	if s.ID, err = datadir.ServerID(filepath.Join(c.DataDir, datadir.IDFile)); err != nil {
		return nil, err
	}
	token, err := apiserver.TokenFile(s.tokenFile)
	if err != nil {
		return nil, err
	}
	authority, err := s.OpenIdentity()
	if err != nil {
		return nil, err
	}
	if err := s.openVault(authority); err != nil {
		return nil, err
	}
	if err := s.ChooseStore(); err != nil {
		return nil, err
	}
	// 2. Where it is reached.
	for _, address := range s.addresses() {
		l, err := apiserver.Listen(address, s.keeper)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.Listeners = append(s.Listeners, l)
	}
	// 3. Where it tells of itself.
	s.tracer, err = telemetry.OpenTracer(ctx,
		telemetry.TracerConfig{Endpoint: c.Traces, Instance: s.ID, Version: version.String(), Log: c.Log})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	// 4. The store.
	if s.engine, err = s.openStore(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.RememberStore(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.wire(token, authority); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// wire connects the parts; nothing runs yet.
func (s *Server) wire(token string, authority *pki.Authority) (err error) {
	log, registry := s.Config.Log, prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	engine := &ledEngine{telemetry.NewEngine(s.engine, registry), s.engine}
	s.tables = store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	s.plane = controlplane.New(controlplane.Config{
		Engine:   engine,
		Tables:   s.tables,
		Domain:   cluster.DefaultDomain,
		Server:   s.ID,
		Random:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Logger:   log,
		Now:      time.Now,
		Clock:    boottime.Now,
		Measurer: measure.New(measure.Config{Egress: s.Config.Egress}),
		Metrics:  telemetry.NewPlane(registry), Tracer: s.tracer,
	})
	s.dispatch = dispatcher.New(dispatcher.Config{
		Engine:  engine,
		Tables:  s.tables,
		Domain:  cluster.DefaultDomain,
		Logger:  log,
		Clock:   boottime.Now,
		Opener:  s.vault,
		Metrics: telemetry.NewDispatcher(registry),
		Tracer:  s.tracer,
	})
	s.wirePeers(engine, registry)
	s.keyring = keyring.New(keyring.Config{
		Server: s.ID, Vault: s.vault, Engine: engine, Tables: s.tables, Domain: cluster.DefaultDomain,
		Leads: s.peers.Leads, Fetch: s.peers.SecretsKey, Log: log,
	})
	s.audit, err = audit.Open(
		audit.Config{Path: filepath.Join(s.Config.DataDir, "audit.log"), Registry: registry, Log: log})
	if err != nil {
		return err
	}
	config := s.apiConfig(engine, registry)
	config.Trust.Token, config.Trust.Authority = token, authority
	if len(s.Config.Store.Endpoints) == 0 {
		members := &memberships{engine: s.engine, log: log}
		config.Server.Members, config.Trust.Join = s.engine, members
		s.parts = append(s.parts, part{"the members of the store", members.promoteLearners})
	} else {
		config.Server.Health = s.engine
	}
	if config.Server.Backups, err = s.wireBackups(registry); err != nil {
		return err
	}
	s.api = apiserver.New(config)
	s.addParts()
	return nil
}

// apiConfig is what the API server needs, but for what the caller adds.
func (s *Server) apiConfig(engine *ledEngine, registry *prometheus.Registry) apiserver.Config {
	return apiserver.Config{
		Engine: &carefulEngine{engine, store.NewGathered(engine), s.tables},
		Tables: s.tables,
		Nodes:  s.peers,
		Leader: views.Leader{
			Reasons: s.peers, DecisionTrace: s.peers.DecisionTrace, DeviceValueModel: s.plane.DeviceValueModel,
			Gates: s.plane.Gates, Since: s.plane.Since,
		},
		Server: apiserver.ServerConfig{
			ID: s.ID, Reach: s.reach, Holder: s.peers.Holder, Settings: s.Config.Values,
		},
		Trust:     apiserver.Trust{Keeper: s.keeper, Vault: s.vault, Keys: s.keyring},
		Limits:    apiserver.Limits{MaxWaiters: s.Config.Waiters, MaxClientWaiters: s.Config.ClientWaiters},
		Simulator: &simulator{s.tables, s.plane},

		Agents: transport.Handler(s.dispatch),
		Peers:  s.peers.Handler(),
		Audit:  s.audit,

		Permissions: s.Config.Permissions,

		Registry: registry,
		Tracer:   s.tracer,
		Log:      s.Config.Log,
	}
}

// wirePeers connects the talk with the other servers.
func (s *Server) wirePeers(engine *ledEngine, registry *prometheus.Registry) {
	s.peers = peers.New(peers.Config{
		Server:        s.record(),
		Domain:        cluster.DefaultDomain,
		Engine:        engine,
		Tables:        s.tables,
		Local:         s.dispatch,
		Reasons:       s.plane,
		DecisionTrace: s.plane.DecisionTrace,
		Dial:          s.dialPeer,
		Clock:         boottime.Now,
		Logger:        s.Config.Log,
		Metrics:       telemetry.NewPeers(registry),

		SecretsKey: s.vault.Text,
	})
}

// addParts lists what runs beside the API, the dispatcher and the control plane.
func (s *Server) addParts() {
	s.parts = append(s.parts, part{"the tables", s.runTables}, part{"the store", s.engine.Run},
		part{"the audit log", s.audit.Run}, part{"the talk with the other servers", s.peers.Run})
	s.parts = append(s.parts, part{"the keys of the secrets", s.keyring.Run})
	if s.keeper != nil {
		s.parts = append(s.parts, part{"the certificate", s.keeper.Run})
	}
	s.parts = append(s.parts,
		part{"the events in the log", telemetry.NewEvents(s.tables, s.peers.Leads, s.Config.Log).Run},
		part{"the heap", heap.Tend})
}

// wireBackups has the leader save the store now and then, where that is wanted, and returns what tells how that goes.
func (s *Server) wireBackups(registry *prometheus.Registry) (health func() error, err error) {
	c := s.Config.Snapshots
	if c.Every == 0 {
		return nil, nil //nolint:nilnil // what is not made cannot fail
	}
	backups, err := backup.New(backup.Config{
		Snapshot: s.engine.Snapshot,
		Revision: func() uint64 { return s.tables.Snapshot().Revision() },
		Inspect: func(from io.Reader) error {
			_, err := etcd.Inspect(from)
			return err
		},
		Dir:     c.Dir,
		Every:   c.Every,
		Keep:    c.Keep,
		Leads:   s.peers.Leads,
		Metrics: telemetry.NewBackups(registry),
		Log:     s.Config.Log,
	})
	if err != nil {
		return nil, err
	}
	s.parts = append(s.parts, part{"the snapshots", backups.Run})
	return backups.Health, nil
}

// record is what the store holds of this server.
func (s *Server) record() cluster.Server {
	r := cluster.Server{
		ID: s.ID, Name: datadir.MachineName(), Member: s.engine.MemberID(), Version: version.String(),
		Masters: s.vault.IDs(), Wire: transport.WireVersion, WireMin: transport.WireMin, Records: store.RecordVersion,
		RecordsMin: store.RecordMin, Started: time.Now().UTC(),
	}
	if s.settings != nil {
		r.Name, r.API = s.settings.Name, s.settings.API
	}
	return r
}

// dialPeer returns a client for another server, with connections of its own.
func (s *Server) dialPeer(string) (*http.Client, error) {
	if s.keeper == nil {
		return nil, errors.New("this server has no certificate: it was not made with `berth server init` or " +
			"`berth server join`")
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: s.keeper.ClientTLS(), Protocols: protocols, TLSHandshakeTimeout: peerTimeout,
		DialContext:     (&net.Dialer{Timeout: peerTimeout}).DialContext,
		HTTP2:           &http.HTTP2Config{SendPingTimeout: peerTimeout, PingTimeout: peerTimeout},
		IdleConnTimeout: time.Minute,
	}}, nil
}

// peerTimeout bounds the making of a connection to another server, and how long it may be silent before it is probed.
const peerTimeout = 3 * time.Second

// reach tells how the talk with the other servers goes.
func (s *Server) reach() map[string]control.Reach {
	all := map[string]control.Reach{}
	now := boottime.Now()
	for _, p := range s.peers.Status() {
		all[p.Server.ID] = control.Reach{Reached: p.Reached, For: now - p.Since, Problem: p.Problem}
	}
	return all
}

// ledEngine is a measured engine that also tells who leads the store, takes its leadership, and has an observer's looks
// take one round trip (P1.3).
type ledEngine struct {
	*telemetry.Engine
	own *etcd.Engine
}

// EngineLeader is part of store.LeaderReporter.
func (e *ledEngine) EngineLeader() (leader, self string, term uint64) { return e.own.EngineLeader() }

// Votes is part of store.Voter.
func (e *ledEngine) Votes() bool { return e.own.Votes() }

// ReadTogether is part of store.TogetherReader.
func (e *ledEngine) ReadTogether(ctx context.Context, keys ...string) ([]store.Record, error) {
	return e.own.ReadTogether(ctx, keys...)
}

// MoveLeader is part of store.LeaderMover.
func (e *ledEngine) MoveLeader(ctx context.Context) error { return e.own.MoveLeader(ctx) }

// Close closes what openServer opened.
func (s *Server) Close() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	sending, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.tracer.Close(sending) // spans that nobody takes are of no matter
	if s.api == nil {           // else Serve has closed them
		for _, l := range s.Listeners {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// Package server runs a server: it opens the store and connects the API, the control plane and the dispatcher.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/berthd/berth/internal/backup"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/heap"
	"github.com/berthd/berth/internal/keyring"
	"github.com/berthd/berth/internal/peers"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/secrets"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/domains"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/batching"
	"github.com/berthd/berth/internal/store/snapshotfile"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/version"
)

// Server is a control plane in one process: store, tables, leader loop, dispatcher, connections to other servers, and
// API.
type Server struct {
	Home
	engine   store.ServerEngine
	members  store.Membership // of the engine; nil if it runs elsewhere
	tables   *store.Tables
	planes   *domains.Planes
	dispatch *dispatcher.Dispatcher
	peers    *peers.Peers
	audit    *audit.Log
	tracer   *telemetry.Tracer // nil if no spans are sent
	api      *apiserver.Server
	vault    *secrets.Vault
	keyring  *keyring.Keyring
	passive  *passiveNodes // nil without a certificate
	// parts run beside the control plane, the dispatcher and the API.
	parts     []part
	Listeners []*apiserver.Listener
	tokenFile string
}

// part is a component that runs as long as the server.
type part struct {
	name string
	run  func(context.Context) error
}

// Open opens the store and the listeners. Close closes them.
func Open(ctx context.Context, c Config) (s *Server, err error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	s = &Server{Home: Home{Config: c}, tokenFile: filepath.Join(c.DataDir, "token")}
	// 1. Read the identity.
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
	if err := s.openVault(); err != nil {
		return nil, err
	}
	if err := s.ChooseStore(); err != nil {
		return nil, err
	}
	// 2. Open the listeners.
	for _, address := range s.listenAddresses() {
		l, err := apiserver.Listen(address, s.keeper)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.Listeners = append(s.Listeners, l)
	}
	// 3. Open the tracer.
	s.tracer, err = telemetry.OpenTracer(ctx,
		telemetry.TracerConfig{Endpoint: c.Traces, Instance: s.ID, Version: version.String(), Log: c.Log})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	// 4. Open the store.
	if s.engine, err = s.openStore(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.members = s.engine.Membership()
	if err := s.RememberStore(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.wire(token, authority); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// wire connects the parts. None of them runs yet.
func (s *Server) wire(token string, authority *pki.Authority) (err error) {
	log, registry := s.Config.Log, prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	engine := telemetry.NewEngine(s.engine, registry)
	s.tables = store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	metrics := telemetry.NewPlanes(registry)
	s.planes = domains.New(domains.Config{
		Tables: s.tables, Log: log,
		NewPlane: func(domain string) *controlplane.Plane {
			return controlplane.New(s.planeConfig(engine, metrics, domain))
		},
	})
	s.dispatch = dispatcher.New(dispatcher.Config{
		Engine:  engine,
		Tables:  s.tables,
		Logger:  log,
		Clock:   boottime.Now,
		Opener:  s.vault,
		Metrics: telemetry.NewDispatcher(registry),
		Tracer:  s.tracer,
	})
	s.wirePeers(engine, registry)
	s.keyring = keyring.New(keyring.Config{
		Server: s.ID, Vault: s.vault, Engine: engine, Tables: s.tables,
		Fetch: s.peers.SecretsKey, Log: log,
	})
	s.planes.Default().Register("the keys of the secrets", func(ctx context.Context, w *controlplane.TermWriter) error {
		return s.keyring.Lead(ctx, w)
	})
	s.audit, err = audit.Open(
		audit.Config{Path: filepath.Join(s.Config.DataDir, "audit.log"), Registry: registry, Log: log})
	if err != nil {
		return err
	}
	config := s.apiConfig(engine, registry)
	config.Trust.Token, config.Trust.Authority = token, authority
	if s.members != nil {
		adder := &memberAdder{members: s.members, log: log}
		config.Server.Members, config.Trust.Join = s.members, adder
		s.parts = append(s.parts, part{"the members of the store", adder.promoteLearners})
	}
	if config.Server.Backups, err = s.wireBackups(registry); err != nil {
		return err
	}
	if err := s.openPassiveNodes(registry); err != nil {
		return err
	}
	if s.passive != nil {
		config.Server.DialProblem = s.passive.problem
	}
	s.api = apiserver.New(config)
	s.addParts()
	return nil
}

// apiConfig returns the configuration of the API server without the fields that the caller adds.
func (s *Server) apiConfig(engine store.Engine, registry *prometheus.Registry) apiserver.Config {
	return apiserver.Config{
		Engine: &versionedEngine{engine, batching.New(engine), s.tables},
		Tables: s.tables,
		Nodes:  s.peers,
		Leader: s.leaderViews(),
		Server: apiserver.ServerConfig{
			ID: s.ID, Health: s.engine, Reach: s.peerReach, Holder: s.peers.Holder, Settings: s.Config.Values,
		},
		Trust: apiserver.Trust{Keeper: s.keeper, Vault: s.vault, Keys: s.keyring},
		Limits: apiserver.Limits{
			MaxWaiters: s.Config.MaxWaiters, MaxClientWaiters: s.Config.MaxClientWaiters,
		},
		Simulator:  &simulator{s.tables, s.planes},
		Scheduling: apiserver.Scheduling{Leader: s.schedulingLeader(), Others: s.peers},

		Agents: transport.Handler(s.dispatch),
		Peers:  s.peers.Handler(),
		Audit:  s.audit,

		Permissions: s.Config.Permissions,

		Registry: registry,
		Tracer:   s.tracer,
		Log:      s.Config.Log,
	}
}

// wirePeers connects this server to the others.
func (s *Server) wirePeers(engine store.Engine, registry *prometheus.Registry) {
	s.peers = peers.New(peers.Config{
		Server:        s.serverRecord(),
		Engine:        engine,
		Tables:        s.tables,
		Local:         s.dispatch,
		Reasons:       s.ownReasons,
		DecisionTrace: s.ownTrace,
		Dial:          s.dialPeer,
		Clock:         boottime.Now,
		Logger:        s.Config.Log,
		Metrics:       telemetry.NewPeers(registry),

		SecretsKey:     s.vault.Text,
		LeaderRequests: s.schedulingLeader(),
	})
}

// addParts lists the parts that run beside the API, the dispatcher and the control plane.
func (s *Server) addParts() {
	s.parts = append(s.parts, part{"the tables", s.runTables}, part{"the store", s.engine.Run},
		part{"the audit log", s.audit.Run}, part{"the connection to the other servers", s.peers.Run})
	s.parts = append(s.parts, part{"the keys of the secrets", s.keyring.Run})
	if s.keeper != nil {
		s.parts = append(s.parts, part{"the certificate", s.keeper.Run})
	}
	s.parts = append(s.parts,
		part{"the events in the log", telemetry.NewEvents(s.tables, s.leads, s.Config.Log).Run},
		part{"the heap", heap.Tend})
}

// wireBackups makes the leader take snapshots, if they are enabled. The returned function reports their health.
func (s *Server) wireBackups(registry *prometheus.Registry) (health func() error, err error) {
	c := s.Config.Snapshots
	if c.Every == 0 {
		return nil, nil //nolint:nilnil // disabled snapshots cannot fail
	}
	backups, err := backup.New(backup.Config{
		Snapshot: func(ctx context.Context, to io.Writer) error {
			return s.engine.Snapshot(ctx, store.DefaultPrefix, to)
		},
		Revision: func() uint64 { return s.tables.Snapshot().Revision() },
		Inspect: func(from io.Reader) error {
			_, err := snapshotfile.Inspect(from)
			return err
		},
		Dir:     c.Dir,
		Every:   c.Every,
		Keep:    c.Keep,
		Metrics: telemetry.NewBackups(registry),
		Log:     s.Config.Log,
	})
	if err != nil {
		return nil, err
	}
	s.parts = append(s.parts, part{"the snapshots", backups.Run})
	s.planes.Default().Register("the snapshots", func(ctx context.Context, _ *controlplane.TermWriter) error {
		return backups.Lead(ctx) // it writes files alone
	})
	return backups.Health, nil
}

// serverRecord returns the record of this server in the store.
func (s *Server) serverRecord() cluster.Server {
	r := cluster.Server{
		ID: s.ID, Name: datadir.MachineName(), Version: version.String(), Masters: s.vault.IDs(),
		Wire: transport.WireVersion, WireMin: transport.WireMin, Records: store.RecordVersion,
		RecordsMin: store.RecordMin, Started: time.Now().UTC(),
	}
	if s.members != nil {
		r.Member = s.members.MemberID()
	}
	if s.settings != nil {
		r.Name, r.API = s.settings.Name, s.settings.API
	}
	return r
}

// dialPeer returns a client with its own connections for another server.
func (s *Server) dialPeer(string) (*http.Client, error) {
	if s.keeper == nil {
		return nil, errors.New("this server has no certificate: create the server with `berth server init` or " +
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

// peerTimeout bounds the time to connect to another server, and its silence before a probe.
const peerTimeout = 3 * time.Second

// peerReach reports which other servers this one reaches.
func (s *Server) peerReach() map[string]control.Reach {
	all := map[string]control.Reach{}
	now := boottime.Now()
	for _, p := range s.peers.Status() {
		all[p.Server.ID] = control.Reach{Reached: p.Reached, For: now - p.Since, Problem: p.Problem}
	}
	return all
}

// Close closes what Open opened.
func (s *Server) Close() error {
	var errs []error
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	sending, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.tracer.Close(sending) // unsent spans do not matter
	if s.api == nil {           // otherwise Serve has closed the listeners
		for _, l := range s.Listeners {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

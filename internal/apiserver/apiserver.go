// Package apiserver is the API of Berth for people and programs: JSON over HTTP under /v1, described by the OpenAPI
// document that it serves.
//
// The life of a request: package access lets it in or refuses it. The mux finds its route. Package strictjson reads its
// body, so that all faults are returned at once. A read is computed from one snapshot of the tables, at a stated
// revision (P2.3). A write is a draft: what the request asks for, computed from one snapshot, with the revisions that
// it rests on as preconditions. Where another writer changed one of these revisions the draft is computed again
// (package draft). The server writes specs only; the control plane decides what follows from them.
//
// Nothing here starts by itself: New makes the handler, Listen opens a listener under the policy of
// who may talk, and Serve answers until its context ends.
//
// # The OpenAPI document
//
// The generator of about 400 lines is ours because the API has a strict decoder that reports every fault with its path,
// one kind of list in three forms (JSON, blocking read, stream), and types written as text whose package imports the
// standard library only. huma would have needed a way around each of these.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/eventlog"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/openapi"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/status"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
	"github.com/berthd/berth/internal/transport"
)

// Config is what a server is made of.
type Config struct {
	// Engine takes the writes; Tables follow it.
	Engine store.Engine
	Tables snapshot.Tables
	// Prefix of all keys; default store.DefaultPrefix.
	Prefix store.Prefix
	// Domain whose leader /readyz asks for; default cluster.DefaultDomain.
	Domain string
	// Nodes may be nil: then logs, exec and images are answered with 503.
	Nodes agentapi.Nodes
	// Leader is what this server can tell of the leader's decisions.
	Leader views.Leader
	// ServerID is this server's own id, and Members the engine's members in which it is one; Members is nil where
	// the store runs elsewhere.
	ServerID string
	Members  control.Members
	// Health reports the state of the store where Members is nil; it may be nil too.
	Health control.Health
	// Reach returns the state of the connections to the other servers, by their ids. Holder returns the server that a
	// node's agent is connected to, "" where it is not known. Both may be nil. Safe for concurrent use, and at once.
	Reach  func() map[string]control.Reach
	Holder func(node string) string
	// Simulator computes what would become of the domain. It may be nil: then requests for simulations get 503.
	Simulator planning.Simulator
	// Backups returns at once what is wrong with the regular copies of the store that this server makes. It may be nil.
	Backups func() error
	// Settings are the values of flags, by their names, as operators see them. They contain no secrets.
	Settings map[string]string
	// Agents serves the agents' part of the API, the paths of package transport. It may be nil. It stands behind
	// the same credentials as all the rest.
	Agents http.Handler
	// Token is the bearer token that requests over loopback TCP must have. Without a token no such request is let in.
	// The token is never logged.
	Token string
	// Keeper holds this server's certificate; with nil the server has no https address and accepts no certificates.
	Keeper *pki.Keeper
	// Authority signs certificates; with nil, requests to join get 503.
	Authority *pki.Authority
	// Vault seals secrets; with nil, writes of secrets get 503.
	Vault credentials.Vault
	// Keys replaces the keys that secrets are sealed with; with nil, such requests get 503.
	Keys credentials.Keys
	// Join takes servers that join into the store; nil where the store runs elsewhere.
	Join credentials.Joiner
	// Peers serves the paths below /peer/, to other servers alone. It may be nil.
	Peers http.Handler
	// Audit takes a line for every write and every refusal; nil keeps none.
	Audit audit.Sink
	// Permissions are those of clusters that are made without naming any.
	Permissions []cluster.Permission
	// Origins are web origins such as "http://127.0.0.1:7070" that browsers may talk from, besides the server's own.
	Origins []string
	// MaxWaiters is how many requests may wait for changes at once, streams of lists and events and lists with ?wait,
	// and MaxClientWaiters how many of them one client may have. Beyond, requests are answered with 429. Default 1024
	// and 256.
	MaxWaiters, MaxClientWaiters int
	// Registry takes the server's metrics and is what /metrics shows; default a new one.
	Registry *prometheus.Registry
	// Tracer makes spans of writes; nil makes none.
	Tracer *telemetry.Tracer
	Log    *slog.Logger
	// Now is the wall clock; default time.Now. Clock is the boot-time clock; default boottime.Now.
	Now   func() time.Time
	Clock func() time.Duration
}

// Server answers the API. It is an http.Handler, safe for concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	mux     *http.ServeMux
	routes  []route.Route
	metrics *metrics
	reads   *snapshot.Reader
	writer  *draft.Writer
	lists   *lists.Lists
	gate    *access.Gate
	events  *eventlog.API
	views   *views.Source
	engine  *control.EngineState
	// Operations that other parts of the server use.
	health     *control.HealthAPI
	documents  *documentsAPI
	status     *status.API
	servers    *control.ServersAPI
	masterKeys *credentials.MasterKeysAPI
	joining    *credentials.JoinAPI
	// headerWait and bodyWait are headerTimeout and bodyTimeout, but for tests.
	headerWait, bodyWait time.Duration
	// running counts the requests in flight, also those that took over their connection (exec).
	running sync.WaitGroup
}

// New returns a server that has started nothing.
func New(cfg Config) *Server {
	if cfg.Prefix == "" {
		cfg.Prefix = store.DefaultPrefix
	}
	if cfg.Domain == "" {
		cfg.Domain = cluster.DefaultDomain
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.MaxWaiters = cmp.Or(cfg.MaxWaiters, lists.MaxWaiters)
	cfg.MaxClientWaiters = cmp.Or(cfg.MaxClientWaiters, min(lists.MaxClientWaiters, cfg.MaxWaiters))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Clock == nil {
		cfg.Clock = boottime.Now
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, mux: http.NewServeMux(), metrics: newMetrics(cfg.Registry),
		headerWait: headerTimeout, bodyWait: strictjson.BodyTimeout, reads: snapshot.NewReader(cfg.Tables),
	}
	s.writer = draft.NewWriter(draft.WriterConfig{
		Engine: cfg.Engine, Prefix: cfg.Prefix, Domain: cfg.Domain, Permissions: cfg.Permissions, Tracer: cfg.Tracer,
		Conflicts: s.metrics.conflicts, Now: cfg.Now,
	}, s.reads)
	s.gate = access.NewGate(access.GateConfig{
		Tables: cfg.Tables, Token: cfg.Token, Origins: cfg.Origins, Keeper: cfg.Keeper, Audit: cfg.Audit,
		Refused: s.metrics.refused, Log: cfg.Log, Now: cfg.Now,
	}, s.reads)
	waiting := lists.NewWaiters(cfg.MaxWaiters, cfg.MaxClientWaiters, s.metrics.streams)
	s.lists = lists.NewLists(s.reads, waiting, s.metrics.computed)
	s.events = eventlog.NewAPI(s.reads, s.lists, s.metrics.lost, cfg.Now, &s.running)
	s.views = &views.Source{
		Domain: cfg.Domain, Tables: cfg.Tables, Now: cfg.Now, Clock: cfg.Clock, Holder: cfg.Holder, Leader: cfg.Leader,
	}
	s.routes = s.operations()
	cfg.Registry.MustRegister(status.NewGauges(s.status, s.health))
	s.documents.spec = openapi.Describe(s.routes)
	for i := range s.routes {
		s.mux.Handle(s.routes[i].Method+" "+s.routes[i].Path, s.route(&s.routes[i]))
	}
	scrape := promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{})
	s.mux.Handle("GET /metrics", s.gate.Admit(scrape, access.MayUse(&route.Route{Role: cluster.RoleViewer})))
	if cfg.Agents != nil {
		s.mux.Handle("/agent/", s.gate.Agents(cfg.Agents))
	}
	if cfg.Peers != nil {
		s.mux.Handle("/peer/", s.gate.Peers(cfg.Peers))
	}
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// in HTTP/2 each request has deadlines of its own, and to set one is a word to the connection's loop
	if r.ProtoMajor < 2 {
		// The deadline of the connection's last answer must not hit this one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // not every writer has deadlines
	}
	w, r, end := s.gate.Begin(w, r)
	defer end()
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.stray(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// stray answers a request that no route takes, to whoever is let in: 404, or 405 with the methods that would do.
func (s *Server) stray(w http.ResponseWriter, r *http.Request) {
	s.gate.Admit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var seen strayWriter
		s.mux.ServeHTTP(&seen, r)
		if allow := seen.Header().Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			respond.WriteProblem(w, r, s.log,
				respond.Problemf(http.StatusMethodNotAllowed, "%s is not possible here, only %s", r.Method, allow))
			return
		}
		respond.WriteProblem(w, r, s.log,
			respond.Problemf(http.StatusNotFound, "there is nothing at %s; /openapi.json lists what there is",
				respond.Clip(r.URL.Path)))
	}), nil).ServeHTTP(w, r)
}

// strayWriter takes the answer of the mux for what it does not know, for its Allow header.
type strayWriter struct{ header http.Header }

func (w *strayWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *strayWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *strayWriter) WriteHeader(int)             {}

// Timeouts of requests. Streams are bound by slowness, not by length.
const (
	headerTimeout = 5 * time.Second // for a request's headers to arrive

	idleTimeout = 2 * time.Minute
)

// route returns the handler of one route: who may, within what time, and what became of it.
func (s *Server) route(rt *route.Route) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Done()
		began := s.cfg.Now()
		seen := &statusWriter{ResponseWriter: w}
		ctl := http.NewResponseController(w)
		if rt.Body != nil {
			_ = ctl.SetReadDeadline(time.Now().Add(s.bodyWait)) // not every writer has deadlines
		}
		err := route.Check(rt, r)
		if err == nil && strings.HasPrefix(rt.Path, "/v1/") && rt.Path != "/v1/version" {
			err = s.reads.Synced(r.Context())
		}
		if err == nil {
			err = rt.Serve(seen, r)
		}
		if err != nil && !seen.began() {
			_ = ctl.SetWriteDeadline(time.Now().Add(respond.WriteTimeout))
			respond.WriteProblem(seen, r, s.log, err)
		} else if err != nil && r.Context().Err() == nil {
			s.log.Debug("stream ended", "path", rt.Path, "error", err)
		}
		s.metrics.request(rt, seen.status, s.cfg.Now().Sub(began))
	})
	if rt.Open {
		h = s.gate.AdmitAnyone(h)
	} else {
		h = s.gate.Admit(h, access.MayUse(rt))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access.ExchangeOf(r.Context()).Begin(rt, r)
		h.ServeHTTP(w, r)
	})
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) began() bool { return w.status != 0 }

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Serve answers requests on the listeners until ctx ends, then lets requests in flight end, for at most
// five seconds, and closes the listeners. It returns nil after ctx ended, else why it could not go on.
func (s *Server) Serve(ctx context.Context, listeners ...*Listener) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // agents talk HTTP/2 on loopback and unix sockets
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           s,
		Protocols:         protocols,
		ReadHeaderTimeout: s.headerWait,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       access.BaseContext(base),
		ConnContext:       access.ConnContext,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	transport.ConfigureServer(srv) // notices agents that are gone
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- srv.Serve(l) }()
	}
	var err error
	left := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-ended:
		err = closed(err)
		left--
	}
	cancel() // streams and blocking reads end
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // what is left is cut off
	}
	for range left {
		err = cmp.Or(err, closed(<-ended))
	}
	s.running.Wait()
	s.lists.Views.Close()
	return err
}

// closed leaves out the error of an end that was asked for.
func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

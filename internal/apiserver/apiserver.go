// Package apiserver serves Berth's API for people and programs: JSON over HTTP under /v1, described by the OpenAPI
// document that it serves.
//
// A request takes this way. Package access admits or refuses it. The mux finds its route. Package strictjson reads its
// body and returns all faults together. A read is computed from one snapshot of the tables, at a stated revision
// (P2.3). A write is a draft: the requested changes, computed from one snapshot, with the revisions of what it read as
// preconditions. If another writer changed one of these revisions, the draft is computed again (package draft). The
// server writes specs only; the control plane decides what follows from them.
//
// The package starts nothing by itself. New makes the handler, Listen opens a listener that admits only safe addresses,
// and Serve answers until its context ends.
//
// # The OpenAPI document
//
// The generator of about 250 lines is our own. The API has a strict decoder that reports every fault with its path, one
// kind of list in three forms (JSON, blocking read, stream), and text types in a package that imports the standard
// library only. The library huma would need a workaround for each of these.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/eventlog"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/openapi"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/status"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/unixsocket"
)

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
	// Operations that other parts of the server use.
	health    *control.HealthAPI
	documents *documentsAPI
	status    *status.API
	joining   *credentials.JoinAPI
	// running counts the requests in flight, also those that took over their connection.
	running sync.WaitGroup
}

// New returns a server. It starts nothing.
func New(cfg Config) *Server {
	cfg.setDefaults()
	s := &Server{
		cfg: cfg, log: cfg.Log, mux: http.NewServeMux(), metrics: newMetrics(cfg.Registry),
		reads: snapshot.NewReader(cfg.Tables),
	}
	s.writer = draft.NewWriter(draft.WriterConfig{
		Engine: cfg.Engine, Prefix: cfg.Prefix, Permissions: cfg.Permissions, Tracer: cfg.Tracer,
		Conflicts: s.metrics.conflicts, Now: cfg.Now,
	}, s.reads)
	s.gate = access.NewGate(access.GateConfig{
		Tables: cfg.Tables, Token: cfg.Trust.Token, Origins: cfg.Trust.Origins, Keeper: cfg.Trust.Keeper,
		Audit: cfg.Audit, Refused: s.metrics.refused, Log: cfg.Log, Now: cfg.Now,
	}, s.reads)
	waiting := lists.NewWaiters(cfg.Limits.MaxWaiters, cfg.Limits.MaxClientWaiters, s.metrics.streams)
	s.lists = lists.NewLists(s.reads, waiting, s.metrics.computed)
	s.events = eventlog.NewAPI(s.reads, s.lists, s.metrics.lost, cfg.Now, &s.running)
	s.views = &views.Source{
		Tables: cfg.Tables, Now: cfg.Now, Clock: cfg.Clock, Holder: cfg.Server.Holder,
		DialProblem: cfg.Server.DialProblem, Leader: cfg.Leader,
	}
	s.routes = s.operations()
	cfg.Registry.MustRegister(status.NewGauges(s.status, s.health))
	s.documents.spec = openapi.Describe(s.routes)
	for i := range s.routes {
		s.mux.Handle(s.routes[i].Method+" "+s.routes[i].Path, s.handler(&s.routes[i]))
	}
	scrape := promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{})
	s.mux.Handle("GET /metrics", s.gate.Admit(scrape, access.MayUse(&route.Route{Role: cluster.RoleViewer})))
	if cfg.Agents != nil {
		s.mux.Handle("/agent/", s.gate.Agents(longBodies(cfg.Agents)))
	}
	if cfg.Peers != nil {
		s.mux.Handle("/peer/", s.gate.Peers(longBodies(cfg.Peers)))
	}
	return s
}

// longBodies gives the bodies of admitted machines the time that they need: byte streams have no end.
func longBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // some writers have no deadlines
		}
		next.ServeHTTP(w, r)
	})
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// In HTTP/2 each request has its own deadlines, and setting one costs a message to the connection's loop.
	if r.ProtoMajor < 2 {
		// The deadline of the connection's last answer must not hit this one. Some writers have no deadlines.
		ctl := http.NewResponseController(w)
		_ = ctl.SetWriteDeadline(time.Time{})
		if r.ContentLength != 0 { // the library reads a body before an answer, also one that no route wants
			_ = ctl.SetReadDeadline(time.Now().Add(s.cfg.bodyWait))
		}
	}
	w, r, end := s.gate.Begin(w, r)
	defer end()
	if r.Context().Value(agentsOnlyKey{}) != nil && !isForAgents(r.URL.Path) {
		respond.WriteProblem(w, r, s.log, respond.Problemf(http.StatusForbidden, "this connection was opened by the "+
			"server for the agent of a passive node, and nothing else may use it"))
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.serveUnknown(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// serveUnknown answers an admitted request without a route: 404, or 405 with the methods of the path.
func (s *Server) serveUnknown(w http.ResponseWriter, r *http.Request) {
	s.gate.Admit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var seen headerWriter
		s.mux.ServeHTTP(&seen, r)
		if allow := seen.Header().Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			respond.WriteProblem(w, r, s.log,
				respond.Problemf(http.StatusMethodNotAllowed, "the method %s is not allowed here, only %s",
					r.Method, allow))
			return
		}
		respond.WriteProblem(w, r, s.log,
			respond.Problemf(http.StatusNotFound, "there is no path %s; /openapi.json lists all paths",
				respond.Clip(r.URL.Path)))
	}), nil).ServeHTTP(w, r)
}

// headerWriter keeps only the headers of an answer.
type headerWriter struct{ header http.Header }

func (w *headerWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}
func (w *headerWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *headerWriter) WriteHeader(int)             {}

// Timeouts of connections. Streams end when their reader is too slow, not after a time.
const (
	headerTimeout = 5 * time.Second // until a request's headers have arrived

	idleTimeout = 2 * time.Minute
)

// beginBody prepares for the body of a request of a route.
func (s *Server) beginBody(w http.ResponseWriter, r *http.Request, rt *route.Route) error {
	ctl := http.NewResponseController(w) // some writers have no deadlines
	if rt.Upload != "" {
		_ = ctl.SetReadDeadline(time.Time{})
		return nil
	}
	if rt.Body != nil || r.ContentLength != 0 {
		_ = ctl.SetReadDeadline(time.Now().Add(s.cfg.bodyWait))
	}
	if rt.Body != nil {
		return nil
	}
	return strictjson.DropBody(w, r)
}

// handler returns the handler of a route: admission, deadlines and metrics around the route's own.
func (s *Server) handler(rt *route.Route) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Done()
		began := s.cfg.Now()
		seen := &statusWriter{ResponseWriter: w}
		ctl := http.NewResponseController(w)
		err := s.beginBody(w, r, rt)
		if err == nil {
			err = route.Check(rt, r)
		}
		if err == nil && strings.HasPrefix(rt.Path, "/v1/") && rt.Path != "/v1/version" {
			err = s.reads.Synced(r.Context())
		}
		if err == nil {
			err = rt.Serve(seen, r)
		}
		if refused, ok := errors.AsType[*respond.Problem](context.Cause(r.Context())); ok && err != nil {
			err = refused // the gate ended the request
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

// Serve answers requests on the listeners until ctx ends. Then it waits at most five seconds for requests in flight,
// and closes the listeners. It returns nil after ctx has ended, else why it stopped.
func (s *Server) Serve(ctx context.Context, listeners ...*Listener) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // agents use HTTP/2 on loopback and unix sockets
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           s,
		Protocols:         protocols,
		ReadHeaderTimeout: s.cfg.headerWait,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       baseContext(base),
		ConnContext:       unixsocket.ConnContext,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	transport.ConfigureServer(srv) // detects dead connections of agents
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- srv.Serve(l) }()
	}
	var err error
	left := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-ended:
		err = ignoreClosed(err)
		left--
	}
	cancel() // ends streams and blocking reads
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // cuts off the remaining requests
	}
	for range left {
		err = cmp.Or(err, ignoreClosed(<-ended))
	}
	s.running.Wait()
	s.lists.Views.Close()
	return err
}

// agentsOnlyKey marks the contexts of requests of a Listener for agents only.
type agentsOnlyKey struct{}

// baseContext returns the function that gives a server the parent of its requests' contexts.
func baseContext(ctx context.Context) func(net.Listener) context.Context {
	return func(l net.Listener) context.Context {
		if ours, ok := l.(*Listener); ok && ours.agentsOnly {
			return context.WithValue(ctx, agentsOnlyKey{}, true)
		}
		return ctx
	}
}

// isForAgents reports whether a path is one that agents use.
func isForAgents(path string) bool {
	return strings.HasPrefix(path, "/agent/") || path == "/v1/join" || path == "/v1/renew"
}

// ignoreClosed returns nil for the error of an intended end.
func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

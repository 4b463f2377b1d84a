// Package hostapi serves the API of one node: its tasks, their output, its resources, and a stream of their changes.
//
// Every node serves the reads. They come from the agent's memory, so they need no server. On a node that drives itself,
// a Driver also makes, starts, stops, replaces and deletes tasks. Each of them is a service of one task, bound to the
// node, so there is no second kind of task and no second store. On all other nodes a domain decides, and a write is
// refused with the name of the owner.
//
// The API is on a unix socket, whose mode and group decide who may use it, and optionally on an address with mutual
// TLS. There, servers of the same authority may do everything, and the node itself may read.
//
// Each caller has a share of connections, streams and bodies, and all waits on a client have a limit (limits.go). The
// requests and streams of one moment share one observation of the agent (reading.go).
//
// New makes the handler and starts nothing. Run serves until its context ends.
package hostapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/apiserver/openapi"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/transport"
)

// Node is the agent, as this API needs it. The methods may be called concurrently.
type Node interface {
	// Observe returns what the agent knows now.
	Observe() agent.Observation
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
	// WriteLogs writes the lines of an attempt's output as JSON, one in each call of Write.
	WriteLogs(ctx context.Context, r transport.StreamRequest, to io.Writer) error
}

// Driver changes the tasks of a node that drives itself. The methods may be called concurrently. Their errors are
// problems (respond.Problem) where the caller is to blame.
type Driver interface {
	// Tasks returns the tasks that were made over this API, with their definitions. Their states do not count while
	// the node has an attempt of them.
	Tasks() []OwnTask
	// Changed returns a channel that is closed at the next change of Tasks.
	Changed() <-chan struct{}
	// Create makes a task. It reports false if the task exists with the same content. With a task to replace, it also
	// starts the new one.
	Create(ctx context.Context, c Creation) (created bool, err error)
	// Start, Stop and Delete change a task.
	Start(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	Delete(ctx context.Context, name string) error
}

// Mover moves a node between its own server and the servers of a fleet. The methods may be called concurrently, and
// each step may be repeated. Their errors are problems (respond.Problem) where the caller is to blame.
type Mover interface {
	// State returns how far a move is.
	State() api.HostHandover
	// Objects returns what moves with the node from its own server.
	Objects(ctx context.Context) (api.NodeObjects, error)
	// Prepare prepares the node for its next owner, and changes nothing for the present one.
	Prepare(ctx context.Context, r api.HostPrepareRequest) error
	// Complete makes the next owner drive the node.
	Complete(ctx context.Context, r api.HostCompleteRequest) error
	// Cancel ends a move before the present owner has released the node.
	Cancel(ctx context.Context) error
}

// Creation is a request for a new task.
type Creation struct {
	Name       string
	Definition api.InlineDefinition
	// Replace, unless empty, is the task that is deleted once the new one is healthy.
	Replace string
	// Fits returns why the node has no room for a task of a definition, or nil.
	Fits func(d *cluster.TaskDefinition) error
}

// OwnTask is a task that was made over this API.
type OwnTask struct {
	api.HostTask
	// Content is nil if it is not known yet.
	Content *cluster.TaskDefinition
	// HoldsRoom says that the task holds its room while the node has no attempt of it.
	HoldsRoom bool
}

// Config is what New needs.
type Config struct {
	// Name of the node.
	Name string
	Node Node
	// Driver is nil on a node that a domain drives.
	Driver Driver
	// Mover is nil on a node that cannot move.
	Mover Mover
	Log   *slog.Logger
}

// Server answers the API. It is an http.Handler, safe for concurrent use.
type Server struct {
	config  Config
	mux     *http.ServeMux
	routes  []route.Route
	spec    openapi.Document
	running sync.WaitGroup

	readings readings
	limits   limits
}

// New returns a server. It starts nothing.
func New(c Config) *Server {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: c, mux: http.NewServeMux(), limits: limits{
			newQuota(maxStreams, maxStreamsEach), newQuota(maxBodies, maxBodiesEach), make(chan struct{}, maxDecoders),
		},
	}
	s.readings.config = &s.config
	s.routes = s.operations()
	s.spec = openapi.DescribeAs(Describe(openapi.Info{}), s.routes)
	for i := range s.routes {
		rt := &s.routes[i]
		s.mux.Handle(rt.Method+" "+rt.Path, s.handler(rt))
	}
	return s
}

// Run serves the listeners until ctx ends, and closes them. Requests in flight get a moment to end.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	conns := newConnections()
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: conns.begin, ConnState: conns.state,
		ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	group, within := errgroup.WithContext(ctx)
	for _, l := range listeners {
		group.Go(func() error {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		<-within.Done()
		cancel() // ends streams
		grace, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // cuts off the remaining requests
		}
		return nil
	})
	err := group.Wait()
	s.running.Wait()
	return err
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Done()
	// A stream sets a deadline for each of its writes. Some writers have no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(respond.WriteTimeout))
	if r.ContentLength != 0 { // also where nobody reads the body, its end is awaited
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(headerTimeout))
	}
	err := refusal(w, r)
	if _, pattern := s.mux.Handler(r); err == nil && pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	if err == nil {
		err = s.admit(r, &route.Route{Method: http.MethodGet})
	}
	if dropped := strictjson.DropBody(w, r); err == nil {
		err = dropped
	}
	if err != nil {
		respond.WriteProblem(w, r, s.config.Log, err)
		return
	}
	var seen headerWriter
	s.mux.ServeHTTP(&seen, r)
	if allow := seen.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		respond.WriteProblem(w, r, s.config.Log, respond.Problemf(http.StatusMethodNotAllowed,
			"the method %s is not allowed here, only %s", respond.Clip(r.Method), allow))
		return
	}
	respond.WriteProblem(w, r, s.config.Log, respond.Problemf(http.StatusNotFound,
		"there is no path %s in the API of a node; /openapi.json lists all paths", respond.Clip(r.URL.Path)))
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

// handler returns the handler of a route: admission and deadlines around the route's own.
func (s *Server) handler(rt *route.Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &beginWriter{ResponseWriter: w}
		end, err := s.limits.beginBody(w, r, rt)
		defer end()
		if err == nil {
			err = s.admit(r, rt)
		}
		if err == nil {
			err = route.Check(rt, r)
		}
		if err == nil {
			err = rt.Serve(seen, r)
		}
		// The end of a stream is written too.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(respond.WriteTimeout))
		switch {
		case err == nil:
		case !seen.begun:
			respond.WriteProblem(seen, r, s.config.Log, err)
		case r.Context().Err() == nil:
			s.config.Log.Debug("a stream of the node's API ended", "path", rt.Path, "error", err)
		}
	})
}

// beginWriter remembers whether an answer has begun.
type beginWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *beginWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *beginWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *beginWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// admit refuses a caller who may not use an operation. The mode of the unix socket admits its callers.
func (s *Server) admit(r *http.Request, rt *route.Route) error {
	if r.TLS == nil {
		return nil
	}
	subject, ok := pki.SubjectOf(r.TLS)
	switch {
	case !ok:
		return respond.Problemf(http.StatusUnauthorized,
			"this address needs a certificate of the authority of the node: that of a server, or of the node itself")
	case subject.Role == cluster.RoleServer:
		return nil
	case subject.Role == cluster.RoleNode && subject.Name == s.config.Name && rt.Method == http.MethodGet:
		return nil
	case subject.Role == cluster.RoleNode && subject.Name == s.config.Name:
		return respond.Problemf(http.StatusForbidden,
			"the certificate of the %s may only read: use that of a server, or the unix socket of the node", subject)
	}
	return respond.Problemf(http.StatusForbidden,
		"the certificate of the %s may not use the API of the node %s: use that of a server, or of this node",
		subject, s.config.Name)
}

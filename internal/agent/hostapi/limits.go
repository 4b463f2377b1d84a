package hostapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/unixsocket"
)

// Limits of one node's API. Each caller has a share, so no caller keeps others out. Root and the user of the agent have
// their share also while all is taken.
const (
	maxConns, maxConnsEach     = 512, 64
	maxStreams, maxStreamsEach = 128, 32 // of events and logs
	maxBodies, maxBodiesEach   = 32, 8   // requests whose body is being read
	// maxRefusals is how many connections beyond the limit get an answer. More are closed without one.
	maxRefusals = 16
	// maxDefinitionBody bounds the body of a new task, in bytes. A definition has at most cluster.MaxDefinition without
	// white space.
	maxDefinitionBody = 512 << 10
	// maxDecoders is how many bodies are decoded at a time: a decoded body takes about 50 times its size for a moment.
	maxDecoders = 2
)

// Times of one node's API.
const (
	// headerTimeout is the longest time until the headers of a request have arrived, or a body that nobody needs.
	headerTimeout = 5 * time.Second
	// idleTimeout is the longest time between two requests of a connection.
	idleTimeout = 2 * time.Minute
	// changeTimeout is the longest time of a start, a stop or a deletion.
	changeTimeout = 30 * time.Second
)

// caller is who uses the API, for the limits.
type caller struct {
	name string
	// privileged says that the caller is root or the user of the agent.
	privileged bool
}

// callerOfConn returns the user at the other end of a unix socket, or the host of another connection.
func callerOfConn(ctx context.Context, remote string) caller {
	if uid, ok := unixsocket.UIDOf(ctx); ok {
		return caller{
			name:       "uid:" + strconv.FormatUint(uint64(uid), 10),
			privileged: uid == 0 || int64(uid) == int64(os.Geteuid()),
		}
	}
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	return caller{name: host}
}

// callerOfRequest returns the caller of a request. On an address, the holder of a certificate counts, not its host.
func callerOfRequest(r *http.Request) caller {
	if r.TLS != nil {
		return caller{name: callerOf(r)}
	}
	return callerOfConn(r.Context(), r.RemoteAddr)
}

// quota counts what callers have. Its methods may be called concurrently.
type quota struct {
	all, each int

	mu  sync.Mutex
	sum int
	of  map[string]int
}

func newQuota(all, each int) *quota { return &quota{all: all, each: each, of: map[string]int{}} }

// take reports whether a caller may have one more. A true result must be followed by release.
func (q *quota) take(c caller) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of[c.name] >= q.each || q.sum >= q.all && !c.privileged {
		return false
	}
	q.sum++
	q.of[c.name]++
	return true
}

func (q *quota) release(c caller) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum--
	if q.of[c.name]--; q.of[c.name] == 0 {
		delete(q.of, c.name)
	}
}

// connections limits the connections of a server.
type connections struct {
	open, refused *quota

	mu    sync.Mutex
	known map[net.Conn]func() // what gives the place of a connection back
}

func newConnections() *connections {
	return &connections{
		open: newQuota(maxConns, maxConnsEach), refused: newQuota(maxRefusals, maxRefusals),
		known: map[net.Conn]func(){},
	}
}

type refusedKey struct{}

// begin is a ConnContext of http.Server. It takes a place for a connection. Without one, the request of the connection
// is refused, or the connection is closed at once.
func (c *connections) begin(ctx context.Context, conn net.Conn) context.Context {
	ctx = unixsocket.ConnContext(ctx, conn)
	who := callerOfConn(ctx, conn.RemoteAddr().String())
	var release func()
	switch {
	case c.open.take(who):
		release = func() { c.open.release(who) }
	case c.refused.take(caller{}):
		release = func() { c.refused.release(caller{}) }
		ctx = context.WithValue(ctx, refusedKey{}, true)
	default:
		_ = conn.Close() // the server sees that it is closed
		return ctx
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[conn] = release
	return ctx
}

// state is a ConnState of http.Server. It gives the place of a closed connection back.
func (c *connections) state(conn net.Conn, to http.ConnState) {
	if to != http.StateClosed && to != http.StateHijacked {
		return
	}
	c.mu.Lock()
	release := c.known[conn]
	delete(c.known, conn)
	c.mu.Unlock()
	if release != nil {
		release()
	}
}

// refusal returns why a request is refused because of its connection, or nil.
func refusal(w http.ResponseWriter, r *http.Request) error {
	if r.Context().Value(refusedKey{}) == nil {
		return nil
	}
	w.Header().Set("Connection", "close")
	return respond.Problemf(http.StatusTooManyRequests, "too many connections to the API of the node are open, at "+
		"most %d of one caller: close some, or use one for several requests", maxConnsEach)
}

// limits are the streams and bodies that callers have open. Its methods may be called concurrently.
type limits struct {
	streams, bodies *quota
	decoders        chan struct{} // holds a value for each body that is being decoded
}

// openStream takes a place among the open streams, and returns the function that gives it back.
func (l *limits) openStream(r *http.Request) (end func(), err error) {
	who := callerOfRequest(r)
	if !l.streams.take(who) {
		return nil, respond.Problemf(http.StatusTooManyRequests, "too many streams of events and logs are open, at "+
			"most %d of one caller: end one of them", maxStreamsEach)
	}
	return func() { l.streams.release(who) }, nil
}

// openBody takes a place among the bodies that are being read, and returns the function that gives it back.
func (l *limits) openBody(r *http.Request) (end func(), err error) {
	who := callerOfRequest(r)
	if !l.bodies.take(who) {
		return func() {}, respond.Problemf(http.StatusTooManyRequests, "too many requests with a body are in flight, "+
			"at most %d of one caller: repeat the request once another one has its answer", maxBodiesEach)
	}
	return func() { l.bodies.release(who) }, nil
}

// beginBody prepares for the body of a request of a route, and returns the function that is called at the end.
func (l *limits) beginBody(w http.ResponseWriter, r *http.Request, rt *route.Route) (end func(), err error) {
	if rt.Body == nil {
		return func() {}, strictjson.DropBody(w, r)
	}
	// Some connections have no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strictjson.BodyTimeout))
	return l.openBody(r)
}

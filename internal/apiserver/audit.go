package apiserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/telemetry"
)

// AuditLine is one line of the audit log: who asked for what, and what became of it. It holds no bodies and no secrets.
type AuditLine struct {
	Time time.Time `json:"time"`
	// Who is "uid:<number>" on a unix socket, "token-file" for the server's own token, "token:<id>", or "node:<name>"
	// and "server:<id>" for certificates; empty for somebody who is not known.
	Who string `json:"who,omitempty"`
	// Name is what a token is called, for people.
	Name string `json:"name,omitempty"`
	Role string `json:"role,omitempty"`
	// From is the address of the other end, or "unix".
	From   string `json:"from"`
	Method string `json:"method"`
	Path   string `json:"path"`
	// Operation is the operation's name in the API's description, and Object what it was about, such as "default/web".
	Operation string `json:"operation,omitempty"`
	Object    string `json:"object,omitempty"`
	// Status is that of the answer; 401, 403 and 429 are refusals, and 0 is that there was none: the connection broke.
	Status int `json:"status"`
	// Revision of the object after the write, where it has one.
	Revision uint64 `json:"revision,omitempty"`
	// Request is the id of the request, which the answer carries as X-Request-Id.
	Request string `json:"request"`
	// Lost, in a line of its own, counts lines before it that could not be kept.
	Lost uint64 `json:"lost,omitempty"`
}

// AuditSink takes the lines of the audit log; *AuditLog is one. Safe for concurrent use.
type AuditSink interface {
	// Put takes a line at once and returns a channel that is closed when the line is durable, or is not going to be
	// soon.
	Put(AuditLine) <-chan struct{}
	// Health returns nil, or a sentence that says since when lines are not kept.
	Health() error
}

// auditPatience is how long an answer waits for its line in the audit log.
const auditPatience = 100 * time.Millisecond

// begin makes the exchange of a request, with a writer that puts its line into the audit log.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	x := &exchange{id: newID(8), trace: telemetry.Traceparent(r.Header.Get("Traceparent"))}
	w.Header().Set("X-Request-Id", x.id)
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if s.cfg.Audit == nil {
		return w, r
	}
	return &auditWriter{ResponseWriter: w, server: s, request: r, exchange: x}, r
}

// began notes which route a request took, and what it is about.
func (x *exchange) began(rt *route, r *http.Request) {
	x.route = rt
	var parts []string
	for _, name := range rt.names() {
		parts = append(parts, clip(r.PathValue(name)))
	}
	x.object = strings.Join(parts, "/")
}

// auditWriter writes the line of a request when its answer begins: a write is in the log before anybody hears that it
// was done, unless the log takes too long.
type auditWriter struct {
	http.ResponseWriter
	server   *Server
	request  *http.Request
	exchange *exchange
	told     bool
}

// WriteHeader tells the audit log and then the client.
func (w *auditWriter) WriteHeader(status int) {
	if !w.told && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.tell(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write begins an answer, if nothing has.
func (w *auditWriter) Write(b []byte) (int, error) {
	if !w.told {
		w.tell(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// finish tells of a request that was not answered.
func (w *auditWriter) finish() {
	if !w.told {
		w.tell(0)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *auditWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// tell puts the line of the request into the log where it belongs there: it is a write, or it was refused.
func (w *auditWriter) tell(status int) {
	w.told = true
	r, x := w.request, w.exchange
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden ||
		status == http.StatusTooManyRequests
	writes := x.route != nil && !x.route.quiet &&
		(x.route.audited || r.Method != http.MethodGet && r.Method != http.MethodHead)
	if !refused && !writes {
		return
	}
	line := AuditLine{
		Time: w.server.cfg.Now().UTC(), From: from(r), Method: clip(r.Method), Path: clipPath(r.URL.Path),
		Object: x.object, Status: status, Request: x.id,
	}
	if x.route != nil {
		line.Operation = x.route.name
	}
	if c := x.caller; c != nil {
		line.Who, line.Name, line.Role = c.who, c.name, string(c.role)
	}
	if tag, err := strconv.Unquote(w.Header().Get("ETag")); err == nil && status < http.StatusBadRequest {
		line.Revision, _ = strconv.ParseUint(tag, 10, 64)
	}
	kept := w.server.cfg.Audit.Put(line)
	if refused {
		return // whoever knocks in vain does not make the disk a brake for others
	}
	patience := time.NewTimer(auditPatience)
	defer patience.Stop()
	select {
	case <-kept:
	case <-patience.C:
	}
}

// from is where a request comes from.
func from(r *http.Request) string {
	if trusted(r) {
		return "unix"
	}
	return r.RemoteAddr
}

// clipPath bounds a path from outside; those of routes are far shorter.
func clipPath(path string) string {
	const most = 512
	if len(path) <= most {
		return path
	}
	return path[:most] + "…"
}

// newID returns a random name of so many bytes, in hex.
func newID(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

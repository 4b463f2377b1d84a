package access

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/shorten"
	"github.com/berthd/berth/internal/telemetry"
)

// MaxAuditDelay is how long an answer waits for its line in the audit log.
const MaxAuditDelay = 100 * time.Millisecond

// Headers of the answer to a proposal, with the numbers of its accepted and refused commands. The server that received
// the proposal puts them into its audit log, also if another server answers.
const (
	AcceptedHeader = "X-Berth-Accepted"
	RefusedHeader  = "X-Berth-Refused"
)

// Begin returns a request with its exchange, and a writer that puts the request's line into the audit log. The caller
// calls end once the request is answered.
func (s *Gate) Begin(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, _ *http.Request, end func()) {
	x := &Exchange{ID: NewID(8), Trace: telemetry.Traceparent(r.Header.Get("Traceparent"))}
	w.Header().Set("X-Request-Id", x.ID)
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if s.Audit == nil {
		return w, r, func() {}
	}
	a := &auditWriter{ResponseWriter: w, gate: s, request: r, exchange: x}
	return a, r, a.finish
}

// auditWriter writes the audit line of a request before its answer begins. A client therefore learns that a write was
// done only after the line is in the log, unless the log takes longer than MaxAuditDelay.
type auditWriter struct {
	http.ResponseWriter
	gate     *Gate
	request  *http.Request
	exchange *Exchange
	written  bool
}

// WriteHeader writes the audit line, and then the status to the client.
func (w *auditWriter) WriteHeader(status int) {
	if !w.written && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.writeLine(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write begins the answer with status 200 if it has not begun, and writes to the client.
func (w *auditWriter) Write(b []byte) (int, error) {
	if !w.written {
		w.writeLine(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// finish writes the audit line of a request that was not answered.
func (w *auditWriter) finish() {
	if !w.written {
		w.writeLine(0)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *auditWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// writeLine puts the line of a request into the audit log if the request is a write or was refused.
func (w *auditWriter) writeLine(status int) {
	w.written = true
	r, x := w.request, w.exchange
	refused := status == http.StatusUnauthorized || status == http.StatusForbidden ||
		status == http.StatusTooManyRequests
	writes := x.Audited || x.route != nil && !x.route.Quiet &&
		(x.route.Audited || r.Method != http.MethodGet && r.Method != http.MethodHead)
	if !refused && !writes {
		return
	}
	line := audit.Line{
		Time: w.gate.Now().UTC(), From: RemoteAddress(r), Method: respond.Clip(r.Method), Path: clipPath(r.URL.Path),
		Object: x.Object, Status: status, Request: x.ID,
	}
	if x.route != nil {
		line.Operation = x.route.Name
	}
	if c := x.Caller; c != nil {
		line.Who, line.Name, line.Role = c.Who, c.Name, string(c.Role)
	}
	if tag, err := strconv.Unquote(w.Header().Get("ETag")); err == nil && status < http.StatusBadRequest {
		line.Revision, _ = strconv.ParseUint(tag, 10, 64)
	}
	line.Accepted, _ = strconv.Atoi(w.Header().Get(AcceptedHeader))
	line.Refused, _ = strconv.Atoi(w.Header().Get(RefusedHeader))
	kept := w.gate.Audit.Put(line)
	if refused {
		return // a flood of refused requests must not wait for the disk
	}
	late := time.NewTimer(MaxAuditDelay)
	defer late.Stop()
	select {
	case <-kept:
	case <-late.C:
	}
}

// RemoteAddress returns the address of the client, or "unix" for the unix socket.
func RemoteAddress(r *http.Request) string {
	if trusted(r) {
		return "unix"
	}
	return r.RemoteAddr
}

// clipPath shortens a path from outside. The paths of routes are far shorter than the bound.
func clipPath(path string) string { return shorten.Marked(path, 512) }

// NewID returns a random number of the given size in bytes, in hex.
func NewID(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

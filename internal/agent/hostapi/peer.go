package hostapi

import (
	"net/http"
	"os"

	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/unixsocket"
)

// isAdministrator reports whether the caller of a request is root, or the user of the agent, on a unix socket.
func isAdministrator(r *http.Request) bool {
	uid, ok := unixsocket.UIDOf(r.Context())
	return ok && r.TLS == nil && (uid == 0 || int64(uid) == int64(os.Geteuid()))
}

// callerOf names the caller of a request for the log.
func callerOf(r *http.Request) string {
	if subject, ok := pki.SubjectOf(r.TLS); ok {
		return subject.String()
	}
	if who, ok := unixsocket.PeerOf(r.Context()); ok {
		return who
	}
	return "unknown"
}

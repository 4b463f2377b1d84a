package hostapi

import (
	"net/http"

	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/unixsocket"
)

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

package streams

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/berthd/berth/internal/transport"
)

// errNoOutput means that the node has neither the task nor its logs.
var errNoOutput = errors.New("the node has neither the task nor its output")

// serveKept writes the logs of an attempt with nothing else left.
func (s *Server) serveKept(ctx context.Context, r transport.StreamRequest, ask transport.LogsRequest,
	to *json.Encoder,
) error {
	if !plainUUID(r.UUID) {
		return errNoOutput
	}
	containers, err := os.ReadDir(filepath.Join(s.Node.LogRoot(), r.UUID))
	if err != nil {
		return errNoOutput
	}
	var read []*containerLog
	for _, c := range containers {
		if r.Container == "" || r.Container == c.Name() {
			read = append(read, &containerLog{container: c.Name(), dir: s.Node.LogDir(r.UUID, c.Name())})
		}
	}
	return readMerged(ctx, read, options(ask, nil), &lineWriter{to: to, lost: s.countLost})
}

// plainUUID reports whether s has only letters, digits and "-", so that it names a folder and is not a path.
func plainUUID(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return false
		}
	}
	return s != ""
}

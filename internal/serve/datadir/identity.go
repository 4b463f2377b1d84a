package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
)

// MachineName returns the name of this machine as a valid node name.
func MachineName() string {
	host, err := os.Hostname()
	if err != nil {
		return "node"
	}
	host = strings.ToLower(strings.ReplaceAll(host, "_", "-"))
	if !cluster.ValidNodeName(host) {
		return "node"
	}
	return host
}

// ServerID returns the id of the server, and makes one at its first start.
func ServerID(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		id := strings.TrimSpace(string(b))
		if _, err := uuid.Parse(id); err != nil {
			return "", &hinted.Error{
				Err: fmt.Errorf("%s contains %.60q, which is not the id of a server", path, id),
				Hint: "Restore the id: `berth server members` on another server shows it, and the CN of " +
					"pki/self.crt is the same. If this server has neither a certificate nor a store yet, " +
					"delete the file: the server creates a new id.",
			}
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the server's id: %w", err)
	}
	id := uuid.NewString()
	if err := ReplaceFile(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("write the server's id: %w", err)
	}
	return id, nil
}

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
				Err: fmt.Errorf("%s holds %.60q, which is no id of a server", path, id),
				Hint: "Put the id back that `berth server members` on another server, or the CN of pki/self.crt, " +
					"tells. If there is neither certificate nor store yet, delete the file: a new id is made.",
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

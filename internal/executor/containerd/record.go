package containerd

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/identifiers"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// Files of a container's folder (executor.Spec.Dir).
const (
	intentFile = "intent.json" // written right before the start: the Process
	exitFile   = "exit.json"
	againFile  = "again" // an earlier Prepare was cut short
)

// Labels of a container.
const (
	labelID     = "berth.id"
	labelDir    = "berth.dir"
	labelImage  = "berth.image" // digest of the container's image
	labelPrefix = "berth.label/"
)

// record is the state of a container beside its task.
type record struct {
	id     executor.ID
	dir    string
	labels map[string]string
}

// nameOf returns containerd's name of a container: its ID, unless that is not a name for containerd.
func nameOf(id executor.ID) string {
	if identifiers.Validate(string(id)) == nil {
		return string(id)
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
}

func recordOf(c containers.Container) record {
	r := record{id: executor.ID(c.Labels[labelID]), dir: c.Labels[labelDir], labels: map[string]string{}}
	for k, v := range c.Labels {
		if name, ok := strings.CutPrefix(k, labelPrefix); ok {
			r.labels[name] = v
		}
	}
	return r
}

func (r record) path(name string) string { return filepath.Join(r.dir, name) }

// intent reports whether Start was called for the container, and its process.
func (r record) intent() (executor.Process, bool) {
	var p executor.Process
	err := outlive.Read(r.path(intentFile), &p)
	return p, err == nil || !os.IsNotExist(err)
}

func (r record) exit() (cluster.Exit, bool) {
	var exit cluster.Exit
	err := outlive.Read(r.path(exitFile), &exit)
	return exit, err == nil
}

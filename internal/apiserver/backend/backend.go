// Package backend joins what operations read from and write to.
package backend

import (
	"net/http"
	"time"

	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
)

// Backend is what most operations read from and write to.
type Backend struct {
	Reads  *snapshot.Reader
	Writer *draft.Writer
	Lists  *lists.Lists
	Domain string
	Now    func() time.Time // the wall clock
}

// KnownCluster refuses lists of a cluster that does not exist; the default one always does.
func (b *Backend) KnownCluster(r *http.Request, name string) error {
	if name == "" || name == cluster.DefaultCluster {
		return nil
	}
	snap, err := b.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	if _, ok := snap.Cluster(name); !ok {
		return respond.NotFound("cluster", name)
	}
	return nil
}

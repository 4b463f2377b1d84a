// Package backend joins the parts that most operations need.
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

// Backend reads, writes and lists for operations.
type Backend struct {
	Reads  *snapshot.Reader
	Writer *draft.Writer
	Lists  *lists.Lists
	Domain string
	Now    func() time.Time // the wall clock
}

// KnownCluster returns an error for a list of a cluster that does not exist. The default cluster always exists.
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

package apiserver

import (
	"net/http"
	"time"

	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
)

// backend is what most operations read from and write to.
type backend struct {
	reads  *snapshot.Reader
	writer *draft.Writer
	lists  *lists.Lists
	domain string
	now    func() time.Time // the wall clock
}

// knownCluster refuses lists of a cluster that does not exist; the default one always does.
func (b *backend) knownCluster(r *http.Request, name string) error {
	if name == "" || name == cluster.DefaultCluster {
		return nil
	}
	snap, err := b.reads.ForRequest(r)
	if err != nil {
		return err
	}
	if _, ok := snap.Cluster(name); !ok {
		return respond.NotFound("cluster", name)
	}
	return nil
}

// Package backend joins the parts that most operations need.
package backend

import (
	"cmp"
	"net/http"
	"slices"
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
	Now    func() time.Time // the wall clock
}

// KnownDomain returns an error for a domain that is not one of those that exist.
func (b *Backend) KnownDomain(exist []string, name string) error {
	if !slices.Contains(exist, name) {
		return respond.NotFound("domain", name)
	}
	return nil
}

// DomainOf returns the domain that a request is about: that of its query parameter domain, by default the default
// domain. It returns an error for one that is not one of those that exist.
func (b *Backend) DomainOf(exist []string, r *http.Request) (string, error) {
	name := cmp.Or(r.URL.Query().Get("domain"), cluster.DefaultDomain)
	return name, b.KnownDomain(exist, name)
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

package scheduler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Share is what the jobs of a user hold, who has tasks in a fair queue.
type Share struct {
	Cluster, User string
	// Weight is that of the cluster.
	Weight int
	// OfCluster and OfUser are the dominant shares of the cluster's and the user's jobs: see admission.Draft.Share.
	OfCluster, OfUser float64
	// Waiting is the number of the user's tasks in fair queues.
	Waiting int
}

// Shares returns the shares of the users who have tasks in fair queues, in the order in which these are served: the
// cluster with the smallest share for its weight first, and of its users the one with the smallest share. Users whose
// tasks are all held are among them.
func Shares(f *fleet.Fleet, pending []cluster.Pending) []Share {
	var shares []Share
	at := map[[2]string]int{}
	for i := range pending {
		p := &pending[i]
		if !isFair(p) {
			continue
		}
		key := [2]string{p.Owner.Cluster, p.User}
		n, found := at[key]
		if !found {
			n = len(shares)
			at[key] = n
			shares = append(shares, Share{Cluster: p.Owner.Cluster, User: p.User, Weight: max(p.Weight, 1)})
		}
		shares[n].Waiting += p.Tasks()
	}
	if len(shares) == 0 {
		return nil
	}
	limits, capacity := admission.NewDraft(&f.Limits), f.Capacity()
	for i := range shares {
		s := &shares[i]
		s.OfCluster, s.OfUser = limits.Share(&capacity, s.Cluster, ""), limits.Share(&capacity, s.Cluster, s.User)
	}
	slices.SortFunc(shares, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.OfCluster/float64(a.Weight), b.OfCluster/float64(b.Weight)),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.OfUser, b.OfUser), cmp.Compare(a.User, b.User))
	})
	return shares
}

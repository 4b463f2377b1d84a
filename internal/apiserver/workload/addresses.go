package workload

import (
	"net/http"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// listAddresses lists the addresses of the healthy tasks of a service.
func (a *ServicesAPI) listAddresses(w http.ResponseWriter, r *http.Request) error {
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: r.PathValue("cluster"), Name: r.PathValue("service")}
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	if _, ok := snap.Service(owner.Cluster, owner.Name); !ok {
		return respond.NotFound("service", owner.Cluster+"/"+owner.Name)
	}
	return lists.Serve(a.Lists, w, r, lists.Source[api.Address]{
		List: "addresses", Topics: store.TopicOwners | store.TopicNodes,
		All:     func(snap *store.Snapshot) []lists.Item[api.Address] { return healthyAddresses(snap, owner) },
		Touches: touchesOwners(func(o cluster.OwnerRef) bool { return o == owner }),
	})
}

// healthyAddresses shows store.HealthyAddresses.
func healthyAddresses(snap *store.Snapshot, owner cluster.OwnerRef) (list []lists.Item[api.Address]) {
	canary := canaryOf(snap, owner)
	for _, a := range snap.HealthyAddresses(owner) {
		parts, _ := a.Task.Parts()
		list = append(list, lists.Item[api.Address]{Key: views.TaskKey(a.Task, a.Attempt), Value: api.Address{
			Task: a.Task, Attempt: a.Attempt, Node: a.Node, Address: a.Address, Ports: a.Ports,
			Definition: a.Definition, Generation: parts.Generation, Canary: canary != 0 && parts.Generation == canary,
		}})
	}
	// The keys order numbers: 10 after 9.
	slices.SortFunc(list, func(a, b lists.Item[api.Address]) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// canaryOf returns the generation of a service whose tasks wait to be promoted, 0 for none.
func canaryOf(snap *store.Snapshot, owner cluster.OwnerRef) uint64 {
	if e, ok := snap.Rollout(owner.Cluster, owner.Name); ok && e.Value.State == cluster.RolloutCanary {
		return e.Value.Generation
	}
	return 0
}

package nodeapi

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// reservePorts keeps ports of a node from tasks, beside those that are reserved already.
func (a *API) reservePorts(w http.ResponseWriter, r *http.Request) error {
	return a.changePorts(w, r, "reserved", func(before, named []int) []int {
		all := slices.Concat(before, named)
		slices.Sort(all)
		return slices.Compact(all)
	})
}

// unreservePorts allows ports of a node to tasks again. Ports that are not reserved are no error.
func (a *API) unreservePorts(w http.ResponseWriter, r *http.Request) error {
	return a.changePorts(w, r, "not reserved any more", func(before, named []int) []int {
		return slices.DeleteFunc(before, func(p int) bool {
			_, found := slices.BinarySearch(named, p)
			return found
		})
	})
}

// changePorts changes the ports that the operator reserves on a node. Change gets ordered ports and returns such. The
// event names the ports that the request changed, and what they are now.
func (a *API) changePorts(w http.ResponseWriter, r *http.Request, now string, change func(before, named []int) []int,
) error {
	var ask api.ReservedPortsRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	if faults := portFaults(ask.Ports); len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return a.changeNode(w, r, func(d *draft.Draft, _ api.NodeView, h *cluster.Host) error {
		before := cluster.Ports(h.ReservedPorts)
		after := change(slices.Clone(before), cluster.Ports(ask.Ports))
		changed := cluster.JoinPortRanges(cluster.PortRangesOf(differing(before, after)))
		return changeSettings(d, h, "ports "+changed+" "+now, func() {
			h.ReservedPorts = cluster.PortRangesOf(after)
		})
	})
}

// differing returns the ordered numbers that are in one of two ordered lists.
func differing(a, b []int) (only []int) {
	for _, lists := range [][2][]int{{a, b}, {b, a}} {
		for _, n := range lists[0] {
			if _, found := slices.BinarySearch(lists[1], n); !found {
				only = append(only, n)
			}
		}
	}
	slices.Sort(only)
	return only
}

// portFaults returns all faults of the ports of a request, except that they are too many to be reserved together.
func portFaults(ports []cluster.PortRange) (faults cluster.Faults) {
	for i, r := range ports {
		if _, _, err := r.Bounds(); err != nil {
			faults = append(faults, cluster.Fault{Path: fmt.Sprintf("ports[%d]", i), Message: err.Error()})
		}
	}
	if len(ports) == 0 || len(ports) > cluster.MaxReservedPorts {
		faults = append(faults, cluster.Fault{Path: "ports", Message: fmt.Sprintf(
			"holds %d ports and ranges, want 1 to %d", len(ports), cluster.MaxReservedPorts)})
	}
	return faults
}

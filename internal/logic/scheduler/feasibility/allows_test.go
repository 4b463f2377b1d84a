package feasibility_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

func TestAllows(t *testing.T) {
	n := &fleet.Node{
		Name: "n1", Pool: "gpu", Labels: cluster.Labels{"zone": "a"},
		Taints: []cluster.Taint{{Key: "team", Value: "ml"}, {Key: "old", Effect: cluster.TaintAvoid}},
	}
	evicting := &fleet.Node{
		Name: "n2", Pool: "evicting",
		Taints: []cluster.Taint{{Key: "gone", Effect: cluster.TaintEvict}},
	}
	ml := []cluster.Toleration{{Key: "team", Value: "ml"}}
	for name, tc := range map[string]struct {
		p           cluster.Placement
		want, stays bool // want for a new task; stays for one that runs there
	}{
		"a taint that is not tolerated": {cluster.Placement{}, false, true},
		"a taint of another value": {
			cluster.Placement{Tolerations: []cluster.Toleration{{Key: "team", Value: "web"}}}, false, true,
		},
		"tolerated; the other is advice": {cluster.Placement{Tolerations: ml}, true, true},
		"its pool":                       {cluster.Placement{Tolerations: ml, Pool: "gpu"}, true, true},
		"another pool":                   {cluster.Placement{Tolerations: ml, Pool: "web"}, false, false},
		"a constraint that is met": {cluster.Placement{
			Tolerations: ml,
			Constraints: []cluster.Constraint{{Attribute: "label.zone", Value: "a"}},
		}, true, true},
		"a constraint that is not": {cluster.Placement{
			Tolerations: ml,
			Constraints: []cluster.Constraint{{Attribute: "label.zone", Value: "b"}},
		}, false, false},
		"evict sends away, too": {cluster.Placement{Pool: "evicting"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := n
			if tc.p.Pool == evicting.Pool {
				n = evicting
			}
			if got := feasibility.Allows(&tc.p, n, false); got != tc.want {
				t.Errorf("one that is to come: got %v, want %v", got, tc.want)
			}
			if got := feasibility.Allows(&tc.p, n, true); got != tc.stays {
				t.Errorf("one that is there: got %v, want %v", got, tc.stays)
			}
		})
	}
}

package scheduler_test

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/feasibility"
)

// drawVolumes draws a node's volumes, and the folders that it lends.
func drawVolumes(t *rapid.T, n *scheduler.Node) {
	n.Volumes = pick(t, "volumes there", nil, nil, nil, []string{"c/o0/v"}, []string{"c/o0/v", "c/o1/v"})
	if oneIn(t, "any folder", 6) {
		return
	}
	n.Folders = &cluster.FolderFacts{
		HostVolumes: pick(t, "host volumes", nil, []cluster.HostVolume{{Name: "m"}},
			[]cluster.HostVolume{{Name: "a"}, {Name: "m", ReadOnly: true}}),
		Paths: pick(t, "paths", []string{"/"}, []string{"/srv", "/var/x"}, nil),
	}
	for _, key := range pick(t, "copies", nil, nil, []string{"c/o0/s.0"}, []string{"c/o0/s.0", "c/o0/s.1"}) {
		n.Folders.Sticky = append(n.Folders.Sticky, cluster.StickyCopy{
			Key: key, Placed: epoch().Add(time.Duration(upTo(t, "placed", 2)) * time.Hour),
			Incarnation: uint64(upTo(t, "incarnation", 1)), Plan: uint64(upTo(t, "plan", 3)),
		})
	}
}

// drawVolumesAsked draws a task's demands on volumes.
func drawVolumesAsked(t *rapid.T, p *cluster.Pending) {
	p.Volumes = pick(t, "volumes", nil, nil, []string{"c/o0/v"}, []string{"c/o0/v", "c/o1/v"}, []string{"c/o9/v"})
	p.Sticky = pick(t, "sticky", nil, []string{"c/o0/s.0"}, []string{"c/o0/s.0", "c/o0/s.1"})
	if oneIn(t, "folder", 2) {
		p.Placement.Constraints = append(slices.Clip(p.Placement.Constraints), pick(t, "which folder",
			cluster.Constraint{Attribute: cluster.AttributeHostVolume, Op: cluster.OpExists, Value: "m"},
			cluster.Constraint{Attribute: cluster.AttributeHostVolume, Op: cluster.OpEqual, Value: "m"},
			cluster.Constraint{Attribute: cluster.AttributeHostPath, Op: cluster.OpEqual, Value: "/srv/x"},
			cluster.Constraint{Attribute: cluster.AttributeHostPath, Op: cluster.OpEqual, Value: "/srvx"},
		))
	}
}

// folder reports whether a node satisfies a constraint on folders; about is false for other constraints.
func (w world) folder(n int, c cluster.Constraint) (lent, about bool) {
	f := w.nodes[n].Folders
	switch c.Attribute {
	case cluster.AttributeHostVolume:
		for _, v := range w.lent(n).HostVolumes {
			if v.Name == c.Value && (c.Op == cluster.OpExists || !v.ReadOnly) {
				return true, true
			}
		}
		return false, true
	case cluster.AttributeHostPath:
		for _, path := range w.lent(n).Paths {
			if path == "/" || strings.HasPrefix(c.Value+"/", path+"/") {
				return true, true
			}
		}
		return f == nil, true
	}
	return false, false
}

func (w world) lent(n int) cluster.FolderFacts {
	if f := w.nodes[n].Folders; f != nil {
		return *f
	}
	return cluster.FolderFacts{}
}

// matches reports whether a node satisfies a constraint.
func (w world) matches(n int, c cluster.Constraint) bool {
	if lent, about := w.folder(n, c); about {
		return lent
	}
	return feasibility.Matches(c, &w.nodes[n])
}

// volumeRefusal returns the refusal of a node if the data of a task's volume is on other nodes.
func (w world) volumeRefusal(n int, p cluster.Pending) cluster.Refusal {
	if p.Daemon {
		return cluster.Refusal{}
	}
	for _, key := range p.Volumes {
		var holders []string
		for _, node := range w.nodes {
			if slices.Contains(node.Volumes, key) {
				holders = append(holders, node.Name)
			}
		}
		slices.Sort(holders)
		if len(holders) == 0 || slices.Contains(w.nodes[n].Volumes, key) {
			continue
		}
		more := ""
		if len(holders) > 3 {
			more = " and " + string(rune('0'+len(holders)-3)) + " more"
			holders = holders[:3]
		}
		return cluster.Refusal{
			Code:   cluster.ReasonVolume,
			Detail: "the data of its volume " + key[2:] + " is on " + strings.Join(holders, ", ") + more,
		}
	}
	return cluster.Refusal{}
}

// copyPoints returns the points of copies of a task's own volumes on a node.
func (w world) copyPoints(n int, p cluster.Pending) (sum int64) {
	if p.Daemon {
		return 0
	}
	for _, key := range p.Sticky {
		type holder struct {
			n int
			c cluster.StickyCopy
		}
		var holders []holder
		for i := range w.nodes {
			for _, c := range w.lent(i).Sticky {
				if c.Key == key {
					holders = append(holders, holder{i, c})
				}
			}
		}
		slices.SortFunc(holders, func(a, b holder) int { // the newest plan first
			return cmp.Or(cmp.Compare(b.c.Incarnation, a.c.Incarnation), cmp.Compare(b.c.Plan, a.c.Plan),
				cmp.Compare(w.nodes[a.n].Name, w.nodes[b.n].Name))
		})
		for i, h := range holders[:min(len(holders), 4)] {
			switch {
			case h.n != n:
			case i == 0:
				sum += 2_000_000
			default:
				sum += 1_000_000
			}
		}
	}
	return sum
}

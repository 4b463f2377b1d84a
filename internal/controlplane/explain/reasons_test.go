package explain

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestReportsAreOfOneVersion checks that a report has the reasons of its version, also while the leader decides anew:
// the groups are made without the lock that a decision needs.
func TestReportsAreOfOneVersion(t *testing.T) {
	var r Reasons
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "default", Name: "long"}
	set := func(version int) {
		waiting := func(first, n int) (all []cluster.Waiting) {
			for i := range n {
				all = append(all, cluster.Waiting{
					Task: cluster.JobTask("default", "long", 1, "s", first+i), Sentence: fmt.Sprint(version),
					Refusals: []cluster.RefusalCount{{Nodes: version}},
				})
			}
			return all
		}
		requests := make([]cluster.Pending, 20)
		considered := make([]Considered, len(requests))
		for i := range requests {
			requests[i] = cluster.Pending{Task: cluster.JobTask("default", "long", 1, "s", i), Owner: owner}
			considered[i] = Considered{Owner: owner, Index: i, Waiting: waiting(i, 1)}
		}
		if version == 1 {
			r.SetRequests(owner, requests)
		}
		r.SetConsidered(considered, waiting(20, 20), nil, func(cluster.OwnerRef) bool { return true })
	}
	set(1)
	var work sync.WaitGroup
	var ended atomic.Bool
	work.Go(func() {
		for version := 2; !ended.Load(); version++ {
			set(version)
		}
	})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			seen := uint64(0)
			for reports := 0; reports < 200; {
				report := r.ReportAfter(seen)
				if report.Version == seen {
					continue
				}
				reports++
				seen = report.Version
				for _, g := range report.Groups {
					if len(g.Tasks) != 40 || g.Sentence != fmt.Sprint(seen) {
						t.Errorf("version %d: %d tasks wait because of %q", seen, len(g.Tasks), g.Sentence)
						return
					}
				}
			}
		})
	}
	readers.Wait()
	ended.Store(true)
	work.Wait()
	last := r.ReportAfter(0)
	if report := r.ReportAfter(last.Version); report.Version != last.Version || report.Groups != nil {
		t.Errorf("the report of a known version has %d groups", len(report.Groups))
	}
}

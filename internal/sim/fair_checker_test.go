package sim

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
)

// holdFairly has each user of the fair queue hold a part of the fair share for an hour, in whole tasks, and a waiting
// task. The users who are idle have no waiting task at one moment of the hour.
func (h *historyWriter) holdFairly(parts, idle map[string]float64) {
	const nodes = 4 * fairNodes // so many that a task is a small part of a share
	h.v.story = &Story{Seed: 1, Servers: 3, Nodes: nodes}
	h.v.day = newDayChecker(h.v, 1)
	h.v.changedJobs = map[string]bool{}
	for _, d := range ci.Definitions() {
		h.v.cpu[d.Ref()], h.v.definitions[d.Ref()] = d.Demand().CPU, d
	}
	for i := range nodes {
		h.put(prefix.Host(name("n", i+1)), &cluster.Host{Name: name("n", i+1), Pool: ci.FairPool})
		h.put(prefix.Node(name("n", i+1)), &cluster.Node{Domain: cluster.DefaultDomain, State: cluster.NodeReady})
	}
	time.Sleep(fairBegin) // in-bubble: the tests make one
	f := h.v.day.fair
	f.measure()
	for i, u := range ci.FairUsers() {
		job := u.Job(1)
		job.Generation = 1
		h.put(prefix.Job(u.Cluster, job.Name), job)
		tasks := 0
		if u.Every == 0 {
			part, given := parts[u.Name]
			if !given {
				part = 1
			}
			tasks = int(math.Round(f.fair[i] * part))
		}
		for k := range tasks {
			h.want(desired(fmt.Sprint(u.Name, k), k, 1, batch, func(d *cluster.Desired) {
				d.Task, d.Node = cluster.JobTask(u.Cluster, u.Name+"-other", 1, "work", k), name("n", 1+k%nodes)
				d.Owner = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: u.Cluster, Name: u.Name + "-other"}
				d.Definition = u.Definition().Ref()
			}))
		}
	}
	h.v.breaches = nil // by the records, which no control plane would write
	for n := range int(time.Hour/sampleInterval) + 1 {
		h.v.day.openJobs()
		if n == 100 {
			for _, j := range h.v.day.jobs { // order-free: each by itself
				if idle[j.record.SubmittedBy] > 0 {
					j.verdict.Waiting = nil
				}
			}
		}
		h.v.day.sampleShares()
		for _, j := range h.v.day.jobs { // order-free: each by itself
			j.changed = n == 100
		}
		time.Sleep(sampleInterval) // in-bubble: the tests make one
	}
}

// TestFairChecker has users who hold their fair shares, or more or less than them by more than 5 %.
func TestFairChecker(t *testing.T) {
	for _, tt := range []struct {
		name        string
		parts, idle map[string]float64
		breaches    int
		shares      int // that are known
	}{
		{"fair", nil, nil, 0, 5},
		{"one holds less", map[string]float64{"eve": 0.93}, nil, 1, 5},
		{"one holds more", map[string]float64{"ann": 1.07}, nil, 1, 5},
		{"one holds little by choice", map[string]float64{"ann": 0.2}, map[string]float64{"ann": 1}, 0, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHistoryWriter(3)
			h.holdFairly(tt.parts, tt.idle)
			breaches, shares := 0, 0
			for _, v := range h.v.breaches {
				if v.Invariant == "fair-share" {
					breaches++
				}
			}
			for _, of := range h.v.day.summary().Shares {
				if len(of) == 1 && !math.IsNaN(of[0]) {
					shares++
				}
			}
			if breaches != tt.breaches || shares != tt.shares {
				t.Errorf("%s: %d breaches and %d shares, want %d and %d: %v %v", tt.name, breaches, shares, tt.breaches,
					tt.shares, h.v.day.summary().Shares, h.v.breaches)
			}
		})
	}
}

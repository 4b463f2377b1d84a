package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/sim/ci"
)

const (
	// fairNodes is the number of nodes in the pool with the fair queue, the last ones.
	fairNodes = 8
	// fairBacklog is the number of waiting tasks below which a user of the fair queue submits another job. It suffices
	// while no server answers.
	fairBacklog = 12
	// fairBegin is when the first hour of fair shares begins. The queue has filled its nodes by then.
	fairBegin = 5 * time.Minute
	// fairRest is how long the last jobs in the fair queue may take to end.
	fairRest = 30 * time.Minute
	// fairPatience is how often users of the fair queue look at their jobs.
	fairPatience = 5 * time.Second
)

// setUpPools writes the pools of the nodes.
func (f *fleet) setUpPools() {
	for _, p := range ci.Pools() {
		f.putRecord(prefix.Pool(p.Name), p)
	}
	for i, n := range f.nodes {
		h := cluster.Host{Name: n.name, Pool: ci.MainPool}
		if i >= len(f.nodes)-fairNodes {
			h.Pool = ci.FairPool
			n.devices = findFairDevices
		}
		f.user.hosts[n.name] = h
		f.putRecord(prefix.Host(n.name), h)
	}
}

// findFairDevices returns the devices of a node in the pool with the fair queue.
func findFairDevices(context.Context) (found []devices.Device, err error) {
	for i := range ci.FairDevices {
		found = append(found, devices.Device{Device: cluster.Device{
			ID: fmt.Sprintf("%s-%02d", ci.FairDeviceType, i), Type: ci.FairDeviceType, Numa: -1,
		}})
	}
	return found, nil
}

// actFairly submits the jobs of a user of the fair queue, until the last hour of fair shares has ended.
func (d *day) actFairly(ctx context.Context, u *ci.FairUser) {
	for n := 0; time.Since(d.began) < d.checker.fair.end(); {
		if u.Every > 0 || d.checker.waitingOf(u) < fairBacklog {
			job := u.Job(n)
			d.carryOut(ctx, &ci.Act{Verb: ci.Submit, Cluster: u.Cluster, Job: job.Name, Spec: job})
			n++
		}
		if pause.For(ctx, max(fairPatience, u.Every)) != nil {
			return
		}
	}
	d.leave()
}

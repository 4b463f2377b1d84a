package clitest

import (
	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// BusyTasks returns the tasks of three services and a job, with their resource use.
func BusyTasks() []api.TaskView {
	task := func(owner, id, node string, cpu cluster.MilliCPU, memory cluster.Bytes,
		d *cluster.UseDetail,
	) api.TaskView {
		v := api.TaskView{
			ID: cluster.TaskID("default." + id), Node: node, State: cluster.StateRunning, Health: cluster.HealthHealthy,
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: owner},
			Used:  &cluster.TaskStats{CPU: cpu, Memory: memory, Requests: -1, Detail: d},
		}
		return v
	}
	rates := func(throttled float64, in, out, read, written cluster.Bytes) cluster.Rates {
		return cluster.Rates{
			Throttled: throttled, Stall: &cluster.StallRates{CPU: throttled},
			Network: &cluster.NetworkRates{Received: in, Sent: out},
			Disk:    &cluster.DiskRates{Read: read, Written: written},
		}
	}
	web := task("web", "web.1.0", "n1", 1250, 300*cluster.MiB, &cluster.UseDetail{
		Rates: rates(12, 4*cluster.MiB, 9*cluster.MiB, 0, 12*cluster.KiB),
		Containers: []cluster.ContainerUse{
			{Name: "main", CPU: 1200, Memory: 290 * cluster.MiB, Rates: rates(12, 4*cluster.MiB, 9*cluster.MiB, 0, 0)},
			{
				Name: "proxy", CPU: 50, Memory: 10 * cluster.MiB,
				Rates: rates(0, 4*cluster.MiB, 9*cluster.MiB, 0, 12*cluster.KiB),
			},
		},
	})
	web.Used.Requests, web.Used.Growth = 240, 3*cluster.MiB
	host := task("cache", "cache.1.0", "n2", 40, 2*cluster.GiB,
		&cluster.UseDetail{Rates: cluster.Rates{HostNetwork: true, Disk: &cluster.DiskRates{Read: 7 * cluster.MiB}}})
	old := task("old", "old.1.0", "n3", 5, cluster.MiB, nil) // its agent reports no details
	job := task("batch", "batch.1.all.0", "n2", 2000, 100*cluster.MiB,
		&cluster.UseDetail{Rates: rates(0, 0, 0, 0, 90*cluster.MiB)})
	job.Owner.Kind = cluster.KindJob
	starts := api.TaskView{ID: "default.web.1.1", Node: "n2", State: cluster.StateRunning, Owner: web.Owner}
	return []api.TaskView{host, job, old, starts, web}
}

package usage

import (
	"maps"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/telemetry"
)

// detailInterval is how often throttling, stalls, network and disks of each attempt are read: half a dozen files for a
// container. The first reading comes immediately, the second soon. The readings of a node's attempts are spread over
// the interval.
const detailInterval = 10 * time.Second

// detailed holds the newest counters of an attempt's containers.
type detailed struct {
	counts   map[executor.ID]counterReading
	due      time.Duration // when they are read next (Boot)
	readings int
	detail   *cluster.UseDetail
}

// counterReading holds the kernel counters of one container and their time (Boot).
type counterReading struct {
	cluster.Counts
	at    time.Duration
	rates cluster.Rates
}

// readDetails reads the counters of the attempts that are due, by container.
func (m *TaskMeter) readDetails(found []measured, now time.Duration) map[executor.ID]cluster.Counts {
	running := map[string]map[executor.ID]executor.Process{} // by executor
	for i := range found {
		r := &found[i].view.Record
		if u := m.all[r.Desired.UUID]; u != nil && now < u.detailed.due {
			continue
		}
		for j := range r.Containers {
			c := &r.Containers[j]
			if c.Progress != attempt.Running {
				continue
			}
			if running[r.Executor] == nil {
				running[r.Executor] = map[executor.ID]executor.Process{}
			}
			running[r.Executor][c.ID] = c.Process
		}
	}
	var counts map[executor.ID]cluster.Counts
	for name, runs := range running { // order-free: ids are unique
		e, err := m.Executors.ByName(name)
		if err != nil {
			continue
		}
		d, ok := e.(executor.Detailer)
		if !ok {
			continue
		}
		if counts == nil {
			counts = map[executor.ID]cluster.Counts{}
		}
		maps.Copy(counts, d.Details(runs))
	}
	return counts
}

// update stores new counters of an attempt's containers and computes its detail. position spreads the attempts of a
// node over time.
func (d *detailed) update(v *attempt.View, use map[executor.ID]executor.Usage, cpu map[executor.ID]cluster.MilliCPU,
	counts map[executor.ID]cluster.Counts, now time.Duration, position int,
) {
	if now < d.due {
		return
	}
	d.readings++
	d.due = now + detailInterval
	if d.readings <= 1 {
		d.due = now + measureInterval*time.Duration(1+position%int(detailInterval/measureInterval))
	}
	kept := make(map[executor.ID]counterReading, len(v.Record.Containers))
	for i := range v.Record.Containers {
		id := v.Record.Containers[i].ID
		c, ok := counts[id]
		if !ok {
			continue
		}
		next := counterReading{Counts: c, at: now}
		if before, was := d.counts[id]; was {
			next.rates = c.Since(before.Counts, now-before.at)
		}
		kept[id] = next
	}
	d.counts = kept
	if d.readings > 1 {
		d.detail = detailOf(v, kept, use, cpu)
	}
}

// detailOf sums the containers of an attempt, nil if none has counters.
func detailOf(v *attempt.View, all map[executor.ID]counterReading, use map[executor.ID]executor.Usage,
	cpu map[executor.ID]cluster.MilliCPU,
) *cluster.UseDetail {
	if len(all) == 0 {
		return nil
	}
	d := &cluster.UseDetail{}
	seen := map[uint64]bool{}
	for i := range v.Record.Containers {
		id := v.Record.Containers[i].ID
		c, ok := all[id]
		if !ok {
			continue
		}
		shared := false
		if n := c.Network; n != nil {
			shared = seen[n.Namespace]
			seen[n.Namespace] = true
		}
		d.Rates = d.With(c.rates, shared)
		if len(v.Record.Containers) > 1 {
			d.Containers = append(d.Containers, cluster.ContainerUse{
				Name: v.NameOf(i), CPU: cpu[id], Memory: use[id].Memory, Rates: c.rates,
			})
		}
	}
	return d
}

// samples returns the total use of each container since its start, for metrics, in the order of found.
func (m *TaskMeter) samples(found []measured, use map[executor.ID]executor.Usage) (all []telemetry.ContainerSample) {
	for i := range found {
		v := found[i].view
		d := &v.Record.Desired
		u, first := m.all[d.UUID], true
		for j := range v.Record.Containers {
			id := v.Record.Containers[j].ID
			used, ok := use[id]
			if !ok || u == nil {
				continue
			}
			s := telemetry.ContainerSample{
				Cluster: d.Owner.Cluster, Task: d.Task, Container: v.NameOf(j), CPU: used.CPU, Memory: used.Memory,
				Counts: u.detailed.counts[id].Counts,
			}
			if first && u.storage != nil {
				s.Volumes = u.storage.Volumes
			}
			first = false
			if d.Owner.Kind == cluster.KindJob {
				s.Job = d.Owner.Name
			} else {
				s.Service = d.Owner.Name
			}
			all = append(all, s)
		}
	}
	return all
}

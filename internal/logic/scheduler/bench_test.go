package scheduler_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// benchFleet returns nodes of three sizes in four zones, each with some load.
func benchFleet(nodes int) *scheduler.Fleet {
	f := scheduler.NewFleet()
	for i := range nodes {
		size := 1 << (i % 3)
		f.SetNode(scheduler.Node{
			Name: fmt.Sprintf("node-%05d", i), State: cluster.NodeReady, Arch: "amd64", Kernel: "6.1.0-18-amd64",
			Executors: []string{"containerd", "process"},
			Labels:    cluster.Labels{"zone": string("abcd"[i%4]), "rack": fmt.Sprint(i % 25)},
			Capacity: cluster.Demand{
				CPU:    cluster.MilliCPU(8000 * size),
				Memory: 32 * cluster.GiB * cluster.Bytes(size),
				Disk:   500 * cluster.GiB,
			},
		})
		f.Reserve(scheduler.Reservation{
			UUID: fmt.Sprint("load-", i), Task: cluster.ServiceTask("c", "load", 1, i),
			Node:   fmt.Sprintf("node-%05d", i),
			Demand: cluster.Demand{CPU: cluster.MilliCPU(i % 7 * 100), Memory: cluster.GiB * cluster.Bytes(i%5)},
		})
	}
	return f
}

// benchTasks returns tasks of that many owners with different demands.
func benchTasks(tasks, owners int, strategy cluster.Strategy) []cluster.Pending {
	pending := make([]cluster.Pending, 0, tasks)
	for i := range tasks {
		owner := i * owners / tasks
		pending = append(pending, cluster.Pending{
			Task:      cluster.ServiceTask("c", fmt.Sprintf("o%d", owner), 1, i),
			Attempt:   1,
			Owner:     cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: fmt.Sprintf("o%d", owner)},
			Priority:  500,
			Placement: cluster.Placement{Strategy: strategy},
			Demand: cluster.Demand{
				CPU:    cluster.MilliCPU(100 + owner%5*50),
				Memory: cluster.Bytes(128+owner%3*64) * cluster.MiB,
			},
			NeedsImage: true,
			Since:      time.Unix(1_700_000_000, 0),
		})
	}
	return pending
}

// oddTasks returns tasks of one owner each, all with different demands.
func oddTasks(tasks int, strategy cluster.Strategy) []cluster.Pending {
	pending := benchTasks(tasks, tasks, strategy)
	for i := range pending {
		pending[i].Demand = cluster.Demand{
			CPU:    cluster.MilliCPU(50 + i*7919%997),
			Memory: cluster.Bytes(64+i*104729%1009) * cluster.MiB,
		}
	}
	return pending
}

// rackTasks returns tasks of 20 owners that want to be even over 25 racks.
func rackTasks(tasks int) []cluster.Pending {
	pending := benchTasks(tasks, 20, cluster.StrategySpread)
	for i := range pending {
		pending[i].Count = tasks / 20
		pending[i].Placement.Spread = []cluster.Spread{{Attribute: "label.rack"}}
	}
	return pending
}

// mixedTasks returns tasks of 200 owners in alternation, with all kinds of demands: strategies, constraints, ports and
// anti-affinity.
func mixedTasks(tasks int) []cluster.Pending {
	pending := benchTasks(tasks, 200, "")
	for i := range pending {
		p, owner := &pending[i], i*200/tasks
		p.Since = p.Since.Add(time.Duration(i%50) * time.Second)
		if owner%2 == 0 {
			p.Placement.Strategy = cluster.StrategyBinpack
		}
		if owner%3 == 0 {
			p.Placement.Constraints = []cluster.Constraint{{Attribute: "label.zone", Value: string("abcd"[owner%4])}}
		}
		if owner%4 == 0 {
			p.Ports = []cluster.Port{{Name: "http"}}
		}
		if owner%5 == 0 {
			p.Placement.AntiAffinity = cluster.AntiAffinityDemand
		}
	}
	return pending
}

// BenchmarkSchedule measures whole cycles. A decision is a task that was placed or given a reason.
func BenchmarkSchedule(b *testing.B) {
	for _, load := range []struct {
		name  string
		tasks int
		make  func(tasks int) []cluster.Pending
	}{
		{"binpack", 100_000, func(tasks int) []cluster.Pending {
			return benchTasks(tasks, 20, cluster.StrategyBinpack)
		}},
		{"spread", 100_000, func(tasks int) []cluster.Pending { return benchTasks(tasks, 20, cluster.StrategySpread) }},
		{"racks", 100_000, rackTasks},
		{"mixed", 10_000, mixedTasks},
		{"small", 10_000, func(tasks int) []cluster.Pending {
			return benchTasks(tasks, tasks/10, cluster.StrategySpread)
		}},
		{"singles", 10_000, func(tasks int) []cluster.Pending { return oddTasks(tasks, cluster.StrategySpread) }},
		{"singles-binpack", 10_000, func(tasks int) []cluster.Pending {
			return oddTasks(tasks, cluster.StrategyBinpack)
		}},
		{"singles-whole", 10_000, func(tasks int) []cluster.Pending { return oddTasks(tasks, cluster.StrategyWhole) }},
	} {
		for _, nodes := range []int{1000, 10_000, 100_000} {
			tasks := min(load.tasks, 20*nodes)
			b.Run(fmt.Sprintf("nodes=%d/tasks=%d/%s", nodes, tasks, load.name), func(b *testing.B) {
				f, pending := benchFleet(nodes), load.make(tasks)
				b.ReportAllocs()
				placed := 0
				for b.Loop() {
					placed += len(scheduler.Schedule(f, pending, scheduler.Options{}).Placements)
				}
				b.ReportMetric(float64(tasks*b.N)/b.Elapsed().Seconds(), "decisions/s")
				b.ReportMetric(float64(placed)/float64(tasks*b.N), "placed/decision")
			})
		}
	}
}

// hostFleet is benchFleet with a label that is unique to each node.
func hostFleet(nodes int) *scheduler.Fleet {
	f := benchFleet(nodes)
	for _, name := range f.Nodes() {
		n, _, _ := f.Node(name)
		n.Labels = maps.Clone(n.Labels)
		n.Labels["host"] = name
		f.SetNode(n)
	}
	return f
}

// deviceFleet is benchFleet with eight devices on each node, and the value model of deviceTasks.
func deviceFleet(nodes int) *scheduler.Fleet {
	f := benchFleet(nodes)
	for _, name := range f.Nodes() {
		n, _, _ := f.Node(name)
		for i := range 8 { // benchFleet's nodes have no devices
			n.Devices = append(n.Devices, cluster.Device{ID: fmt.Sprint("g", i), Type: "gpu", Model: "A", Numa: i / 4})
		}
		f.SetNode(n)
	}
	var mix scheduler.Mix
	for _, p := range deviceTasks(1000, 1000) {
		mix.Learn(p.Demand, p.Devices, 1)
	}
	f.SetDeviceValueModel(mix.ValueModel())
	return f
}

// deviceTasks returns tasks of so many owners that request a device, most of them a share of one.
func deviceTasks(tasks, owners int) []cluster.Pending {
	pending := benchTasks(tasks, owners, cluster.StrategyWhole)
	for i := range pending {
		owner := i * owners / tasks
		r := cluster.DeviceRequest{Share: []int{0, 100, 250, 500, 0, 800}[owner%6]}
		pending[i].Demand = cluster.Demand{
			CPU:    cluster.MilliCPU(300 + owner%97*10),
			Memory: cluster.Bytes(512+owner%89*16) * cluster.MiB,
		}
		pending[i].Devices = []cluster.DeviceRequest{r}
	}
	return pending
}

// changed returns replicas of 20 owners, each modified by change.
func changed(tasks int, change func(p *cluster.Pending, i int)) []cluster.Pending {
	pending := benchTasks(tasks, 20, cluster.StrategySpread)
	for i := range pending {
		pending[i].Count = tasks / 20
		change(&pending[i], i)
	}
	return pending
}

// BenchmarkFineSchedule measures whole cycles where the index helps least. Each of 10,000 nodes has a unique label, and
// tasks require that label, for node names, or for devices. The first three workloads are those of BenchmarkSchedule.
func BenchmarkFineSchedule(b *testing.B) {
	const nodes = 10_000
	spread := func(attribute string, skew int) func(tasks int) []cluster.Pending {
		return func(tasks int) []cluster.Pending {
			return changed(tasks, func(p *cluster.Pending, _ int) {
				p.Placement.Spread = []cluster.Spread{{Attribute: attribute, MaxSkew: skew}}
			})
		}
	}
	for _, load := range []struct {
		name  string
		tasks int
		fleet func(nodes int) *scheduler.Fleet
		make  func(tasks int) []cluster.Pending
	}{
		{"binpack", 100_000, hostFleet, func(tasks int) []cluster.Pending {
			return benchTasks(tasks, 20, cluster.StrategyBinpack)
		}},
		{"racks", 100_000, hostFleet, rackTasks},
		{"singles", 10_000, hostFleet, func(tasks int) []cluster.Pending {
			return oddTasks(tasks, cluster.StrategySpread)
		}},
		{"host-equal", 10_000, hostFleet, func(tasks int) []cluster.Pending {
			pending := oddTasks(tasks, cluster.StrategySpread)
			for i := range pending {
				pending[i].Placement.Constraints = []cluster.Constraint{
					{Attribute: "label.host", Value: fmt.Sprintf("node-%05d", i%nodes)},
				}
			}
			return pending
		}},
		{"host-distinct", 10_000, hostFleet, func(tasks int) []cluster.Pending {
			return changed(tasks, func(p *cluster.Pending, _ int) {
				p.Placement.Distinct = []cluster.Distinct{{Attribute: "label.host"}}
			})
		}},
		{"host-spread", 10_000, hostFleet, spread("label.host", 0)},
		{"host-skew", 10_000, hostFleet, spread("label.host", 1)},
		{"name-skew", 10_000, hostFleet, spread("node.name", 1)},
		{"name-skew-singles", 1000, hostFleet, func(tasks int) []cluster.Pending {
			pending := oddTasks(tasks, cluster.StrategySpread)
			for i := range pending {
				pending[i].Count, pending[i].Placement.Spread = 1,
					[]cluster.Spread{{Attribute: "node.name", MaxSkew: 1}}
			}
			return pending
		}},
		{"devices", 20_000, deviceFleet, func(tasks int) []cluster.Pending { return deviceTasks(tasks, 20) }},
		{"devices-singles", 1000, deviceFleet, func(tasks int) []cluster.Pending { return deviceTasks(tasks, tasks) }},
	} {
		b.Run(fmt.Sprintf("nodes=%d/tasks=%d/%s", nodes, load.tasks, load.name), func(b *testing.B) {
			f, pending := load.fleet(nodes), load.make(load.tasks)
			b.ReportAllocs()
			placed := 0
			for b.Loop() {
				placed += len(scheduler.Schedule(f, pending, scheduler.Options{}).Placements)
			}
			b.ReportMetric(float64(load.tasks*b.N)/b.Elapsed().Seconds(), "decisions/s")
			b.ReportMetric(float64(placed)/float64(load.tasks*b.N), "placed/decision")
		})
	}
}

// BenchmarkWaiting measures a cycle in which no task finds a node, and each gets a reason.
func BenchmarkWaiting(b *testing.B) {
	for _, nodes := range []int{1000, 10_000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			f, pending := benchFleet(nodes), oddTasks(1000, cluster.StrategySpread)
			for i := range pending {
				pending[i].Demand.CPU += 33_000
			}
			b.ReportAllocs()
			for b.Loop() {
				scheduler.Schedule(f, pending, scheduler.Options{})
			}
			b.ReportMetric(float64(len(pending)*b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}

// BenchmarkScheduleOne measures the cycle for a single task, a different one each time, on a fleet that keeps the
// placements. p99-ns is the 99th percentile of the duration. p99-cpu-ns is the same of the thread's processor time,
// which other programs hardly affect.
func BenchmarkScheduleOne(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		for _, strategy := range []cluster.Strategy{cluster.StrategySpread, cluster.StrategyBinpack} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, strategy), func(b *testing.B) {
				scheduleOne(b, benchFleet(nodes), oddTasks(4096, strategy))
			})
		}
	}
}

// scheduleOne schedules and reserves one task after the other. A task's earlier reservation is released when its turn
// comes again.
func scheduleOne(b *testing.B, f *scheduler.Fleet, pending []cluster.Pending) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took, used []time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		one := pending[i%len(pending) : i%len(pending)+1]
		f.Release(string(one[0].Task))
		began, before := time.Now(), processorTime(b)
		r := scheduler.Schedule(f, one, scheduler.Options{})
		took, used = append(took, time.Since(began)), append(used, processorTime(b)-before)
		for j := range r.Placements {
			f.Reserve(r.Placements[j].Reservation(&one[0], string(one[0].Task)))
		}
	}
	slices.Sort(took)
	slices.Sort(used)
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	b.ReportMetric(float64(used[len(used)*99/100]), "p99-cpu-ns")
}

// processorTime returns the processor time of the thread. getrusage would be as coarse as the kernel's ticks.
func processorTime(b testing.TB) time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)),
		0); errno != 0 {
		b.Fatal(errno)
	}
	return time.Duration(t.Nano())
}

// busyDevices is deviceFleet with devices in use, in whole and in part, together with CPU and memory.
func busyDevices(nodes int) *scheduler.Fleet {
	f := deviceFleet(nodes)
	for i := range nodes {
		r := scheduler.Reservation{
			UUID: fmt.Sprint("busy-", i), Task: cluster.ServiceTask("c", "busy", 1, i),
			Node: fmt.Sprintf("node-%05d", i),
			Demand: cluster.Demand{
				CPU:    cluster.MilliCPU(i * 7919 % 7000),
				Memory: cluster.Bytes(i*104729%20_000) * cluster.MiB,
			},
		}
		for d := range i * 31 % 7 {
			r.Devices = append(r.Devices,
				cluster.DeviceUse{ID: fmt.Sprint("g", d), Share: []int{1000, 250, 500}[(i+d*d)%3]})
		}
		f.Reserve(r)
	}
	return f
}

// BenchmarkScheduleDevices is BenchmarkScheduleOne for tasks that request devices.
func BenchmarkScheduleDevices(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		for _, strategy := range []cluster.Strategy{cluster.StrategyWhole, cluster.StrategySpread} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, strategy), func(b *testing.B) {
				const kept = 4096
				pending := deviceTasks(kept, kept)
				for i := range pending {
					pending[i].Placement.Strategy = strategy
				}
				scheduleOne(b, busyDevices(nodes), pending)
			})
		}
	}
}

// BenchmarkReserve measures the upkeep of a fleet: one Reserve and one Release.
func BenchmarkReserve(b *testing.B) {
	f := benchFleet(1000)
	r := scheduler.Reservation{
		UUID: "u", Task: "c.web.1.0", Node: "node-00500",
		Demand: cluster.Demand{CPU: 100, Memory: cluster.GiB}, Ports: []int{8080, 30123},
	}
	b.ReportAllocs()
	for b.Loop() {
		f.Reserve(r)
		f.Release(r.UUID)
	}
}

// crowded is 10,000 full nodes with 100,000 victims of five priorities and three sizes.
func crowded(b *testing.B) scheduler.PreemptInput {
	b.Helper()
	in := scheduler.PreemptInput{Fleet: scheduler.NewFleet(), Spare: map[cluster.OwnerRef]int{}}
	in.Fleet.Grow(100_000)
	for n := range 10_000 {
		node := scheduler.Node{
			Name: fmt.Sprintf("n%05d", n), State: cluster.NodeReady, Executors: []string{"process"},
			Labels:   cluster.Labels{"rack": fmt.Sprint(n % 25)},
			Capacity: cluster.Demand{CPU: 10_000, Memory: 64 * cluster.GiB, Disk: cluster.TiB},
		}
		in.Fleet.SetNode(node)
		for i := range 10 {
			k := n*10 + i
			owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: fmt.Sprint("s", k%1000)}
			in.Spare[owner] = 40
			priority := 100 + 10*(k*7919%5)
			uuid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", k*2654435761%4294967291)
			in.Fleet.Reserve(scheduler.Reservation{
				UUID: uuid, Task: cluster.ServiceTask("c", owner.Name, 1, k),
				Definition: cluster.Ref{Name: "w", Version: 1}, Node: node.Name,
				Priority: priority, Demand: cluster.Demand{
					CPU:    []cluster.MilliCPU{500, 1000, 1500}[(k+n)%3],
					Memory: cluster.Bytes(1+k%4) * cluster.GiB,
				},
			})
			in.Victims = append(in.Victims, scheduler.Victim{UUID: uuid, Priority: priority, Owner: owner})
		}
	}
	return in
}

// BenchmarkPreempt measures one call for 100 waiting tasks, with 10,000 nodes and 100,000 possible victims.
func BenchmarkPreempt(b *testing.B) {
	for _, bench := range []struct {
		name    string
		kinds   int
		demand  cluster.Demand
		spread  bool
		nowhere bool
	}{
		{name: "identical", kinds: 1, demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB}},
		{name: "identical, of half a node", kinds: 1, demand: cluster.Demand{CPU: 5000, Memory: 20 * cluster.GiB}},
		{
			name: "identical, spread over racks", kinds: 1, demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB},
			spread: true,
		},
		{name: "all different", kinds: 100, demand: cluster.Demand{CPU: 1000, Memory: 4 * cluster.GiB}},
		{name: "too large for any node", kinds: 1, demand: cluster.Demand{CPU: 20_000}, nowhere: true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			in := crowded(b)
			for i := range 100 {
				p := cluster.Pending{
					Task: cluster.ServiceTask("c", fmt.Sprint("urgent", i%bench.kinds), 1, i), Priority: 500,
					Attempt: 1, Count: 100,
					Definition: cluster.Ref{Name: "u", Version: 1},
					Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c"}, Demand: bench.demand,
				}
				p.Demand.CPU += cluster.MilliCPU(i % bench.kinds)
				if bench.spread {
					p.Placement.Spread = []cluster.Spread{{Attribute: "label.rack", MaxSkew: 2}}
				}
				in.Waiting = append(in.Waiting, p)
			}
			for b.Loop() {
				if got := scheduler.Preempt(in, scheduler.Options{}); len(got) != 100 && !bench.nowhere {
					b.Fatalf("%d of 100 find room", len(got))
				}
			}
		})
	}
}

// BenchmarkPromises measures a cycle in which waiting tasks of jobs get promises: 5,000 full nodes with 100,000 running
// tasks, with and without limits, and 64 waiting jobs with different requests.
func BenchmarkPromises(b *testing.B) {
	for _, c := range []struct {
		name   string
		policy cluster.QueuePolicy
		limit  time.Duration
	}{
		{"greedy", cluster.QueueGreedy, time.Minute},
		{"easy", cluster.QueueEASY, time.Minute},
		{"easy without limits", cluster.QueueEASY, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			nodes := make([]int, 5000)
			for i := range nodes {
				nodes[i] = 20
			}
			q := newBatch(nodes...)
			for i := range 100_000 {
				q.submit(c.policy, cluster.DefaultPriority, 1, time.Hour, time.Duration(1+i%600)*c.limit)
			}
			q.step()
			for i := range 64 {
				q.submit(c.policy, cluster.DefaultPriority, 2+i%10, time.Hour, time.Duration(1+i)*time.Minute)
			}
			if len(q.waiting) != 64 {
				b.Fatalf("%d tasks wait, want 64", len(q.waiting))
			}
			for b.Loop() {
				scheduler.Schedule(q.fleet, q.waiting, scheduler.Options{Now: q.now})
			}
		})
	}
}

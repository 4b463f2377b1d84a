package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

const (
	tasksPerNode = 10
	// perCycle limits the tasks of one cycle: of owners with many equal tasks, and of different tasks.
	perCycle, oddPerCycle = 100_000, 10_000
	singles               = 4096 // tasks in cycles of their own
)

// measure fills fleets of that many nodes, and returns a row of decided.
func measure(nodes int) []float64 {
	tasks := nodes * tasksPerNode
	f := newFleet(nodes)
	replicas := fill(f, tasks, perCycle, func(i int) cluster.Pending { return task(i/(tasks/20), i) })
	p50, p99 := alone(f) // on the fleet that is full of tasks
	racks := fill(newFleet(nodes), tasks, perCycle, func(i int) cluster.Pending {
		p := task(i/(tasks/20), i)
		p.Count, p.Placement.Strategy = tasks/20, cluster.StrategySpread
		p.Placement.Spread = []cluster.Spread{{Attribute: "label.rack"}}
		return p
	})
	different := fill(newFleet(nodes), tasks, oddPerCycle, odd)
	return []float64{
		float64(nodes), float64(tasks), math.Round(replicas), math.Round(racks), math.Round(different),
		math.Round(micros(p50)*10) / 10, math.Round(micros(p99)*10) / 10,
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// newFleet returns empty nodes of three sizes in four zones and 25 racks.
func newFleet(nodes int) *scheduler.Fleet {
	f := scheduler.NewFleet()
	f.Grow(nodes * tasksPerNode)
	for i := range nodes {
		size := 1 << (i % 3)
		f.SetNode(scheduler.Node{
			Name: fmt.Sprintf("node-%06d", i), State: cluster.NodeReady, Arch: "amd64",
			Executors: []string{"containerd"},
			Labels:    cluster.Labels{"zone": string("abcd"[i%4]), "rack": strconv.Itoa(i % 25)},
			Capacity: cluster.Demand{
				CPU: cluster.MilliCPU(8000 * size), Memory: 32 * cluster.GiB * cluster.Bytes(size),
				Disk: 500 * cluster.GiB,
			},
		})
	}
	return f
}

func task(owner, i int) cluster.Pending {
	name := "o" + strconv.Itoa(owner)
	return cluster.Pending{
		Task: cluster.ServiceTask("c", name, 1, i), Attempt: 1, Priority: 500, NeedsImage: true,
		Owner:     cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name},
		Placement: cluster.Placement{Strategy: cluster.StrategyBinpack},
		Demand: cluster.Demand{
			CPU:    cluster.MilliCPU(100 + owner%5*50),
			Memory: cluster.Bytes(128+owner%3*64) * cluster.MiB,
		},
	}
}

// odd returns a task of an owner of its own with a rare request.
func odd(i int) cluster.Pending {
	p := task(i, i)
	p.Placement.Strategy = cluster.StrategySpread
	p.Demand = cluster.Demand{
		CPU:    cluster.MilliCPU(50 + i*7919%997),
		Memory: cluster.Bytes(64+i*104729%1009) * cluster.MiB,
	}
	return p
}

// fill places tasks, that many in a cycle, and returns the number of decisions in a second of processor time. This
// includes the garbage collection, and depends little on other work of the machine.
func fill(f *scheduler.Fleet, tasks, most int, task func(i int) cluster.Pending) float64 {
	var took time.Duration
	for begin := 0; begin < tasks; begin += most {
		var pending []cluster.Pending
		for i := begin; i < min(begin+most, tasks); i++ {
			pending = append(pending, task(i))
		}
		runtime.GC() // what came before is not counted
		began := spent(wholeProcess)
		r := scheduler.Schedule(f, pending, scheduler.Options{})
		took += spent(wholeProcess) - began
		for i := range r.Placements {
			p := &r.Placements[i]
			f.Reserve(p.Reservation(&pending[p.Pending], string(p.Task)))
		}
	}
	return float64(tasks) / took.Seconds()
}

// The clocks of the counted processor time.
const wholeProcess, oneThread = unix.CLOCK_PROCESS_CPUTIME_ID, unix.CLOCK_THREAD_CPUTIME_ID

// spent returns the processor time that was used so far.
func spent(whose int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(whose, &t); err != nil {
		panic(err) // it fails only for an unknown clock
	}
	return time.Duration(t.Nano())
}

// alone places different tasks in cycles of their own, on a fleet that keeps them. It returns the median and the 99th
// percentile of their times.
func alone(f *scheduler.Fleet) (p50, p99 time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []time.Duration
	for i := range singles {
		one := []cluster.Pending{odd(i)}
		one[0].Task = cluster.ServiceTask("alone", one[0].Owner.Name, 1, i)
		began := spent(oneThread)
		r := scheduler.Schedule(f, one, scheduler.Options{})
		took = append(took, spent(oneThread)-began)
		for j := range r.Placements {
			f.Reserve(r.Placements[j].Reservation(&one[0], string(one[0].Task)))
		}
	}
	slices.Sort(took)
	return took[singles/2], took[singles*99/100]
}

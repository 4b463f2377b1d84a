package telemetry

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/cluster"
)

// ContainerSample is the resource usage of one container of a node since its program began.
type ContainerSample struct {
	Cluster string
	// Service or Job is the owner's name; the other is empty.
	Service, Job string
	Task         cluster.TaskID
	Container    string
	cluster.Counts
	CPU    time.Duration
	Memory cluster.Bytes
	// Volumes are the task's volumes that its agent keeps. Only the first container of a task has them.
	Volumes []cluster.VolumeUse
}

// maxContainers limits the containers with metrics on a node, and so the series: fewer than 20 for each. Containers
// past it are left out, and a metric counts them.
const maxContainers = 1000

// Tasks holds the metrics of the tasks of a node. A scrape reads the last measurement and does not cause one. Safe for
// concurrent use.
type Tasks struct {
	counters, network []series
	memory, leftOut   *prometheus.Desc
	volumes           []volumeSeries

	mu  sync.Mutex
	all []ContainerSample
}

// series is one counter of a container; of returns false if it is not counted.
type series struct {
	desc *prometheus.Desc
	of   func(s *ContainerSample) (value float64, ok bool)
}

// volumeSeries is one gauge of a volume; of returns false if it is not known yet.
type volumeSeries struct {
	desc *prometheus.Desc
	of   func(v *cluster.VolumeUse) (value cluster.Bytes, ok bool)
}

// NewTasks registers the metrics of the tasks of a node.
func NewTasks(node string, registry prometheus.Registerer) *Tasks {
	// Prometheus has a label job of its own: what scraped it.
	task := []string{"cluster", "service", "job_name", "task"}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("berth_task_"+name, help, append(slices.Clone(task), labels...),
			prometheus.Labels{"node": node})
	}
	t := &Tasks{
		memory: describe("memory_bytes", "Memory in use, without the pages of files that the kernel would drop first.",
			"container"),
		leftOut: prometheus.NewDesc("berth_agent_containers_without_metrics",
			"Containers of the node that have no metrics, as there are too many.",
			nil, prometheus.Labels{"node": node}),
	}
	counter := func(name, help string, of func(s *ContainerSample) (float64, bool)) {
		t.counters = append(t.counters, series{describe(name, help, "container"), of})
	}
	counter("cpu_seconds_total", "How long the programs worked, of all CPUs together.",
		func(s *ContainerSample) (float64, bool) {
			return s.CPU.Seconds(), true
		})
	throttle := func(name, help string, of func(c *cluster.ThrottleCounts) float64) {
		counter(name, help, func(s *ContainerSample) (float64, bool) {
			if s.Throttle == nil {
				return 0, false
			}
			return of(s.Throttle), true
		})
	}
	throttle("cpu_periods_total", "Periods of the CPU limit in which the programs wanted to work.",
		func(c *cluster.ThrottleCounts) float64 { return float64(c.Periods) })
	throttle("cpu_throttled_periods_total", "Periods of the CPU limit in which it held the programs back.",
		func(c *cluster.ThrottleCounts) float64 { return float64(c.Throttled) })
	throttle("cpu_throttled_seconds_total", "How long the CPU limit held the programs back, of all threads together.",
		func(c *cluster.ThrottleCounts) float64 { return c.Time.Seconds() })
	stall := func(resource string, of func(c *cluster.StallCounts) time.Duration) {
		counter(resource+"_stalled_seconds_total",
			"How long some program waited for the resource (the kernel's pressure stall information).",
			func(s *ContainerSample) (float64, bool) {
				if s.Stall == nil {
					return 0, false
				}
				return of(s.Stall).Seconds(), true
			})
	}
	stall("cpu", func(c *cluster.StallCounts) time.Duration { return c.CPU })
	stall("memory", func(c *cluster.StallCounts) time.Duration { return c.Memory })
	stall("io", func(c *cluster.StallCounts) time.Duration { return c.IO })
	disk := func(name, help string, of func(c *cluster.DiskCounts) float64) {
		counter("disk_"+name, help, func(s *ContainerSample) (float64, bool) {
			if s.Disk == nil {
				return 0, false
			}
			return of(s.Disk), true
		})
	}
	disk("read_bytes_total", "Bytes that disks read for the programs.", func(c *cluster.DiskCounts) float64 {
		return float64(c.Read)
	})
	disk("written_bytes_total", "Bytes that disks wrote for the programs.", func(c *cluster.DiskCounts) float64 {
		return float64(c.Written)
	})
	disk("reads_total", "Operations in which disks read for the programs.", func(c *cluster.DiskCounts) float64 {
		return float64(c.Reads)
	})
	disk("writes_total", "Operations in which disks wrote for the programs.", func(c *cluster.DiskCounts) float64 {
		return float64(c.Writes)
	})
	t.addNetwork(describe)
	t.addVolumes(describe)
	registry.MustRegister(t)
	return t
}

// describer describes a metric of tasks, with labels in addition to the common ones.
type describer func(name, help string, labels ...string) *prometheus.Desc

func (t *Tasks) addNetwork(describe describer) {
	network := func(name, help string, of func(c *cluster.NetworkCounts) float64) {
		t.network = append(t.network, series{describe("network_"+name, help), func(s *ContainerSample) (float64, bool) {
			return of(s.Network), true
		}})
	}
	network("received_bytes_total", "Bytes that came over the task's own network.",
		func(c *cluster.NetworkCounts) float64 { return float64(c.Received) })
	network("sent_bytes_total", "Bytes that went over the task's own network.", func(c *cluster.NetworkCounts) float64 {
		return float64(c.Sent)
	})
	network("received_packets_total", "Packets that came over the task's own network.",
		func(c *cluster.NetworkCounts) float64 { return float64(c.PacketsIn) })
	network("sent_packets_total", "Packets that went over the task's own network.",
		func(c *cluster.NetworkCounts) float64 { return float64(c.PacketsOut) })
	network("failed_packets_total", "Packets that were dropped or damaged on the task's own network, both ways.",
		func(c *cluster.NetworkCounts) float64 {
			return float64(c.Dropped + c.Failures)
		})
}

func (t *Tasks) addVolumes(describe describer) {
	volume := func(name, help string, of func(v *cluster.VolumeUse) (cluster.Bytes, bool)) {
		t.volumes = append(t.volumes, volumeSeries{describe("volume_"+name, help, "volume"), of})
	}
	volume("used_bytes", "What the files of a volume take that the agent keeps for the task, as they were "+
		"last counted.", func(v *cluster.VolumeUse) (cluster.Bytes, bool) {
		return v.Used, !v.At.IsZero()
	})
	volume("size_bytes", "Size of the file system of the volume, or of its quota.",
		func(v *cluster.VolumeUse) (cluster.Bytes, bool) { return v.Size, v.Size > 0 })
	volume("free_bytes", "What is free of the file system of the volume, or of its quota.",
		func(v *cluster.VolumeUse) (cluster.Bytes, bool) { return v.Free, v.Size > 0 })
}

// Take replaces the last measurement. If a task has several attempts, the last in the list counts. It keeps the list.
func (t *Tasks) Take(all []ContainerSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = all
}

// Describe is part of prometheus.Collector.
func (t *Tasks) Describe(to chan<- *prometheus.Desc) {
	for _, s := range slices.Concat(t.counters, t.network) {
		to <- s.desc
	}
	for _, s := range t.volumes {
		to <- s.desc
	}
	to <- t.memory
	to <- t.leftOut
}

// Collect is part of prometheus.Collector.
func (t *Tasks) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	all := t.all
	t.mu.Unlock()
	type key struct {
		task      cluster.TaskID
		container string
	}
	last := make(map[key]int, len(all))
	for i := range all {
		last[key{all[i].Task, all[i].Container}] = i
	}
	shown := 0
	networks := map[cluster.TaskID][]int{} // where in the list each network namespace of a task is first named
	for i := range all {
		s := &all[i]
		if last[key{s.Task, s.Container}] != i {
			continue
		}
		if shown++; shown > maxContainers {
			continue
		}
		labels := []string{s.Cluster, s.Service, s.Job, string(s.Task)}
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64) {
			to <- prometheus.MustNewConstMetric(desc, kind, value, append(labels, s.Container)...)
		}
		for _, c := range t.counters {
			if value, ok := c.of(s); ok {
				send(c.desc, prometheus.CounterValue, value)
			}
		}
		send(t.memory, prometheus.GaugeValue, float64(s.Memory))
		for j := range s.Volumes {
			for _, g := range t.volumes {
				if value, ok := g.of(&s.Volumes[j]); ok {
					to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(value),
						append(labels, s.Volumes[j].Name)...)
				}
			}
		}
		if n := s.Network; n != nil && !slices.ContainsFunc(networks[s.Task], func(j int) bool {
			return all[j].Network.Namespace == n.Namespace
		}) {
			networks[s.Task] = append(networks[s.Task], i)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(networks)) {
		of := networks[task]
		first := &all[of[0]]
		for _, n := range t.network {
			sum := 0.0
			for _, i := range of {
				value, _ := n.of(&all[i])
				sum += value
			}
			to <- prometheus.MustNewConstMetric(n.desc, prometheus.CounterValue, sum, first.Cluster, first.Service,
				first.Job, string(task))
		}
	}
	to <- prometheus.MustNewConstMetric(t.leftOut, prometheus.GaugeValue, float64(max(shown-maxContainers, 0)))
}

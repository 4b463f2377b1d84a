package telemetry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/telemetry"
)

func TestTaskMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	tasks := telemetry.NewTasks("n1", registry)
	sample := func(container string, namespace uint64, cpu time.Duration) telemetry.ContainerSample {
		return telemetry.ContainerSample{
			Cluster: "c", Service: "web", Task: "c.web.1.0", Container: container, CPU: cpu, Memory: cluster.MiB,
			Counts: cluster.Counts{Network: &cluster.NetworkCounts{
				Namespace: namespace, Received: 100, Dropped: 1,
				Failures: 2,
			}},
		}
	}
	job := telemetry.ContainerSample{
		Cluster: "c", Job: "batch", Task: "c.batch.1.all.0", Container: "main", CPU: time.Second,
		Counts: cluster.Counts{
			HostNetwork: true, Throttle: &cluster.ThrottleCounts{
				Periods: 10, Throttled: 4,
				Time: 1500 * time.Millisecond,
			},
			Stall: &cluster.StallCounts{CPU: time.Second, Memory: 2 * time.Second, IO: 3 * time.Second},
			Disk:  &cluster.DiskCounts{Read: 1, Written: 2, Reads: 3, Writes: 4},
		},
	}
	kept := sample("side", 7, 0)
	kept.Volumes = []cluster.VolumeUse{
		{Name: "data", Used: 5, Size: 9, Free: 4, At: time.Unix(1, 0)},
		{Name: "new", Size: 9, Free: 4},
	}
	// Two containers share a network, one has its own, and one belongs to an attempt that another attempt represents.
	tasks.Take([]telemetry.ContainerSample{
		sample("app", 1, 99*time.Second), sample("app", 7, 2*time.Second), kept,
		sample("alone", 8, 0), job,
	})
	const want = `
# HELP berth_agent_containers_without_metrics Containers of the node that have no metrics, as there are too many.
# TYPE berth_agent_containers_without_metrics gauge
berth_agent_containers_without_metrics{node="n1"} 0
# HELP berth_task_cpu_seconds_total How long the programs worked, of all CPUs together.
# TYPE berth_task_cpu_seconds_total counter
berth_task_cpu_seconds_total{cluster="c",container="alone",job_name="",node="n1",service="web",task="c.web.1.0"} 0
berth_task_cpu_seconds_total{cluster="c",container="app",job_name="",node="n1",service="web",task="c.web.1.0"} 2
berth_task_cpu_seconds_total{cluster="c",container="main",job_name="batch",node="n1",service="",task="c.batch.1.all.0"} 1
berth_task_cpu_seconds_total{cluster="c",container="side",job_name="",node="n1",service="web",task="c.web.1.0"} 0
# HELP berth_task_cpu_throttled_seconds_total How long the CPU limit held the programs back, of all threads together.
# TYPE berth_task_cpu_throttled_seconds_total counter
berth_task_cpu_throttled_seconds_total{cluster="c",container="main",job_name="batch",node="n1",service="",task="c.batch.1.all.0"} 1.5
# HELP berth_task_io_stalled_seconds_total How long some program waited for the resource (the kernel's pressure stall information).
# TYPE berth_task_io_stalled_seconds_total counter
berth_task_io_stalled_seconds_total{cluster="c",container="main",job_name="batch",node="n1",service="",task="c.batch.1.all.0"} 3
# HELP berth_task_disk_writes_total Operations in which disks wrote for the programs.
# TYPE berth_task_disk_writes_total counter
berth_task_disk_writes_total{cluster="c",container="main",job_name="batch",node="n1",service="",task="c.batch.1.all.0"} 4
# HELP berth_task_network_received_bytes_total Bytes that came over the task's own network.
# TYPE berth_task_network_received_bytes_total counter
berth_task_network_received_bytes_total{cluster="c",job_name="",node="n1",service="web",task="c.web.1.0"} 200
# HELP berth_task_network_failed_packets_total Packets that were dropped or damaged on the task's own network, both ways.
# TYPE berth_task_network_failed_packets_total counter
berth_task_network_failed_packets_total{cluster="c",job_name="",node="n1",service="web",task="c.web.1.0"} 6
# HELP berth_task_volume_used_bytes What the files of a volume take that the agent keeps for the task, as they were last counted.
# TYPE berth_task_volume_used_bytes gauge
berth_task_volume_used_bytes{cluster="c",job_name="",node="n1",service="web",task="c.web.1.0",volume="data"} 5
# HELP berth_task_volume_free_bytes What is free of the file system of the volume, or of its quota.
# TYPE berth_task_volume_free_bytes gauge
berth_task_volume_free_bytes{cluster="c",job_name="",node="n1",service="web",task="c.web.1.0",volume="data"} 4
berth_task_volume_free_bytes{cluster="c",job_name="",node="n1",service="web",task="c.web.1.0",volume="new"} 4
`
	err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"berth_agent_containers_without_metrics", "berth_task_cpu_seconds_total",
		"berth_task_cpu_throttled_seconds_total", "berth_task_io_stalled_seconds_total",
		"berth_task_disk_writes_total", "berth_task_network_received_bytes_total",
		"berth_task_network_failed_packets_total",
		"berth_task_volume_used_bytes", "berth_task_volume_free_bytes")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("names or help are not as Prometheus wants them: %v, %v", problems, err)
	}
}

// A node has series of at most 1000 containers, and counts the others.
func TestTaskMetricsAreBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	tasks := telemetry.NewTasks("n1", registry)
	var all []telemetry.ContainerSample
	for i := range 1500 {
		all = append(all, telemetry.ContainerSample{
			Cluster: "c", Service: "s",
			Task: cluster.ServiceTask("c", "s", 1, i), Container: fmt.Sprint(i),
		})
	}
	tasks.Take(all)
	if n, err := testutil.GatherAndCount(registry, "berth_task_cpu_seconds_total"); n != 1000 || err != nil {
		t.Errorf("%d series, %v, want 1000", n, err)
	}
	const want = `
# HELP berth_agent_containers_without_metrics Containers of the node that have no metrics, as there are too many.
# TYPE berth_agent_containers_without_metrics gauge
berth_agent_containers_without_metrics{node="n1"} 500
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"berth_agent_containers_without_metrics"); err != nil {
		t.Error(err)
	}
}

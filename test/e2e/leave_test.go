package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// TestTasksLeaveNodes expects that a taint evicts tasks without failed requests, and that a job of high priority
// preempts tasks on full machines.
func TestTasksLeaveNodes(t *testing.T) {
	t.Parallel()
	harness.Either(t, harness.Process, func(t *testing.T, executor string) {
		w := newServiceFleet(t, executor, 1, 2)
		n1, n2 := w.Agents[0].Name, w.Agents[1].Name
		w.put(served{name: "web", version: 1, count: 3})
		w.completes("web", 1)

		// 1. A taint evicts the service's tasks, without a request being lost, and a job's, which run again elsewhere.
		w.Berth("node", "cordon", n2).Want(t, 0)
		w.job("batch", 300, 2, 1)
		w.runs("batch", 2, n1)
		w.Berth("node", "uncordon", n2).Want(t, 0)
		stop := w.sendRequests("web", 3, nil)
		w.Berth("node", "taint", n1, "out:evict").Want(t, 0)
		w.runs("batch", 2, n2)
		w.Eventually(soon, func() error {
			live := alive(w.Site, "web")
			for _, v := range live {
				if v.Node != n2 || v.Health != cluster.HealthHealthy {
					return fmt.Errorf("they have not all moved: %v", nodesOf(live))
				}
			}
			return nil
		})
		stop()
		w.awaitEvent("task.moving", n1, string(cluster.ReasonTaint))
		w.Berth("node", "untaint", n1, "out").Want(t, 0)

		// 2. On full machines tasks of lower priority end for one of higher, and no more of them than have to.
		room := w.freeCPU(n1)
		w.job("filler", 300, 4, room/2-20)
		w.runs("filler", 2, n1)
		w.job("urgent", 900, 1, room/2+20)
		w.runs("urgent", 1, "")
		w.awaitEvent("task.preempted", "urgent", "filler")
		ended := 0
		for _, v := range w.Tasks(client.TaskFilter{Job: "filler", All: true}) {
			if v.Reason == cluster.ReasonPreempted && v.State == cluster.StateCancelled {
				ended++
			}
		}
		if ended == 0 || ended > 2 {
			t.Errorf("%d tasks ended for the urgent one, want as few as would do", ended)
		}
		if live := alive(w.Site, "web"); len(live) != 3 {
			t.Errorf("the service, of no lower priority, has %v", nodesOf(live))
		}
	})
}

// job returns a job whose tasks run until TERM.
func (w *serviceFleet) job(name string, priority, count int, cpu cluster.MilliCPU) {
	w.t.Helper()
	d := api.TaskDefinition{
		Name: name, Version: 1, Grace: cluster.Duration(5 * time.Second), Ports: []cluster.Port{{Name: "http"}},
		Containers: []cluster.Container{{
			Name: "main", Command: []string{w.program},
			Env:       map[string]string{"VERSION": "1", "DRAIN": "0s", "GOMAXPROCS": "1"},
			Resources: cluster.Resources{CPU: cpu, Memory: 16 << 20},
		}},
	}
	if w.Executor == harness.Containerd {
		d.Containers[0].Image = servedImage
	}
	if _, err := w.client.PutDefinition(w.t.Context(), d); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.client.PutJob(w.t.Context(), api.Job{
		Cluster: cluster.DefaultCluster, Name: name, Priority: cluster.Priority(priority),
		Steps: []cluster.Step{{Name: "a", Definition: cluster.Ref{Name: name, Version: 1}, Count: count}},
	}, client.Condition{}); err != nil {
		w.t.Fatal(err)
	}
}

// runs waits until that many tasks of a job run, on a node if it is named.
func (w *serviceFleet) runs(job string, count int, node string) {
	w.t.Helper()
	w.Eventually(soon, func() error {
		tasks := w.Tasks(client.TaskFilter{Job: job})
		n := 0
		for _, v := range tasks {
			if v.State == cluster.StateRunning && (node == "" || v.Node == node) {
				n++
			}
		}
		if n < count {
			return fmt.Errorf("%d of %d tasks run on %q: %v", n, count, node, nodesOf(tasks))
		}
		return nil
	})
}

// freeCPU returns the unreserved CPU of a node.
func (w *serviceFleet) freeCPU(name string) cluster.MilliCPU {
	w.t.Helper()
	nodes, err := w.client.Nodes(w.t.Context(), client.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if n.Name == name {
			return n.Total.CPU - n.Reserved.CPU
		}
	}
	w.t.Fatalf("there is no node %s", name)
	return 0
}

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/load"
)

// queries answers a query as Prometheus does, with one number.
func queries(query string, value *atomic.Int64) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/query", func(out http.ResponseWriter, r *http.Request) {
		if r.FormValue("query") != query {
			http.Error(out, "no such query", http.StatusBadRequest)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(out, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%d,"%d"]}]}}`, time.Now().Unix(), value.Load())
	})
	return mux
}

// pages serves on a machine of the test's network, and returns where.
func pages(t *testing.T, w *serviceFleet, h http.Handler) string {
	t.Helper()
	l, err := w.asker.Listen(net.JoinHostPort(w.asker.Address, "9090"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: h}
	go func() { _ = server.Serve(l) }() // it ends with the test
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + l.Addr().String()
}

// TestScalesByItself has one service follow a number from outside, and another one its requests.
func TestScalesByItself(t *testing.T) {
	t.Parallel()
	w := newServiceFleet(t, harness.Process, 1, 2)
	var queue atomic.Int64
	queue.Store(20)
	url := pages(t, w, queries("sum(queue_length)", &queue))
	second := cluster.Duration(time.Second)
	pace := cluster.ScalePace{Window: &second}
	scaled := func(target cluster.ScaleTarget) func(*api.TaskDefinition, *api.Service) {
		return func(_ *api.TaskDefinition, s *api.Service) {
			s.Count = 0
			s.Scaling = &cluster.Scaling{Min: 1, Max: 4, Targets: []cluster.ScaleTarget{target}, Up: pace, Down: pace}
		}
	}
	w.put(served{name: "queue", version: 1, more: scaled(cluster.ScaleTarget{
		Metric: cluster.ScalePrometheus, Target: 10, URL: url, Query: "sum(queue_length)", Whole: true,
	})})
	w.put(served{
		name: "asked", version: 1,
		more: scaled(cluster.ScaleTarget{Metric: cluster.ScaleRequests, Target: 5, Port: "http"}),
	})
	running(t, w.Site, "asked", 1)

	// There are at most 60 requests a second. A third of that, on a slow machine, still needs four tasks. The queue is
	// twice the target, which doubles the count each time, then far more than the bounds allow.
	traffic := load.New(load.Config{
		Client: w.client, Service: "asked", Port: "http", Dial: w.asker.Dial, Rate: 60, Workers: 6,
		Random: rand.New(rand.NewPCG(w.random.Uint64(), 0)),
	})
	stop := begin(t, traffic)
	w.awaitEvent("service.scaled", "from 1 to 2: prometheus 200% of the target of 10 for 1 task")
	queue.Store(1000)
	w.count("queue", 4)
	w.awaitEvent("service.scaled", "from 2 to 4: prometheus")
	w.Berth("scale", "queue").Want(t, 0, "4")
	w.count("asked", 4)

	// Neither requests nor a queue.
	queue.Store(0)
	stop()
	w.count("queue", 1)
	w.count("asked", 1)
	if failures, _ := traffic.Failures(); len(failures) > 0 {
		t.Errorf("%d requests failed while the service was scaled, such as %v", len(failures), failures[0])
	}
	w.Berth("scale", "asked", "--suspend").Want(t, 0)
	w.Berth("scale", "--detach", "asked", "3").Want(t, 0)
	w.count("asked", 3)
}

// count waits until a service has that many healthy tasks and wants no other number.
func (w *serviceFleet) count(service string, want int) {
	w.t.Helper()
	began := time.Now()
	w.Eventually(2*soon, func() error {
		v, err := w.client.Scale(w.t.Context(), cluster.DefaultCluster, service)
		if err == nil && (v.Count != want || v.Healthy != want) {
			err = fmt.Errorf("%s wants %d tasks and has %d healthy, want %d: %s %+v", service, v.Count, v.Healthy, want,
				v.Message, v.Targets)
		}
		return err
	})
	w.t.Logf("%s has %d tasks after %v", service, want, time.Since(began).Round(time.Millisecond))
}

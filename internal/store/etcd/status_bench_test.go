package etcd

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store"
)

// spent returns the processor time that the process has used.
func spent(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// The reports of BenchmarkStatuses: each commit has one of every node, for two tasks; the next commits have other
// tasks.
const (
	reporting    = 300
	taskEach     = 2
	reportRounds = 20
)

// reports commits and follows, as a server does with what agents report.
type reports struct {
	b      *testing.B
	engine *Engine
	watch  store.Watch
	nodes  []store.Compare
	groups [reportRounds][]store.Group // each compares its node and its tasks' records, and writes these
}

func newReports(b *testing.B) *reports {
	r := &reports{b: b, engine: open(b, Config{Dir: filepath.Join(b.TempDir(), "store"), NoSync: true})}
	r.watch = r.engine.Watch(b.Context(), "", 0)
	first := make([]store.Group, reporting)
	for n := range first {
		key := fmt.Sprintf("berth/nodestatus/node-%06d", n)
		first[n].Ops = []store.Op{{Key: key, Value: make([]byte, 600)}}
		r.nodes = append(r.nodes, store.Compare{Key: key})
	}
	written := r.commit(first).Revision
	for n := range r.nodes {
		r.nodes[n].Modified = written
	}
	value := make([]byte, 400)
	for i := range r.groups {
		r.groups[i] = make([]store.Group, reporting)
		for n := range r.groups[i] {
			g := &r.groups[i][n]
			g.Compares = []store.Compare{r.nodes[n]}
			for task := range taskEach {
				key := fmt.Sprintf("berth/task/job-%02d/%06d/%d", i, (n*7919)%reporting, task)
				g.Compares = append(g.Compares, store.Compare{Key: key})
				g.Ops = append(g.Ops, store.Op{Key: key, Value: value})
			}
		}
		r.round(i)
	}
	return r
}

// commit returns once the watch delivered what it wrote.
func (r *reports) commit(groups []store.Group) store.Result {
	result, err := r.engine.Commit(r.b.Context(), groups)
	if err != nil {
		r.b.Fatal(err)
	}
	for {
		batch, err := r.watch.Next(r.b.Context())
		if err != nil {
			r.b.Fatal(err)
		}
		if batch.Revision >= result.Revision {
			return result
		}
	}
}

// round commits the groups of one round, and has them compare what it wrote the next time.
func (r *reports) round(i int) {
	groups := r.groups[i%reportRounds]
	result := r.commit(groups)
	for n, applied := range result.Applied {
		for task := 1; applied && task <= taskEach; task++ {
			groups[n].Compares[task].Modified = result.Revision
		}
	}
}

// BenchmarkStatuses measures commits as the reports of agents make them, with the watch that follows. In "refused" the
// preconditions of one group of each commit fail.
func BenchmarkStatuses(b *testing.B) {
	for _, name := range []string{"hold", "refused"} {
		b.Run(name, func(b *testing.B) {
			r := newReports(b)
			if name == "refused" {
				for i := range r.groups {
					r.groups[i][17].Compares[0].Modified++
				}
			}
			b.ReportAllocs()
			before := spent(b)
			for i := 0; b.Loop(); i++ {
				r.round(i)
			}
			b.ReportMetric(float64(spent(b)-before)/float64(b.N*reporting*taskEach), "cpu-ns/record")
		})
	}
}

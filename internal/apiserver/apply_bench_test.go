package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/batching"
	"github.com/berthd/berth/internal/store/memory"
)

// BenchmarkApply measures the cost of an apply of a service of one task, without the network: admission, decoding,
// drafting, the commit to an engine in memory, the tables, the audit log and the answer.
func BenchmarkApply(b *testing.B) {
	engine := memory.New(memory.Options{})
	defer engine.Close()
	tables := store.NewTables(store.TablesConfig{Engine: engine})
	go func() { _ = tables.Run(b.Context()) }()
	audit, err := audit.Open(audit.Config{Path: filepath.Join(b.TempDir(), "audit.log")})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = audit.Run(b.Context()) }()
	b.Cleanup(func() { <-ended })
	s := New(Config{Engine: batching.New(engine), Tables: tables, Trust: Trust{Token: token}, Audit: audit})
	<-tables.Synced()
	apply := func(b *testing.B, body string) {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://127.0.0.1/v1/apply",
			io.NopCloser(bytes.NewReader([]byte(body))))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		w := blankWriter{header: http.Header{}}
		if s.ServeHTTP(&w, r); w.status != http.StatusOK {
			b.Fatalf("status %d", w.status)
		}
	}
	apply(b,
		`{"objects":[{"kind":"TaskDefinition","spec":{"name":"noop","version":1,"containers":[{"name":"main","command":["true"]}]}}]}`)
	var n atomic.Int64
	one := func(b *testing.B) {
		spec, err := json.Marshal(&cluster.Service{
			Name:       fmt.Sprintf("service-%d", n.Add(1)),
			Definition: cluster.Ref{Name: "noop", Version: 1}, Count: 1,
		})
		if err != nil {
			b.Fatal(err)
		}
		apply(b, `{"objects":[{"kind":"Service","spec":`+string(spec)+`}]}`)
	}
	b.Run("one", func(b *testing.B) {
		defer cost(b)()
		for b.Loop() {
			one(b)
		}
	})
	b.Run("many", func(b *testing.B) {
		defer cost(b)()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				one(b)
			}
		})
	})
}

// cost starts to measure the CPU time of the whole process per operation. CPU time is more stable than elapsed time,
// because the benchmark often waits.
func cost(b *testing.B) (report func()) {
	b.ReportAllocs()
	spent := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	began := spent()
	return func() { b.ReportMetric(float64(spent()-began)/float64(b.N), "cpu-ns/op") }
}

// blankWriter discards an answer and keeps its status.
type blankWriter struct {
	header http.Header
	status int
}

func (w *blankWriter) Header() http.Header         { return w.header }
func (w *blankWriter) WriteHeader(status int)      { w.status = status }
func (w *blankWriter) Write(b []byte) (int, error) { return len(b), nil }

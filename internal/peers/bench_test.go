package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func bench(b *testing.B, nodes int) (*Peers, *link) {
	b.Helper()
	engine := memory.New(memory.Options{})
	b.Cleanup(func() { _ = engine.Close() })
	began := time.Now()
	p := New(Config{
		Server: cluster.Server{ID: "s1"},
		Engine: engine,
		Tables: store.NewTables(store.TablesConfig{Engine: engine}),
		Local:  &agents{},
		Caller: signed,
		Clock:  func() time.Duration { return time.Since(began) },
	})
	l := newLink(&p.liveness, cluster.Server{ID: "s2"})
	l.reached = true
	p.links["s2"] = l
	for i := range nodes {
		p.config.Tables.SetPulse(fmt.Sprintf("node-%05d", i),
			cluster.Pulse{Session: 3, Seq: 1, At: p.config.Clock(), Next: 5 * time.Second})
	}
	p.collect()
	l.takePending()
	return p, l
}

// BenchmarkSecond is what 10,000 nodes that report every 5 s cost their server in one second: it finds the 2,000 that
// changed and writes the digest for one other server.
func BenchmarkSecond(b *testing.B) {
	const nodes, changed = 10_000, 2_000
	p, l := bench(b, nodes)
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%05d", i)
	}
	stats := &cluster.NodeStats{CPU: 100, Memory: 1 << 30}
	seq, size := uint64(1), 0
	for b.Loop() {
		b.StopTimer()
		seq++
		for i := range changed {
			p.config.Tables.SetPulse(names[(int(seq)*changed+i)%nodes],
				cluster.Pulse{Session: 3, Seq: seq, At: p.config.Clock(), Next: 5 * time.Second, Stats: stats})
		}
		b.StartTimer()
		p.collect()
		pending := l.takePending()
		d := l.digest(slices.Sorted(maps.Keys(pending)), pending, p.config.Clock(), nil)
		body, err := json.Marshal(d)
		if err != nil || len(d.Pulses) < changed { // in every 30th they all are
			b.Fatal(len(d.Pulses), err)
		}
		size = len(body)
	}
	b.ReportMetric(float64(size), "B/digest")
}

// BenchmarkReceive measures the cost of a digest of 2,000 nodes for its receiver.
func BenchmarkReceive(b *testing.B) {
	const changed = 2_000
	p, _ := bench(b, 0)
	seq := uint64(1)
	h := p.Handler()
	for b.Loop() {
		b.StopTimer()
		seq++
		d := digest{version: ourVersion(), Server: "s2", No: seq, Echo: &echo{Life: p.startID}}
		for i := range changed {
			d.Pulses = append(d.Pulses,
				beat{Node: fmt.Sprintf("node-%05d", i), Session: 3, Seq: seq, Age: 400_000, Next: 5e6})
		}
		body, err := json.Marshal(d)
		if err != nil {
			b.Fatal(err)
		}
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, pathDigest, bytes.NewReader(body))
		r.Header.Set(signature, "s2")
		rec := httptest.NewRecorder()
		b.StartTimer()
		h.ServeHTTP(rec, r)
		if rec.Code != http.StatusOK {
			b.Fatal(rec.Code, rec.Body)
		}
	}
}

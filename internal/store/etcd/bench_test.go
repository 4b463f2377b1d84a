package etcd

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/berthd/berth/internal/store"
)

// value is about what a task's record takes.
var value = make([]byte, 260)

// BenchmarkPut measures single puts by 64 clients, each flushed to disk before it is acknowledged.
func BenchmarkPut(b *testing.B) {
	engine := open(b, Config{Dir: filepath.Join(b.TempDir(), "store")})
	var next atomic.Int64
	b.SetParallelism(32) // times two processors
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key := fmt.Sprintf("put/%08d", next.Add(1)%100_000)
			if _, err := engine.Commit(b.Context(),
				[]store.Group{{Ops: []store.Op{{Key: key, Value: value}}}}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}

// BenchmarkGroups measures commits of many groups, each of one compare and one put.
func BenchmarkGroups(b *testing.B) {
	for _, groups := range []int{100, 1000} {
		b.Run(fmt.Sprint(groups), func(b *testing.B) {
			engine := open(b, Config{Dir: filepath.Join(b.TempDir(), "store")})
			var next atomic.Int64
			b.SetParallelism(2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call := make([]store.Group, groups)
					first := next.Add(int64(groups))
					for i := range call {
						key := fmt.Sprintf("group/%012d", first+int64(i))
						call[i] = store.Group{
							Compares: []store.Compare{{Key: key}},
							Ops:      []store.Op{{Key: key, Value: value}},
						}
					}
					if _, err := engine.Commit(b.Context(), call); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N*groups)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}

// BenchmarkRecord measures commits of one record of the size of a plan of a thousand tasks.
func BenchmarkRecord(b *testing.B) {
	engine := open(b, Config{Dir: filepath.Join(b.TempDir(), "store")})
	plan := make([]byte, 260_000)
	for i := 0; b.Loop(); i++ {
		key := fmt.Sprintf("plan/%012d", i)
		if _, err := engine.Commit(b.Context(),
			[]store.Group{{
				Compares: []store.Compare{{Key: key}},
				Ops:      []store.Op{{Key: key, Value: plan}},
			}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkOpen measures the start on a new directory, and on one with data.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for name, path := range map[string]func(int) string{
		"new":  func(i int) string { return filepath.Join(dir, fmt.Sprint("new", i)) },
		"data": func(int) string { return filepath.Join(dir, "data") },
	} {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				engine, err := Open(b.Context(), Config{Dir: path(i), Ballast: -1})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				engine.Close()
				b.StartTimer()
			}
		})
	}
}

// Package benchmark measures how soon executors start programs.
package benchmark

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// FirstInstruction measures how long it takes from the call of run to the first instruction of a program, and
// reports the median of it. The program is the script that run is given; volume is a folder that it must see as
// /berth-test. Run returns how to remove what it made, which is not measured.
func FirstInstruction(b *testing.B, run func(volume, script string) (remove func())) {
	volume := b.TempDir()
	if err := os.Chmod(volume, 0o755); err != nil {
		b.Fatal(err)
	}
	pipe := filepath.Join(volume, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		opened := make(chan error, 1)
		go func() {
			f, err := os.Open(pipe) // returns when the program opens the other end
			if err == nil {
				err = f.Close()
			}
			opened <- err
		}()
		begin := time.Now()
		remove := run(volume, "exec 3>/berth-test/pipe; exec sleep 100000")
		if err := <-opened; err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		b.StopTimer()
		remove()
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
}

// Driver measures a driver with FirstInstruction, from Prepare, and from Start alone.
func Driver(b *testing.B, ex executor.Executor, shell func(script string) cluster.Container) {
	base := b.TempDir()
	n := 0
	prepare := func(b *testing.B, volume, script string) executor.ID {
		n++
		s := executor.Spec{
			ID: executor.ID(fmt.Sprintf("bench%d-%d", os.Getpid(), n)), Container: shell(script),
			Mounts: []executor.Mount{{Source: volume, Path: "/berth-test"}},
			Dir:    filepath.Join(base, fmt.Sprint(n)), LogDir: filepath.Join(base, fmt.Sprint(n, "-log")),
		}
		for _, dir := range []string{s.Dir, s.LogDir} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := ex.Prepare(b.Context(), s, nil); err != nil {
			b.Fatal(err)
		}
		return s.ID
	}
	start := func(b *testing.B, id executor.ID) (remove func()) {
		if _, err := ex.Start(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		return func() {
			if err := ex.Remove(b.Context(), id); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("prepare and start", func(b *testing.B) {
		FirstInstruction(b, func(volume, script string) func() { return start(b, prepare(b, volume, script)) })
	})
	b.Run("start", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			b.StopTimer()
			id := prepare(b, b.TempDir(), "exec sleep 100000")
			b.StartTimer()
			begin := time.Now()
			remove := start(b, id)
			took = append(took, time.Since(begin))
			b.StopTimer()
			remove()
			b.StartTimer()
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	})
}

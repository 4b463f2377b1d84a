package main

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/backfill"
)

// compareUntuned prints figures of policies on the second halves of recorded traces and on generated traces of seeds
// with which no parameter was chosen, and their geometric means as parts of EASY's.
func compareUntuned(ctx context.Context, traces []*trace, count int, out io.Writer) error {
	var all []*trace
	for _, t := range traces {
		all = append(all, variants(t)[1])
	}
	all = append(all, untuned(count)...)
	policies := []struct {
		name string
		of   func() policy
	}{
		{"EASY, as queue.policy easy", func() policy { return pool(cluster.QueueEASY) }},
		{"EASY-SJBF", func() policy { return yardstick{backfill: true, shortest: true} }},
		{"queue.policy sjbf", func() policy { return pool(cluster.QueueSJBF) }},
		{"the same with learned run times", func() policy { return newBerth(backfill.PriorityAfter, false) }},
	}
	fmt.Fprintf(out, "| trace | policy | mean wait, s | average bounded slowdown | p99 wait, s | longest wait, s |\n"+
		"|---|---|---|---|---|---|\n")
	parts := make([][4]float64, len(policies)) // sums of logarithms
	for _, t := range all {
		var easy figures
		for i, p := range policies {
			f, err := judge(ctx, t, p.of())
			if err != nil {
				return fmt.Errorf("%s: %s: %w", t.name, p.name, err)
			}
			if i == 0 {
				easy = f
			}
			fmt.Fprintf(out, "| %s | %s | %s |\n", t.name, p.name, f)
			for k, of := range f.all() {
				parts[i][k] += math.Log(max(of, 1) / max(easy.all()[k], 1))
			}
		}
	}
	for i, p := range policies {
		fmt.Fprintf(out, "| all, as a part of EASY | %s", p.name)
		for _, sum := range parts[i] {
			fmt.Fprintf(out, " | %.2f", math.Exp(sum/float64(len(all))))
		}
		fmt.Fprintln(out, " |")
	}
	fmt.Fprintln(out)
	return nil
}

// untuned returns generated traces of seeds with which no parameter was chosen.
func untuned(count int) (all []*trace) {
	for seed, load := range []float64{0.65, 0.7, 0.75, 0.8, 0.85} {
		all = append(all, syntheticTrace(uint64(seed)+11, count, 100, load))
	}
	return all
}

// all returns the figures in the order of the tables.
func (f figures) all() [4]float64 {
	return [4]float64{f.mean, f.slowdown, float64(f.p99), float64(f.longest)}
}

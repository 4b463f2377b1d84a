// Command swf replays logs of batch queues in the Standard Workload Format through Berth's order of the queue and
// through policies of the literature, and prints the waiting times of jobs. It replays the logs through the API and the
// control plane, too, with each policy of a queue. It also forecasts starts, and prints the share of them that is in
// its intervals.
//
//	swf -data DIR
//
// DIR, by default $BERTH_DATA, has the logs: DIR/swf/*.swf. Each job arrives at its recorded time, is stopped at its
// requested time, and uses only processors. -system, -policies and -starts do one of the three parts alone. -first and
// -queues shorten the replay through the control plane, which takes minutes for each policy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/logic/backfill"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv("BERTH_DATA"), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "swf:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, folder string, out io.Writer) error {
	flags := flag.NewFlagSet("swf", flag.ContinueOnError)
	data := flags.String("data", folder, "the folder with swf/*.swf (default: BERTH_DATA)")
	count := flags.Int("jobs", 15000, "how many jobs the made up traces have")
	only := map[string]*bool{
		"policies": flags.Bool("policies", false, "only compare policies with all nodes as one pool"),
		"system":   flags.Bool("system", false, "only replay the logs through the control plane"),
		"starts":   flags.Bool("starts", false, "only forecast starts"),
	}
	first := flags.Int("first", 0, "how many jobs of a log the control plane replays; 0 for all")
	names := flags.String("queues", "easy,sjbf,fifo,greedy,fair", "the policies of -system and -starts")
	every := flags.Int("every", 3, "forecast starts each time that so many jobs did not start at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	queues, err := readQueues(*names)
	if err != nil {
		return err
	}
	traces, err := find(*data)
	if err != nil {
		return err
	}
	all := !*only["policies"] && !*only["system"] && !*only["starts"]
	if all || *only["policies"] {
		if err := comparePolicies(ctx, traces, *count, out); err != nil {
			return err
		}
	}
	if all || *only["system"] {
		for _, t := range traces {
			if err := compareSystem(ctx, t.first(*first), queues, out); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	if all || *only["starts"] {
		for _, q := range forecastQueues {
			if !slices.Contains(queues, q) {
				continue
			}
			if err := compareStarts(ctx, q, forecastTraces(traces, *count), max(*every, 1), out); err != nil {
				return err
			}
		}
	}
	if len(traces) == 0 {
		fmt.Fprintln(out, "\nNot run for want of data (-data or BERTH_DATA): the tables of policies and of the "+
			"control plane, and all variants, draws and forecasts of recorded traces.")
	}
	return nil
}

// comparePolicies prints the waits with Berth's policy and with others.
func comparePolicies(ctx context.Context, traces []*trace, count int, out io.Writer) error {
	for _, t := range traces {
		fmt.Fprintf(out, "%s: %d jobs on %d processors, %d skipped\n\n", t.name, len(t.jobs), t.procs, t.skipped)
		if err := compare(ctx, t, out); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	if err := shake(ctx, traces, out); err != nil {
		return err
	}
	if err := compareUntuned(ctx, traces, count, out); err != nil {
		return err
	}
	return vary(ctx, traces, count, out)
}

// find reads the logs of a data folder; there are none where it has no name.
func find(folder string) ([]*trace, error) {
	if folder == "" {
		return nil, nil
	}
	files, err := filepath.Glob(filepath.Join(folder, "swf", "*.swf"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no swf/*.swf in %s", folder)
	}
	traces := make([]*trace, 0, len(files))
	for _, name := range files {
		t, err := readFile(name)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	return traces, nil
}

func readFile(name string) (t *trace, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return readTrace(strings.TrimSuffix(filepath.Base(name), ".swf"), name, f)
}

// compare prints the table of policies for a trace.
func compare(ctx context.Context, t *trace, out io.Writer) error {
	fmt.Fprintf(out, "| policy | mean wait, s | average bounded slowdown | p99 wait, s | longest wait, s "+
		"|\n|---|---|---|---|---|\n")
	ours := newBerth(backfill.PriorityAfter, false)
	half := func(length time.Duration) time.Duration { return backfill.PriorityAfter(length) / 2 }
	twice := func(length time.Duration) time.Duration { return backfill.PriorityAfter(length) * 2 }
	never := func(time.Duration) time.Duration { return 0 }
	for _, row := range []struct {
		name string
		policy
	}{
		{"first come, first served", yardstick{}},
		{"EASY", yardstick{backfill: true}},
		{"EASY-SJBF", yardstick{backfill: true, shortest: true}},
		{"Berth", ours},
		{"Berth, priority after half the time", newBerth(half, false)},
		{"Berth, priority after twice the time", newBerth(twice, false)},
		{"Berth, no priority by waiting", newBerth(never, false)},
		{"Berth without limits, learned run times only", newBerth(backfill.PriorityAfter, true)},
	} {
		f, err := judge(ctx, t, row.policy)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		fmt.Fprintf(out, "| %s | %.0f | %.1f | %d | %d |\n", row.name, f.mean, f.slowdown, f.p99, f.longest)
	}
	c := ours.stats
	fmt.Fprintf(out, "\n%d decisions of Berth, up to %d jobs waiting: %s each on average, %s at most.\n\n",
		c.decisions, c.waited, (c.took / time.Duration(max(c.decisions, 1))).Round(100*time.Nanosecond),
		c.longest.Round(time.Microsecond))
	return nil
}

// shaken is how often a trace is replayed with slightly different arrivals.
const shaken = 20

// shake prints how far the figures are an accident: a queue under load is chaotic, and one job that comes a minute
// later changes the weeks after it.
func shake(ctx context.Context, traces []*trace, out io.Writer) error {
	for _, t := range traces {
		fmt.Fprintf(out, "| each arrival up to a minute later, %d draws: median (least to most) | average "+
			"bounded slowdown | p99 wait, s |\n|---|---|---|\n", shaken)
		var slowdowns, p99s [2][]float64
		below := 0
		for seed := range uint64(shaken) {
			late := later(t, seed+1)
			for i, p := range []policy{yardstick{backfill: true}, newBerth(backfill.PriorityAfter, false)} {
				f, err := judge(ctx, late, p)
				if err != nil {
					return fmt.Errorf("%s: %w", t.name, err)
				}
				slowdowns[i], p99s[i] = append(slowdowns[i], f.slowdown), append(p99s[i], float64(f.p99))
			}
			if p99s[1][seed] <= p99s[0][seed] { // both were just appended
				below++
			}
		}
		for i, name := range []string{"EASY", "Berth"} {
			fmt.Fprintf(out, "| %s | %s | %s |\n", name, spread(slowdowns[i], 1), spread(p99s[i], 0))
		}
		fmt.Fprintf(out, "\nBerth's p99 was no more than EASY's in %d of %d draws.\n\n", below, shaken)
	}
	return nil
}

// spread formats the median and the ends of some figures.
func spread(figures []float64, digits int) string {
	slices.Sort(figures)
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, figures[len(figures)/2], digits, figures[0], digits,
		figures[len(figures)-1])
}

// vary prints a comparison of Berth with EASY on variants of the recorded traces and on synthetic ones. The parameters
// of Berth's policy were chosen on the variants and on synthetic traces of other seeds (1 to 5).
func vary(ctx context.Context, traces []*trace, count int, out io.Writer) error {
	fmt.Fprintf(out, "| trace | EASY: slowdown | p99 wait, s | longest | Berth: slowdown | p99 wait, s | "+
		"longest | Berth to EASY: slowdown | p99 | longest |\n")
	fmt.Fprintf(out, "|---|---|---|---|---|---|---|---|---|---|\n")
	var all []*trace
	for _, t := range traces {
		all = append(all, variants(t)...)
	}
	all = append(all, untuned(count)...)
	for _, t := range all {
		easy, err := judge(ctx, t, yardstick{backfill: true})
		if err != nil {
			return fmt.Errorf("%s: EASY: %w", t.name, err)
		}
		ours, err := judge(ctx, t, newBerth(backfill.PriorityAfter, false))
		if err != nil {
			return fmt.Errorf("%s: Berth: %w", t.name, err)
		}
		fmt.Fprintf(out, "| %s | %.1f | %d | %d | %.1f | %d | %d | %s | %s | %s |\n", t.name,
			easy.slowdown, easy.p99, easy.longest, ours.slowdown, ours.p99, ours.longest,
			part(ours.slowdown, easy.slowdown),
			part(float64(ours.p99), float64(easy.p99)), part(float64(ours.longest), float64(easy.longest)))
	}
	return nil
}

// part formats a figure as a part of another, "–" if that is 0.
func part(of, whole float64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", of/whole)
}

// judge replays a trace, unless it is time to stop.
func judge(ctx context.Context, t *trace, p policy) (figures, error) {
	if err := ctx.Err(); err != nil {
		return figures{}, err
	}
	waits, err := replay(t, p)
	if err != nil {
		return figures{}, err
	}
	return measure(t, waits), nil
}

// Command openb measures the share of a fleet's devices that each strategy uses, on public traces of a cluster of 1,213
// nodes with GPUs (the openb traces of the authors of Fragmentation Gradient Descent). The traces are not part of the
// repository.
//
//	openb -data DIR -seeds 10
//	openb -data DIR -trace default -order shuffled -cpu 130
//
// The rules are those of that work: pods arrive in random order, then random ones, until the demand that has arrived is
// 130 % of the fleet's GPUs. None leaves, one that does not fit is dropped. The figure is the share of GPUs that is
// used then.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "openb:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	data   string
	traces string
	only   string
	order  string
	seeds  int
	cpu    int64
	ample  bool
}

func run(args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("openb", flag.ContinueOnError)
	flags.StringVar(&o.data, "data", os.Getenv("BERTH_DATA"),
		"the folder that has openb/, or is it; default $BERTH_DATA")
	flags.StringVar(&o.traces, "trace", "default,cpu100,multigpu20,gpuspec10", "the lists of pods")
	flags.StringVar(&o.only, "strategy", "", "only strategies whose name contains this")
	flags.StringVar(&o.order, "order", "file", "of the nodes: file, reversed, shuffled (for each seed)")
	flags.IntVar(&o.seeds, "seeds", 10, "how many runs for each figure")
	flags.Int64Var(&o.cpu, "cpu", 100, "what pods ask of CPU, % of what the list says")
	flags.BoolVar(&o.ample, "ample", false, "give nodes twenty times the CPU and memory: what the devices alone cost")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !slices.Contains([]string{"file", "reversed", "shuffled"}, o.order) || o.seeds < 1 || o.cpu < 1 {
		return errors.New("-order is file, reversed or shuffled; -seeds and -cpu are 1 or more")
	}
	names := strings.Split(o.traces, ",")
	dir := o.data
	if _, err := os.Stat(filepath.Join(dir, "openb")); err == nil {
		dir = filepath.Join(dir, "openb")
	}
	var traces []*trace
	var missing []string
	for _, name := range names {
		t, err := readTrace(dir, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
			continue
		case err != nil:
			return err
		}
		vary(t, o)
		traces = append(traces, t)
		fmt.Fprintf(out, "%s: %d nodes, %d GPUs, %d pods, %d different\n", name, len(t.nodes),
			t.capacity()/cluster.WholeDevice, len(t.pods), len(t.demands))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(missing, name) })
	if len(traces) > 0 {
		table(out, names, traces, o)
	}
	if len(missing) > 0 {
		fmt.Fprintf(out, "\nnot run, for there are no data in %q: %s. Say where they are with -data or BERTH_DATA.\n",
			dir, strings.Join(missing, ", "))
		return nil
	}
	fmt.Fprintln(out, "\nnothing was left out for want of data")
	return nil
}

// vary changes demands and capacities by the flags.
func vary(t *trace, o options) {
	for i := range t.demands {
		t.demands[i].CPU = t.demands[i].CPU * cluster.MilliCPU(o.cpu) / 100
	}
	if !o.ample {
		return
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		n.CPU, n.FreeCPU, n.Memory, n.FreeMemory = 20*n.CPU, 20*n.CPU, 20*n.Memory, 20*n.Memory
	}
}

// table prints a line for each strategy.
func table(out io.Writer, names []string, traces []*trace, o options) {
	fmt.Fprintf(out, "\n| GPUs used, %%, mean of %d (standard deviation; idle where CPU is gone; pods for "+
		"several GPUs placed, %%) | %s |\n|---|%s\n", o.seeds, strings.Join(names, " | "),
		strings.Repeat("---|", len(names)))
	for _, s := range strategies {
		if !strings.Contains(s.name, o.only) {
			continue
		}
		fmt.Fprintf(out, "| %s |", s.name)
		for _, t := range traces {
			var used, dry, several []float64
			for seed := range o.seeds {
				random := rand.New(rand.NewPCG(uint64(seed+1), 1))
				fleet := reorder(t, o.order, seed)
				r := replay(fleet, s.make(fleet, random), random)
				used, dry, several = append(used, r.allocated), append(dry, r.dry), append(several, r.several)
			}
			mean, deviation := spread(used)
			gone, _ := spread(dry)
			sets, _ := spread(several)
			fmt.Fprintf(out, " %.2f (%.2f; %.1f; %.0f) |", mean, deviation, gone, sets)
		}
		fmt.Fprintln(out)
	}
}

// reorder returns the trace with its nodes in another order.
func reorder(t *trace, order string, seed int) *trace {
	other := *t
	other.nodes = slices.Clone(t.nodes)
	switch order {
	case "reversed":
		slices.Reverse(other.nodes)
	case "shuffled":
		rand.New(rand.NewPCG(uint64(seed+1), 2)).Shuffle(len(other.nodes), func(i, j int) {
			other.nodes[i], other.nodes[j] = other.nodes[j], other.nodes[i]
		})
	}
	return &other
}

// spread returns the mean and the standard deviation.
func spread(xs []float64) (mean, deviation float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / float64(max(len(xs)-1, 1)))
}

package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/traces"
	"github.com/berthd/berth/internal/whatif"
)

// sample draws tables as the traces are written.
func sample(random *rand.Rand, nodes, pods int) (fleet, list string) {
	var f, l strings.Builder
	f.WriteString("sn,cpu_milli,memory_mib,gpu,model\n")
	for i := range nodes {
		gpus := []int{0, 2, 4, 8}[random.IntN(4)]
		fmt.Fprintf(&f, "n%05d,%d,%d,%d,%s\n", i, 16000+8000*random.IntN(8), 65536<<random.IntN(3), gpus,
			[]string{"T4", "G2"}[random.IntN(2)])
	}
	l.WriteString("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n")
	for i := range pods {
		gpus, milli, spec := 0, 0, ""
		switch random.IntN(5) {
		case 0, 1:
			gpus, milli = 1, 100*(1+random.IntN(9))
		case 2:
			gpus, milli = 1, cluster.WholeDevice
		case 3:
			gpus, milli = 2<<random.IntN(2), cluster.WholeDevice
		}
		if gpus > 0 && random.IntN(4) == 0 {
			spec = []string{"T4", "G2", "G2|T4"}[random.IntN(3)]
		}
		fmt.Fprintf(&l, "p%d,%d,%d,%d,%d,%s\n", i, 500*(1+random.IntN(16)), 1024<<random.IntN(5), gpus, milli, spec)
	}
	return f.String(), l.String()
}

// TestSimulationPlacesTheSame replays a trace by berth simulate and by this package, pod by pod in the order of the
// list. No pod ends. The control plane and the bare scheduler must choose the same nodes and devices. Strategy spread
// is left out: it counts the tasks of an owner, and here all pods have one owner.
func TestSimulationPlacesTheSame(t *testing.T) {
	for seed := range uint64(2) {
		for _, strategy := range []cluster.Strategy{"", cluster.StrategyWhole, cluster.StrategyBinpack} {
			t.Run(fmt.Sprint(strategy, seed), func(t *testing.T) {
				nodes, pods := sample(rand.New(rand.NewPCG(seed, 1)), 12, 150)
				read, err := traces.ReadOpenB(traces.Input{Name: "pods", From: strings.NewReader(pods)},
					traces.Input{Name: "nodes", From: strings.NewReader(nodes)})
				if err != nil {
					t.Fatal(err)
				}
				want, refused := map[string]string{}, 0
				tr := traceOf(read)
				b := newBerth(tr, strategy)
				for i, k := range tr.pods {
					b.arrive(k)
					if !b.place(k) {
						refused++
						continue
					}
					r, _ := b.fleet.Reserved(strconv.Itoa(b.placed))
					want[read.Jobs[i].ID] = place(r.Node, r.Devices)
				}
				if refused == 0 || len(want) < 50 {
					t.Fatalf("the sample is too tame: %d placed, %d not", len(want), refused)
				}
				branch, err := store.LoadBranch(nil, 1, store.DefaultPrefix, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				sim, err := whatif.RunTrace(t.Context(), whatif.Config{Branch: branch, Now: time.Unix(1e9, 0)},
					api.SimulateRequest{},
					whatif.Replay{
						Name: "sample", Trace: read, Join: true, Fill: true, Strategy: strategy,
						Queue: cluster.QueueGreedy,
					})
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for _, x := range sim.Tasks {
					got[x.Owner.Name] = place(x.To, x.Devices)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("places of the bench (-) and of the simulation (+):\n%s", diff)
				}
				if sim.Replayed.Waiting != refused {
					t.Errorf("%d wait, want %d", sim.Replayed.Waiting, refused)
				}
			})
		}
	}
}

// place is the node of a pod and the numbers of its devices.
func place(node string, devices []cluster.DeviceUse) string {
	for _, d := range devices {
		node += fmt.Sprintf(" %s:%d", d.ID[len(d.ID)-2:], d.Share)
	}
	return node
}

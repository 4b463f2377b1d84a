package whatif_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/whatif"
)

// story draws changes that suit the present domain.
type story struct {
	t       *testing.T
	random  *rand.Rand
	made    int            // nodes ever
	version map[string]int // of the definitions
	counts  map[string]int // of the existing services
}

// apps are the services and the job of a story: the parts of their manifests besides name, definition and count.
var apps = map[string]struct{ resources, ports, rest string }{
	"api":   {resources: "{cpu: 1, memory: 1GiB}"},
	"cache": {resources: "{cpu: 500m, memory: 3GiB}", rest: "placement:\n  spread:\n    - attribute: label.zone\n"},
	"edge": {
		resources: "{cpu: 250m, memory: 256MiB}", ports: "ports:\n  - name: http\n    port: 0\n",
		rest: "update: {parallelism: 2, order: stop-first}\n",
	},
	"infer": {resources: "{cpu: 1, memory: 2GiB, devices: [{type: gpu, count: 1}]}"},
	"agent": {resources: "{cpu: 100m, memory: 128MiB}", rest: "mode: daemon\n"},
	"bulk":  {resources: "{cpu: 3, memory: 5GiB}"},
}

// manifest returns the manifest of a service in its present version.
func (s *story) manifest(name string) string {
	a, v := apps[name], s.version[name]
	count := fmt.Sprintf("count: %d\n", s.counts[name])
	if strings.Contains(a.rest, "daemon") {
		count = ""
	}
	return fmt.Sprintf("kind: TaskDefinition\nname: %s\nversion: %d\ncontainers:\n  - name: main\n    "+
		"image: %s:%d\n    resources: %s\n%s---\n"+
		"kind: Service\nname: %s\ndefinition: %s@%d\n%s%s", name, v, name, v, a.resources, a.ports, name, name, v,
		count, a.rest)
}

// node adds a machine in one of three zones: every third one with GPUs, the others with an unused device.
func (s *story) node() api.SimulateChange {
	s.made++
	n := &api.SimulateNodes{
		Name: fmt.Sprintf("n%03d", s.made), CPU: "8", Memory: "16GiB", Disk: "100GiB",
		Labels: cluster.Labels{"zone": string(rune('a' + s.made%3))},
	}
	// unset properties would be the most frequent ones of the domain
	if n.Devices = []api.SimulateGPUs{{Type: "fpga", Count: 1}}; s.made%3 == 0 {
		n.Devices = []api.SimulateGPUs{{Type: "gpu", Count: 8, Model: "A100"}}
	}
	return api.SimulateChange{AddNodes: n}
}

// run writes a service, or its next version.
func (s *story) run(name string) api.SimulateChange {
	s.version[name]++
	if s.counts[name] == 0 {
		s.counts[name] = 1 + s.random.IntN(8)
	}
	return api.SimulateChange{Run: objects(s.t, s.manifest(name))}
}

// next draws a change.
func (s *story) next(snap *store.Snapshot) api.SimulateChange {
	var all, drained, cordoned, tainted []string
	for e := range snap.Nodes() {
		name := e.Value.Name
		all = append(all, name)
		h, ok := snap.Host(name)
		switch {
		case !ok:
		case h.Value.Drain != nil:
			drained = append(drained, name)
		case h.Value.Cordon:
			cordoned = append(cordoned, name)
		case len(h.Value.Taints) > 0:
			tainted = append(tainted, name)
		}
	}
	pick := func(from []string) string { return from[s.random.IntN(len(from))] }
	services := slices.Sorted(func(yield func(string) bool) {
		for name := range s.counts { // order-free: sorted
			if !strings.Contains(apps[name].rest, "daemon") && !yield(name) {
				return
			}
		}
	})
	for {
		switch s.random.IntN(14) {
		case 0:
			if len(all) < 24 {
				return s.node()
			}
		case 1:
			if len(all) > 8 {
				return api.SimulateChange{RemoveNode: pick(all)}
			}
		case 2:
			if len(drained) < 3 {
				return api.SimulateChange{DrainNode: pick(all)}
			}
		case 3:
			if len(drained) > 0 {
				return api.SimulateChange{UndrainNode: pick(drained)}
			}
		case 4:
			if len(cordoned) < 3 && !slices.Contains(drained, all[0]) {
				return api.SimulateChange{CordonNode: all[0]}
			}
		case 5:
			if len(cordoned) > 0 {
				return api.SimulateChange{UncordonNode: pick(cordoned)}
			}
		case 6:
			if len(tainted) < 3 {
				effect := []string{"no-schedule", "avoid", "evict"}[s.random.IntN(3)]
				return api.SimulateChange{
					Taint: &api.SimulateTaints{Node: pick(all), Taints: []string{"dedicated=x:" + effect}},
				}
			}
		case 7:
			if len(tainted) > 0 {
				return api.SimulateChange{
					Untaint: &api.SimulateTaints{Node: pick(tainted), Taints: []string{"dedicated"}},
				}
			}
		case 8:
			return s.run(pick([]string{"agent", "api", "cache", "edge", "infer"}))
		case 9:
			if name := pick(services); name != "bulk" {
				return api.SimulateChange{Restart: &api.SimulateObject{Name: name}}
			}
		case 10:
			if name := pick(services); len(services) > 2 && name != "bulk" && s.random.IntN(3) == 0 {
				delete(s.counts, name)
				return api.SimulateChange{Delete: &api.SimulateObject{Name: name}}
			}
		default:
			name := pick(services)
			s.counts[name] = s.random.IntN(14)
			if name == "bulk" { // the service that may find no room
				s.counts[name] *= 2
			}
			return api.SimulateChange{Scale: &api.SimulateScale{Service: name, Count: s.counts[name]}}
		}
	}
}

// describePlaces describes the place of each task and its holdings, one line each.
func describePlaces(snap *store.Snapshot) map[string]string {
	out := map[string]string{}
	for id, p := range whatif.Places(snap, cluster.DefaultDomain) {
		out[string(id)] = fmt.Sprint(p.Node, " attempt ", p.Attempt, " of ", p.Definition, " ports ", p.Ports,
			" devices ", p.Devices)
	}
	return out
}

// lockedRandom is a random source for several goroutines.
type lockedRandom struct {
	mu     sync.Mutex
	random *rand.Rand
}

func (c *lockedRandom) upTo(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.random.Int64N(int64(d)))
}

// seeds are the seeds of the stories that always run, with shortRunChanges changes; BERTH_TEST_SEED runs another one,
// with longRunChanges.
var seeds = []uint64{5, 9, 12}

const (
	shortRunChanges = 70
	longRunChanges  = 200
)

// TestPredictionsMatchTheDomain predicts each of over 200 changes from the state before it. It then makes the change in
// a real domain and compares the nodes, ports and devices of all tasks. Each step of a task takes the same time on all
// machines of the fleet.
func TestPredictionsMatchTheDomain(t *testing.T) {
	pace := func(*lockedRandom) time.Duration { return 300 * time.Millisecond }
	if os.Getenv("BERTH_TEST_PACE") != "" { // measures the effect of unequal speeds
		pace = func(c *lockedRandom) time.Duration { return 50*time.Millisecond + c.upTo(time.Second) }
	}
	chosen, far := seeds, shortRunChanges
	if seed := testkit.Setting(t, "BERTH_TEST_SEED", 0); seed != 0 {
		chosen, far = []uint64{uint64(seed)}, longRunChanges
	}
	for _, seed := range chosen {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			comparePredictions(t, seed, far, pace)
		})
	}
}

// comparePredictions predicts changes and makes them on a fleet whose tasks have the given pace.
func comparePredictions(t *testing.T, seed uint64, changes int, pace func(*lockedRandom) time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		random := &lockedRandom{random: rand.New(rand.NewPCG(seed, 2))}
		ctx, cancel := context.WithCancel(t.Context())
		f := newFleet(t, ctx, func() time.Duration { return pace(random) })
		defer f.running.Wait()
		defer cancel()
		s := &story{t: t, random: rand.New(rand.NewPCG(seed, 1)), version: map[string]int{}, counts: map[string]int{}}
		for range 12 {
			f.applyChange(s.node())
		}
		for _, name := range []string{"api", "cache", "edge", "infer", "agent", "bulk"} {
			f.applyChange(s.run(name))
		}
		f.settle()
		kinds, moved, waits := map[string]int{}, 0, 0
		for i := range changes {
			before := f.tables.Snapshot()
			c := s.next(before)
			kinds[strings.Fields(whatif.Describe(&c))[0]]++
			sim, after, err := whatif.Predict(ctx, whatif.Config{
				Branch: store.NewBranch(before, store.DefaultPrefix, logger()), Now: time.Now(), Log: logger(),
				DeviceValueModel: f.plane.DeviceValueModel(),
			}, c)
			if err != nil {
				t.Fatalf("predict change %d, %s: %v", i, whatif.Describe(&c), err)
			}
			f.applyChange(c)
			f.settle()
			moved += len(sim.Tasks)
			if len(sim.Waiting) > 0 {
				waits++
			}
			if diff := cmp.Diff(describePlaces(after), describePlaces(f.tables.Snapshot())); diff != "" {
				t.Errorf("change %d, %s: what was predicted (-) is not what happened (+):\n%s", i, whatif.Describe(&c),
					diff)
			}
		}
		t.Logf("%d changes %v, %d tasks on other nodes after them, tasks wait after %d", changes, kinds, moved,
			waits)
		if moved < 2*changes || waits == 0 || waits == changes {
			t.Errorf("the story is too tame: %d tasks moved, tasks waited after %d of %d changes", moved, waits,
				changes)
		}
	})
}

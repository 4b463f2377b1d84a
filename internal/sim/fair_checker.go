package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
	"github.com/berthd/berth/internal/store"
)

// fairTolerance is the permitted difference between what a user holds in an hour and the user's fair share, as a part
// of the share.
const fairTolerance = 0.05

// fairChecker checks the shares of the users of the fair queue whose tasks always wait, hour by hour.
//
// What a user holds at a moment is the number of the user's tasks that are placed and have no outcome yet. The fair
// share is the number of tasks that the user would hold if tasks could be divided and the nodes were one: the result of
// weighted dominant resource fairness, first between clusters and then between the users of each (ci.FairTasks). The
// checker computes it from the records of the store alone, and uses neither the ledger of the control plane nor its
// order. Both numbers are summed up over the hour, every half second, whatever happens meanwhile. They may differ by
// fairTolerance.
//
//   - Demand: a user is checked in an hour if one of the user's tasks waited in each sample of it. Nothing but room, or
//     the delay before another attempt, keeps tasks of these users waiting.
//   - Task lengths and granularity: a task counts for as long as it is placed, whatever its length. Whole tasks and
//     gangs differ from divided ones, which the tolerance includes. So users hold 15 tasks and more.
//   - Tasks that run when the hour begins count like others.
//   - Priorities: tasks of a higher level are not contended for. What they hold counts for their cluster first, and
//     belongs to no user that is checked.
//   - Lost nodes: the room is that of the nodes of the pool that accept tasks, without what services hold there. A node
//     that does not accept tasks has the room of the tasks that are placed there. So the fair share falls at once, and
//     that of each user falls by the same part. The user whose tasks the node had is below it until other tasks end.
//   - The time in which no leader decides counts like any other time, and so does room that is free.
type fairChecker struct {
	*observation
	users   []fairUsage
	byDef   map[string]int // index into users, by the name of the definition
	hours   int
	hour    int // the present one
	sampled time.Time
	// key identifies the room of the last sample, and fair is the fair share of each user in it.
	key  string
	fair []float64
	held []float64 // tasks of each user at the last sample
	// ratios are what each user held in each hour, as a part of the fair share. NaN stands for an hour without demand.
	ratios map[string][]float64
	hosts  map[string]decodedHost
}

// decodedHost is the settings of a node at a revision.
type decodedHost struct {
	modified uint64
	settings *cluster.Host
}

// fairUsage is what a user holds in the present hour, in task seconds.
type fairUsage struct {
	ci.FairUser
	held, fair float64
	isIdle     bool // no task waited in a sample
}

func newFairChecker(o *observation, hours int) *fairChecker {
	f := &fairChecker{
		observation: o, byDef: map[string]int{}, hours: hours, ratios: map[string][]float64{},
		hosts: map[string]decodedHost{},
	}
	for i, u := range ci.FairUsers() {
		f.users = append(f.users, fairUsage{FairUser: u})
		f.byDef[u.Definition().Name] = i
	}
	f.held = make([]float64, len(f.users))
	return f
}

// end returns when the last hour ends, from the begin of the story.
func (f *fairChecker) end() time.Duration { return fairBegin + time.Duration(f.hours)*time.Hour }

// sample adds the time since the last sample. Waiting has the number of tasks of each user that wait.
func (f *fairChecker) sample(waiting []int) {
	at := time.Since(f.began)
	elapsed := time.Since(f.sampled).Seconds()
	if f.sampled = time.Now(); at < fairBegin || f.hour == f.hours {
		return
	}
	f.measure()
	for i := range f.users {
		u := &f.users[i]
		u.held += f.held[i] * elapsed
		u.fair += f.fair[i] * elapsed
		u.isIdle = u.isIdle || waiting[i] == 0
	}
	if at >= fairBegin+time.Duration(f.hour+1)*time.Hour {
		f.checkHour()
	}
}

// checkHour checks the hour that ends.
func (f *fairChecker) checkHour() {
	f.hour++
	for i := range f.users {
		u := &f.users[i]
		if u.Every > 0 {
			continue
		}
		ratio := u.held / u.fair
		switch {
		case u.isIdle:
			ratio = math.NaN()
		case math.Abs(ratio-1) > fairTolerance:
			f.breach("fair-share", "%s/%s held %.2f tasks in hour %d, and the fair share is %.2f", u.Cluster, u.Name,
				u.held/time.Hour.Seconds(), f.hour, u.fair/time.Hour.Seconds())
		}
		f.ratios[u.Name] = append(f.ratios[u.Name], math.Round(ratio*1000)/1000)
		u.held, u.fair, u.isIdle = 0, 0, false
	}
}

// measure sets what the users hold now, and the fair share of each.
func (f *fairChecker) measure() {
	clear(f.held)
	var room ci.Amounts
	numDevices := 0.0
	onNode := map[string]ci.Amounts{}
	for a := range f.placed { // order-free: sums
		if i, found := f.byDef[a.def.Name]; found {
			f.held[i]++
			onNode[a.node] = onNode[a.node].Plus(demandOf(&f.users[i].FairUser), 1)
		}
	}
	for name, n := range f.nodes { // order-free: sums
		h := f.host(name)
		if h.Pool != ci.FairPool {
			continue
		}
		numDevices += ci.FairDevices
		if n.verdict == nil || n.verdict.State != cluster.NodeReady || h.Cordon {
			room = room.Plus(onNode[name], 1)
			continue
		}
		room = room.Plus(ci.Amounts{nodeCPU, float64(nodeMemory), ci.FairDevices}, 1)
		for a := range n.attempts { // order-free: a sum
			if _, fair := f.byDef[a.def.Name]; !fair && a.holdsResources() {
				room[0] -= float64(f.cpu[a.def])
			}
		}
	}
	f.share(room, ci.Amounts{
		float64(nodeCPU * f.story.Nodes), float64(nodeMemory) * float64(f.story.Nodes), numDevices,
	})
}

// host returns the settings of a node, empty ones if there are none.
func (f *fairChecker) host(name string) *cluster.Host {
	r := f.records["host/"+name]
	known := f.hosts[name]
	if known.settings == nil || known.modified != r.Modified {
		known = decodedHost{r.Modified, new(cluster.Host)}
		if h, err := store.Decode[cluster.Host](r.Value); err == nil {
			known.settings = h
		}
		f.hosts[name] = known
	}
	return known.settings
}

// share sets the fair shares of the room, and of the total of all nodes.
func (f *fairChecker) share(room, total ci.Amounts) {
	var contenders []ci.Contender
	names := []string{}
	key := []string{fmt.Sprint(room, total)}
	for i := range f.users {
		u := &f.users[i].FairUser
		at := slices.Index(names, u.Cluster)
		if at < 0 {
			at = len(names)
			names, contenders = append(names, u.Cluster), append(contenders, ci.Contender{Weight: float64(u.Weight())})
		}
		if c := &contenders[at]; u.Every > 0 {
			c.Held = c.Held.Plus(demandOf(u), f.held[i])
			key = append(key, fmt.Sprint(f.held[i]))
		} else {
			c.Users = append(c.Users, demandOf(u))
		}
	}
	if now := strings.Join(key, " "); now != f.key {
		f.key, f.fair = now, nil
		tasks := ci.FairTasks(total, room, contenders)
		next := map[string]int{}
		for i := range f.users {
			u := &f.users[i].FairUser
			if u.Every > 0 {
				f.fair = append(f.fair, f.held[i])
				continue
			}
			f.fair = append(f.fair, tasks[slices.Index(names, u.Cluster)][next[u.Cluster]])
			next[u.Cluster]++
		}
	}
}

func demandOf(u *ci.FairUser) ci.Amounts {
	return ci.Amounts{float64(u.Demand.CPU), float64(u.Demand.Memory), float64(u.Devices)}
}

package starts

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
)

// users numbers the clusters and users of tasks of jobs, in the order in which they are met.
type users struct {
	clusters map[string]int32
	numbers  map[[2]string]int32
}

// userOf returns the number of a user.
func (b *builder) userOf(inCluster, user string) int32 {
	u := &b.users
	if u.numbers == nil {
		u.clusters, u.numbers = map[string]int32{}, map[[2]string]int32{}
	}
	key := [2]string{inCluster, user}
	n, known := u.numbers[key]
	if known {
		return n
	}
	c, known := u.clusters[inCluster]
	if !known {
		c = int32(len(b.out.Clusters))
		u.clusters[inCluster] = c
		e, _ := b.Snapshot.Cluster(inCluster)
		b.out.Clusters = append(b.out.Clusters, forecast.Cluster{Weight: e.Value.QueueWeight()})
	}
	n = int32(len(b.out.Users))
	u.numbers[key] = n
	b.out.Users = append(b.out.Users, forecast.User{Cluster: c, Unnamed: user == ""})
	return n
}

// isLimited reports whether a limit of its cluster counts a task.
func (b *builder) isLimited(inCluster string, group bool) bool {
	return group || b.fleet.Limits.Quotas()[inCluster] != nil
}

// addLimits adds the quotas, and what attempts hold of limits, of jobs and others.
func (b *builder) addLimits(held []scheduler.Reservation) {
	b.out.Limits = &admission.Ledger{}
	for name, q := range b.fleet.Limits.Quotas() { // order-free: each by itself
		b.out.Limits.SetQuota(name, q)
	}
	for i := range held {
		if h := held[i].Holding(); b.isLimited(h.Cluster, h.Group != "" || h.JobGroup != "") {
			b.out.Limits.Add(&h, 1)
		}
	}
	for _, at := range b.fleet.Limits.Begun() {
		b.out.Limits.SetBegun(at.Cluster, at.Job, at.Generation, at.Group)
	}
}

// addLasting adds the jobs of concurrency groups that have more tasks than those that run or wait here.
func (b *builder) addLasting() {
	known := map[cluster.OwnerRef]int{}
	for _, at := range b.fleet.Limits.Begun() {
		known[cluster.OwnerRef{Kind: cluster.KindJob, Cluster: at.Cluster, Name: at.Job}] = 0
	}
	for i := range b.pending[:b.chosen] {
		if p := &b.pending[i]; p.JobConcurrency != nil {
			known[p.Owner] += p.Tasks()
		}
	}
	waiting := cluster.IndexTasks(cluster.RangesOf(b.pending[:b.chosen]))
	seen := map[cluster.TaskID]bool{} // a task may have several attempts, and its next one may wait
	for i := range b.out.Running {
		for _, h := range b.out.Running[i].Limited {
			if h.JobGroup == "" || seen[h.Task] || !b.isPresentRun(h.Task) {
				continue
			}
			seen[h.Task] = true
			if _, waits := waiting.Find(h.Task); !waits {
				known[cluster.OwnerRef{Kind: cluster.KindJob, Cluster: h.Cluster, Name: h.Job}]++
			}
		}
	}
	for o, n := range known { // order-free: sorted below
		if b.Unfinished(o) > n {
			b.out.Lasting = append(b.out.Lasting, o)
		}
	}
	slices.SortFunc(b.out.Lasting, cluster.OwnerRef.Compare)
}

// isPresentRun reports whether a task is of the present run of its job.
func (b *builder) isPresentRun(task cluster.TaskID) bool {
	parts, _ := task.Parts()
	e, ok := b.Snapshot.Job(parts.Cluster, parts.Owner)
	return !ok || e.Value.Generation == parts.Generation
}

// addCapacity adds what the nodes have together. The types of devices are known by then.
func (b *builder) addCapacity() {
	c := b.fleet.Capacity()
	b.out.Capacity = b.amounts(c.Demand, nil)
	for kind, dim := range b.dims { // order-free: each by itself
		if dim >= 0 {
			b.out.Capacity[dim] = int64(c.Devices[kind]) * cluster.WholeDevice
		}
	}
}

// sortMembers puts the chosen requests into the order of decision. Their turns may be in another order, as users take
// turns and tasks that borrow come last.
func (b *builder) sortMembers() {
	order, _ := cycle.Order(b.pending, b.Now)
	rank := make([]int, len(b.pending))
	for i, at := range order {
		rank[at] = i
	}
	slices.SortFunc(b.members, func(x, y []int) int { return cmp.Compare(rank[x[0]], rank[y[0]]) })
}

// Package admission decides which waiting tasks may be placed at all, whatever room the nodes have. Two kinds of limits
// count:
//
//   - the quota of a cluster limits what its tasks hold together (cluster.Quota)
//   - a concurrency group limits how many of its tasks run at a time (cluster.Concurrency), or how many of its jobs
//     have begun and not ended
//
// A quota may let the tasks of jobs borrow what other clusters leave unused of theirs (cluster.Quota.Borrow). By that,
// all clusters with a limit of a resource never hold more of it than the sum of their limits; what a cluster does not
// lend stays free. What a cluster needs within its own quota is never refused, even while others hold it: the scheduler
// may take it back from them (Loans).
//
// It also counts what the jobs of each cluster and of each user hold, for the order of fair queues (Draft.Share).
//
// A Ledger counts what attempts hold, from their placement until nothing of them is left. The scheduler keeps it in
// line with the reservations of its fleet. A Draft adds the placements of one cycle. The scheduler asks it before each
// task's turn, so a task that finds no node takes nothing of a limit, and a smaller or later task may run instead.
package admission

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Holding is what one attempt counts for the limits of its cluster.
type Holding struct {
	Task    cluster.TaskID
	Cluster string
	Job     string // the name of its job; empty for a task of a service
	User    string // the user who requested the job
	Demand  cluster.Demand
	Devices []cluster.DeviceRequest
	Group   string // its concurrency group; empty for none
	// JobGroup is the concurrency group of its job; empty for none. An attempt of a job keeps the job's place in it.
	JobGroup string
}

// use is what the attempts of one cluster hold.
type use struct {
	demand  cluster.Demand
	devices map[string]int            // in thousandths, by type; nil if none was ever held
	tasks   map[cluster.TaskID]uint16 // the attempts of each task that has some
	jobs    map[string]int            // the attempts of each job that has some
}

// groupKey identifies a concurrency group.
type groupKey struct{ cluster, group string }

// Ledger counts what attempts hold, and knows the quotas. The zero value is empty. Its methods that read may be called
// concurrently with each other.
type Ledger struct {
	quotas map[string]*cluster.Quota
	uses   map[string]*use
	groups map[groupKey]int
	jobs   jobGroups
	shares shares
	// quotaChanges counts the calls of SetQuota.
	quotaChanges int
}

// SetQuota sets the quota of a cluster; nil is none. It reports whether that is a change. The ledger keeps q.
func (l *Ledger) SetQuota(name string, q *cluster.Quota) (changed bool) {
	was := l.quotas[name]
	l.quotaChanges++
	if q == nil {
		delete(l.quotas, name)
		return was != nil
	}
	if l.quotas == nil {
		l.quotas = map[string]*cluster.Quota{}
	}
	l.quotas[name] = q
	return !was.Equal(q)
}

// Quotas returns the quotas by cluster. Callers must not change them.
func (l *Ledger) Quotas() map[string]*cluster.Quota { return l.quotas }

// Add counts an attempt with a sign of 1, and no longer counts it with -1.
func (l *Ledger) Add(h *Holding, sign int) {
	l.addUse(h, sign)
	l.shares.add(h, sign)
}

// addUse is Add for quotas and concurrency groups alone.
func (l *Ledger) addUse(h *Holding, sign int) {
	u := l.uses[h.Cluster]
	if u == nil {
		if l.uses == nil {
			l.uses = map[string]*use{}
		}
		u = &use{tasks: map[cluster.TaskID]uint16{}}
		l.uses[h.Cluster] = u
	}
	u.add(h, sign)
	if len(u.tasks) == 0 {
		delete(l.uses, h.Cluster)
	}
	if h.Job != "" && h.JobGroup != "" {
		l.jobs.add(groupKey{h.Cluster, h.JobGroup}, runOf(h.Job, h.Task), sign)
	}
	if h.Group == "" {
		return
	}
	if l.groups == nil {
		l.groups = map[groupKey]int{}
	}
	key := groupKey{h.Cluster, h.Group}
	if l.groups[key] += sign; l.groups[key] == 0 {
		delete(l.groups, key)
	}
}

// Use returns what the attempts of a cluster hold.
func (l *Ledger) Use(name string) (q cluster.QuotaUse) {
	u := l.uses[name]
	if u == nil {
		return q
	}
	q = cluster.QuotaUse{
		Borrowed: l.borrowed(name, u),
		CPU:      u.demand.CPU, Memory: u.demand.Memory, Disk: u.demand.Disk, Tasks: len(u.tasks), Jobs: len(u.jobs),
	}
	for kind, n := range u.devices { // order-free: a copy
		if n != 0 {
			if q.Devices == nil {
				q.Devices = map[string]float64{}
			}
			q.Devices[kind] = float64(n) / cluster.WholeDevice
		}
	}
	return q
}

// Clone returns an independent copy.
func (l *Ledger) Clone() Ledger {
	c := Ledger{
		quotas: maps.Clone(l.quotas), uses: make(map[string]*use, len(l.uses)), groups: maps.Clone(l.groups),
		jobs: l.jobs.clone(), shares: l.shares.clone(), quotaChanges: l.quotaChanges,
	}
	for name, u := range l.uses { // order-free: a copy
		c.uses[name] = &use{u.demand, maps.Clone(u.devices), maps.Clone(u.tasks), maps.Clone(u.jobs)}
	}
	return c
}

func (u *use) add(h *Holding, sign int) {
	if sign > 0 {
		u.demand = u.demand.Add(h.Demand)
		u.tasks[h.Task]++
	} else {
		u.demand = u.demand.Sub(h.Demand)
		if u.tasks[h.Task]--; u.tasks[h.Task] == 0 {
			delete(u.tasks, h.Task)
		}
	}
	for i := range h.Devices {
		if u.devices == nil {
			u.devices = map[string]int{}
		}
		u.devices[typeOf(&h.Devices[i])] += sign * thousandths(&h.Devices[i])
	}
	if h.Job == "" {
		return
	}
	if u.jobs == nil {
		u.jobs = map[string]int{}
	}
	if u.jobs[h.Job] += sign; u.jobs[h.Job] == 0 {
		delete(u.jobs, h.Job)
	}
}

func typeOf(r *cluster.DeviceRequest) string { return cmp.Or(r.Type, cluster.DefaultDeviceType) }

// thousandths returns how much of devices a request is for.
func thousandths(r *cluster.DeviceRequest) int {
	if r.Share > 0 {
		return r.Share
	}
	return max(r.Count, 1) * cluster.WholeDevice
}

// Draft is a ledger with the placements of one cycle. It is for one goroutine, and the ledger must not change
// meanwhile.
type Draft struct {
	ledger   *Ledger
	added    Ledger
	replaced map[string]int // by cluster: how many of the added tasks have an earlier attempt in the ledger
	pool     pool
}

// NewDraft returns a draft without placements.
func NewDraft(l *Ledger) Draft { return Draft{ledger: l} }

// limits reports whether there is a limit for the task.
func (d *Draft) limits(p *cluster.Pending) bool {
	return p.Concurrency != nil || p.JobConcurrency != nil || d.ledger.quotas[p.Owner.Cluster] != nil
}

// replaces reports whether an earlier attempt of the task holds room. No limit keeps the next one from replacing it.
func (d *Draft) replaces(p *cluster.Pending) bool {
	held := d.ledger.uses[p.Owner.Cluster]
	return held != nil && held.tasks[p.Task] > 0
}

// Add counts a placement of the cycle with a sign of 1, and no longer counts it with -1.
func (d *Draft) Add(p *cluster.Pending, sign int) {
	limited, fair := d.limits(p), p.Queue == cluster.QueueFair
	if !limited && !fair {
		return
	}
	h := HoldingOf(p)
	if limited {
		d.pool.count(d, h.Cluster, -1)
		d.added.addUse(&h, sign)
		if d.replaces(p) {
			if d.replaced == nil {
				d.replaced = map[string]int{}
			}
			d.replaced[h.Cluster] += sign
		}
		d.pool.count(d, h.Cluster, 1)
	}
	if fair {
		d.added.shares.add(&h, sign)
	}
}

// HoldingOf returns what a waiting task will hold.
func HoldingOf(p *cluster.Pending) Holding {
	h := Holding{Task: p.Task, Cluster: p.Owner.Cluster, Demand: p.Demand, Devices: p.Devices, User: p.User}
	if p.Owner.Kind == cluster.KindJob {
		h.Job = p.Owner.Name
	}
	if p.Concurrency != nil {
		h.Group = p.Concurrency.Group
	}
	if p.JobConcurrency != nil {
		h.JobGroup = p.JobConcurrency.Group
	}
	return h
}

// Verdict is whether the limits of its cluster let a task be placed now.
type Verdict int

const (
	// Refused says that a limit keeps the task waiting.
	Refused Verdict = iota
	// Within says that the task stays within all limits.
	Within
	// Borrows says that its cluster may exceed its quota for the task, because others leave theirs unused.
	Borrows
)

// Judge returns the verdict on a task.
func (d *Draft) Judge(p *cluster.Pending) Verdict {
	if !d.limits(p) || d.replaces(p) {
		return Within
	}
	v := Within
	for s := range d.exceeded(p) {
		if s.isShort() {
			return Refused
		}
		v = Borrows
	}
	if p.Concurrency != nil && d.running(p) >= p.Concurrency.Limit {
		return Refused
	}
	if _, full := d.jobPlace(p); full {
		return Refused
	}
	return v
}

// Admits reports whether no limit keeps a task from being placed now.
func (d *Draft) Admits(p *cluster.Pending) bool { return d.Judge(p) != Refused }

// MayBorrow reports whether the quota of the task's cluster lets it borrow at all.
func (d *Draft) MayBorrow(p *cluster.Pending) bool {
	q := d.ledger.quotas[p.Owner.Cluster]
	return q != nil && q.Borrow != nil && p.Owner.Kind == cluster.KindJob
}

// Refusal returns the limit that keeps a task from being placed now, or the zero value.
func (d *Draft) Refusal(p *cluster.Pending) cluster.Refusal {
	if d.Admits(p) {
		return cluster.Refusal{}
	}
	var parts []string
	for s := range d.exceeded(p) {
		if s.isShort() {
			parts = append(parts, s.text())
		}
	}
	if len(parts) > 0 {
		return cluster.Refusal{
			Code:   cluster.ReasonQuota,
			Detail: fmt.Sprintf("quota of cluster %s: %s", p.Owner.Cluster, strings.Join(parts, ", ")),
		}
	}
	if begun, full := d.jobPlace(p); full {
		return cluster.Refusal{
			Code: cluster.ReasonConcurrency,
			Detail: fmt.Sprintf("concurrency group %s of jobs: jobs 1 needed, %d of %d used", p.JobConcurrency.Group,
				begun, p.JobConcurrency.Limit),
		}
	}
	return cluster.Refusal{
		Code: cluster.ReasonConcurrency,
		Detail: fmt.Sprintf("concurrency group %s: tasks 1 needed, %d of %d used", p.Concurrency.Group, d.running(p),
			p.Concurrency.Limit),
	}
}

// running returns the number of tasks of the task's concurrency group.
func (d *Draft) running(p *cluster.Pending) int {
	key := groupKey{p.Owner.Cluster, p.Concurrency.Group}
	return d.ledger.groups[key] + d.added.groups[key]
}

// Sufficient returns the least changes of limits after which a task may be placed: the quota of its cluster, or the
// limits of its concurrency group and of that of its job. Limits that suffice are nil and 0.
func (d *Draft) Sufficient(p *cluster.Pending) (q *cluster.Quota, tasks, jobs int) {
	for s := range d.exceeded(p) {
		if !s.isShort() {
			continue
		}
		if q == nil {
			q = d.ledger.quotas[p.Owner.Cluster].Clone()
		}
		s.raise(q, s.used+s.need-s.more)
	}
	if p.Concurrency != nil && d.running(p) >= p.Concurrency.Limit {
		tasks = d.running(p) + 1
	}
	if begun, full := d.jobPlace(p); full {
		jobs = begun + 1
	}
	return q, tasks, jobs
}

// demand is what a task needs of a limit of a quota.
type demand struct {
	resource
	need, used, limit int64
	// borrow is how far the tasks of the job may exceed the limit, and more how far they may now, as others leave so
	// much unused. They are set where the task exceeds the limit.
	borrow, more int64
}

// isShort reports whether the task exceeds what its cluster may hold now.
func (s *demand) isShort() bool { return s.used+s.need > s.limit+s.more }

// text says how much the task needs and what is left.
func (s *demand) text() string {
	switch {
	case s.need > s.limit+s.borrow && s.borrow > 0:
		return fmt.Sprintf("%s %s needed, %s allowed with %s borrowed", s.name(), s.format(s.need),
			s.format(s.limit+s.borrow), s.format(s.borrow))
	case s.need > s.limit+s.borrow:
		return fmt.Sprintf("%s %s needed, %s allowed", s.name(), s.format(s.need), s.format(s.limit))
	}
	text := fmt.Sprintf("%s %s needed, %s of %s used", s.name(), s.format(s.need), s.format(s.used), s.format(s.limit))
	if s.borrow > 0 {
		borrowed := max(s.used-s.limit, 0)
		text += fmt.Sprintf(" (%s borrowed, %s more can be)", s.format(borrowed),
			s.format(max(s.more-borrowed, 0)))
	}
	return text
}

// exceeded yields the limits of its cluster's quota that the task would exceed.
func (d *Draft) exceeded(p *cluster.Pending) iter.Seq[demand] {
	return func(yield func(demand) bool) {
		q := d.ledger.quotas[p.Owner.Cluster]
		if q == nil {
			return
		}
		for s := range d.needs(p, q) {
			if s.need <= 0 || s.used+s.need <= s.limit {
				continue
			}
			if q.Borrow != nil && p.Owner.Kind == cluster.KindJob {
				if s.borrow = s.borrowOf(q); s.borrow > 0 {
					s.more = max(min(s.borrow, d.unusedByOthers(p.Owner.Cluster, s.resource)), 0)
				}
			}
			if !yield(s) {
				return
			}
		}
	}
}

// needs yields what a task needs of each limit of a quota.
func (d *Draft) needs(p *cluster.Pending, q *cluster.Quota) iter.Seq[demand] {
	return func(yield func(demand) bool) {
		var none use
		held := cmp.Or(d.ledger.uses[p.Owner.Cluster], &none)
		added := cmp.Or(d.added.uses[p.Owner.Cluster], &none)
		if q.CPU > 0 && !yield(demand{
			resource: resource{kind: cpu}, need: int64(p.Demand.CPU),
			used: int64(held.demand.CPU + added.demand.CPU), limit: int64(q.CPU),
		}) {
			return
		}
		if q.Memory > 0 && !yield(demand{
			resource: resource{kind: memory}, need: int64(p.Demand.Memory),
			used: int64(held.demand.Memory + added.demand.Memory), limit: int64(q.Memory),
		}) {
			return
		}
		if q.Disk > 0 && !yield(demand{
			resource: resource{kind: disk}, need: int64(p.Demand.Disk),
			used: int64(held.demand.Disk + added.demand.Disk), limit: int64(q.Disk),
		}) {
			return
		}
		if len(p.Devices) > 0 && !yieldDevices(p, q, held, added, yield) {
			return
		}
		if q.Tasks > 0 && !yield(demand{
			resource: resource{kind: tasks}, need: 1,
			used:  int64(len(held.tasks) + len(added.tasks) - d.replaced[p.Owner.Cluster]),
			limit: int64(q.Tasks),
		}) {
			return
		}
		job := p.Owner
		if q.Jobs > 0 && job.Kind == cluster.KindJob && held.jobs[job.Name]+added.jobs[job.Name] == 0 {
			yield(demand{
				resource: resource{kind: jobs}, need: 1, used: int64(jobsOf(held, added)), limit: int64(q.Jobs),
			})
		}
	}
}

// yieldDevices yields what a task needs of each type of devices that the quota limits.
func yieldDevices(p *cluster.Pending, q *cluster.Quota, held, added *use, yield func(demand) bool) bool {
	for _, kind := range slices.Sorted(maps.Keys(q.Devices)) {
		if !yield(demand{
			resource: resource{device, kind}, need: devicesOf(p.Devices, kind),
			used:  int64(held.devices[kind] + added.devices[kind]),
			limit: int64(q.Devices[kind]) * cluster.WholeDevice,
		}) {
			return false
		}
	}
	return true
}

// devicesOf returns how much of a type of devices requests are for, in thousandths.
func devicesOf(requests []cluster.DeviceRequest, kind string) (n int64) {
	for i := range requests {
		if typeOf(&requests[i]) == kind {
			n += int64(thousandths(&requests[i]))
		}
	}
	return n
}

// jobsOf returns the number of jobs with tasks.
func jobsOf(held, added *use) int {
	jobs := len(held.jobs)
	for name := range added.jobs { // order-free: counted
		if held.jobs[name] == 0 {
			jobs++
		}
	}
	return jobs
}

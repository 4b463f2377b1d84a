package advice

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// maxQueueTries limits how often one Overtake decides for the whole queue.
const maxQueueTries = 8

// Overtake returns the smallest changes of a task of a job after which it starts now, although the room that it would
// find is kept for tasks ahead of it in the queue: a time limit with which it ends before the room is needed, and a
// priority with which it comes first. queue is all that waits, the task among it. A change is made to the request, or
// to all members of the gang, to which the task belongs. There are no suggestions if the task starts anyway, or if
// neither change suffices. f is not changed.
func Overtake(f *scheduler.Fleet, queue []cluster.Pending, task cluster.TaskID, opts scheduler.Options) (
	list []cluster.Suggestion,
) {
	at := slices.IndexFunc(queue, func(p cluster.Pending) bool { return p.Range().Has(task) })
	if at < 0 || queue[at].Owner.Kind != cluster.KindJob {
		return nil
	}
	o := overtaking{fleet: f, queue: queue, at: at, opts: opts}
	res := scheduler.Schedule(f, queue, opts)
	if o.placed(res) {
		return nil
	}
	for _, try := range [][]cluster.Remedy{o.limits(res), o.priorities(res)} {
		for i := range try {
			if o.suffices(&try[i]) {
				list = append(list, suggestionOf(&found{changes: []cluster.Remedy{try[i]}}))
				break
			}
		}
	}
	return list
}

// overtaking is the state of one Overtake.
type overtaking struct {
	fleet *scheduler.Fleet
	queue []cluster.Pending
	at    int // index of the task's request
	opts  scheduler.Options
	tries int
}

// placed reports whether the first task of the request is placed.
func (o *overtaking) placed(res scheduler.Result) bool {
	task := o.queue[o.at].Task
	return slices.ContainsFunc(res.Placements, func(p scheduler.Placement) bool { return p.Task == task })
}

// suffices reports whether a change of the request is enough for it.
func (o *overtaking) suffices(c *cluster.Remedy) bool {
	if o.tries++; o.tries > maxQueueTries {
		return false
	}
	changed := slices.Clone(o.queue)
	gang := changed[o.at].Gang
	for i := range changed {
		if i == o.at || gang != "" && changed[i].Gang == gang {
			toTask(c, &changed[i])
		}
	}
	return o.placed(scheduler.Schedule(o.fleet, changed, o.opts))
}

// limits returns the time limits with which the task would end before the time of a promise, the longest first.
func (o *overtaking) limits(res scheduler.Result) (list []cluster.Remedy) {
	var limits []time.Duration
	own := time.Duration(o.queue[o.at].TimeLimit)
	for i := range res.Waiting {
		w := res.Waiting[i].Promise
		if w == nil || w.At.IsZero() {
			continue
		}
		limit := w.At.Sub(o.opts.Now)
		if round := limit.Truncate(time.Minute); round > 0 {
			limit = round
		} else {
			limit = limit.Truncate(time.Second)
		}
		if limit > 0 && (own == 0 || limit < own) && !slices.Contains(limits, limit) {
			limits = append(limits, limit)
		}
	}
	slices.Sort(limits)
	slices.Reverse(limits)
	for _, limit := range limits[:min(len(limits), maxQueueTries/2)] {
		list = append(list, limited(cluster.Duration(limit)))
	}
	return list
}

// priorities returns the priorities with which the task would come before a task that has a promise, the lowest first.
func (o *overtaking) priorities(res scheduler.Result) (list []cluster.Remedy) {
	p := &o.queue[o.at]
	gained := scheduler.Rank(p, o.opts.Now) - p.Priority
	var priorities []int
	for i := range res.Waiting {
		if res.Waiting[i].Promise == nil {
			continue
		}
		for j := range o.queue {
			if other := &o.queue[j]; other.Range().Has(res.Waiting[i].Task) {
				priority := scheduler.Rank(other, o.opts.Now) - gained
				if cmp.Or(p.Since.Compare(other.Since), cmp.Compare(p.Task, other.Task)) > 0 {
					priority++ // of equal ranks the one that waits longer comes first
				}
				if priority > p.Priority && priority <= cluster.MaxPriority && !slices.Contains(priorities, priority) {
					priorities = append(priorities, priority)
				}
			}
		}
	}
	slices.Sort(priorities)
	for _, priority := range priorities[:min(len(priorities), maxQueueTries/2)] {
		list = append(list, prioritized(p.Priority, priority))
	}
	return list
}

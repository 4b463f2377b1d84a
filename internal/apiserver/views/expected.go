package views

import (
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/starts"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/forecast"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// forecast sets when the tasks that wait for room probably start, by the first task of each request.
func (q *queue) forecast() {
	if q.starts != nil {
		return
	}
	q.starts = q.source.starts.Starts(&starts.Input{
		Domain: q.Domain.Name, Snapshot: q.Snapshot, Now: q.Domain.Now, Fleet: q.Fleet,
		Pending: func(yield func(*cluster.Pending) bool) { q.waitingLine().inOrder(yield) },
		Waits:   q.waitingReason, Unfinished: q.unfinished, Clock: q.source.Clock,
	})
}

// unfinished returns the number of tasks of a job's run that have not ended.
func (q *queue) unfinished(o cluster.OwnerRef) int {
	e, ok := q.Snapshot.Job(o.Cluster, o.Name)
	if !ok {
		return 0
	}
	st := reconciler.StatusOfJob(q.Domain.JobInput(o, e, q.Domain.Tasks(o)))
	return st.Pending + st.Running
}

// inOrder yields the requests in line, in their order.
func (w *waitingLine) inOrder(yield func(*cluster.Pending) bool) {
	for i := range w.order {
		if !yield(&w.pending[w.order[i].Pending]) {
			return
		}
	}
}

// expected returns when the first and the last task of a request probably start, nil if that is not known. No task is
// expected later than its promise.
func (q *queue) expected(p *cluster.Pending, promise *cluster.Promise) (first, last *api.Expected) {
	s, known := q.starts[p.Task]
	if !known || p.Hold != (cluster.Hold{}) {
		return nil, nil
	}
	first, last = expectedOf(s.First), expectedOf(s.Last)
	if promise == nil { // a promise names its own node
		first.Nodes, first.Gang = s.Nodes, len(s.Nodes) > 0 && p.Gang != ""
	}
	if promise != nil && !promise.At.IsZero() {
		for _, at := range []*time.Time{&first.From, &first.Median, &first.To} {
			if at.IsZero() || at.After(promise.At) {
				*at = promise.At
			}
		}
	}
	return first, last
}

func expectedOf(v forecast.Interval) *api.Expected {
	return &api.Expected{From: v.From.UTC(), Median: v.Median.UTC(), To: v.To.UTC()}
}

// ExpectedStart returns when a pending task probably starts, nil if that is not known. It is that of the first task of
// its request.
func (b *Builder) ExpectedStart(p *cluster.Pending) *api.Expected {
	b = b.ofTask(p.Task)
	if p.Owner.Kind != cluster.KindJob || p.Hold != (cluster.Hold{}) || p.Attempt == 0 {
		return nil
	}
	b.queue.forecast()
	why, _ := b.waitingReason(p.Task)
	first, _ := b.queue.expected(p, why.Promise)
	return first
}

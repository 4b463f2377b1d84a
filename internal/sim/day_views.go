package sim

import (
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
)

// leaderViews is what a leader shows of the jobs of a day, by the views of its API.
type leaderViews struct {
	server  *server
	builder *views.Builder
}

// jobViews returns the views of a leader at the present state of its tables.
func (s *server) jobViews() *leaderViews {
	source := &views.Source{
		Tables: s.tables, Now: time.Now, Clock: s.host.bootClock,
		Leader: views.LeaderOn(views.OnlyDefault(s.plane)),
	}
	return &leaderViews{server: s, builder: source.At(s.tables.Snapshot())}
}

// Reason implements jobViews.
func (l *leaderViews) Reason(task cluster.TaskID) (code cluster.ReasonCode, text string) {
	why, ok := l.server.plane.Waiting(task)
	if !ok {
		return "", ""
	}
	if len(why.Refusals) > 0 {
		code = why.Refusals[0].Code
	}
	return code, why.Sentence
}

// Explain implements jobViews. A task whose delay has passed has no reason but that of the leader.
func (l *leaderViews) Explain(job string, task cluster.TaskID) string {
	in, name, _ := strings.Cut(job, "/")
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: in, Name: name}
	pending, ok := l.builder.FindPending(owner, task)
	if !ok || pending.Attempt != 0 { // see Builder.Pending
		return ""
	}
	v := l.builder.PendingTask(&pending)
	return v.Message
}

// Status implements jobViews.
func (l *leaderViews) Status(job string) (s api.JobStatus, ok bool) {
	in, name, _ := strings.Cut(job, "/")
	e, ok := l.builder.Snapshot.Job(in, name)
	if !ok {
		return s, false
	}
	return l.builder.Job(e).Status, true
}

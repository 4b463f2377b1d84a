package eventlog

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// eventFilter selects events; an empty field selects all. Values of one field are alternatives; all fields must match.
type eventFilter struct {
	types   []string // "task.failed", or "task" for all of that noun
	reasons []cluster.ReasonCode
	cluster string
	// owner is a service, job or cron; an empty cluster means any.
	owner cluster.OwnerRef
	task  cluster.TaskID
	node  string
	// since, unless zero, excludes earlier events.
	since time.Time
}

// eventParameters returns the query parameters that filterOf reads.
func eventParameters() []route.Parameter {
	return []route.Parameter{
		route.QueryParam("types", "string", "types such as \"task.failed\" or \"task\", with commas between"),
		route.QueryParam("reasons", "string", "reasons such as \"oom\", with commas between"),
		route.QueryParam("cluster", "string", "events about this cluster and what is in it"),
		route.QueryParam("service", "string", "events about the services of this name and their tasks"),
		route.QueryParam("job", "string", "events about the jobs of this name and their tasks"),
		route.QueryParam("cron", "string", "events about the crons of this name, not those of the jobs that they made"),
		route.QueryParam("task", "string", "events about this task, all of its attempts"),
		route.QueryParam("node", "string", "events about this node and about tasks on it"),
		route.QueryParam("since", "duration", "leave out events older than this, by the server's clock"),
	}
}

// filterOf reads a filter from a query; now is the server's clock. All faults are returned together.
func filterOf(r *http.Request, now time.Time) (f eventFilter, err error) {
	q := r.URL.Query()
	var faults cluster.Faults
	named := func(name string, valid func(string) bool) string {
		text := q.Get(name)
		if text != "" && !valid(text) {
			faults = append(faults, cluster.Fault{
				Path:    "?" + name,
				Message: "is \"" + respond.Clip(text) + "\", which is not a valid name of a " + name,
			})
		}
		return text
	}
	f.cluster, f.node = named("cluster", cluster.ValidName), named("node", cluster.ValidNodeName)
	for _, kind := range []cluster.Kind{cluster.KindService, cluster.KindJob, cluster.KindCron} {
		name := strings.ToLower(string(kind))
		switch text := named(name, cluster.ValidName); {
		case text == "":
		case f.owner.Name != "":
			faults = append(faults, cluster.Fault{
				Path:    "?" + name,
				Message: "cannot be given beside another owner: name one service, job or cron at a time",
			})
		default:
			f.owner = cluster.OwnerRef{Kind: kind, Cluster: f.cluster, Name: text}
		}
	}
	f.task = cluster.TaskID(named("task", func(text string) bool { _, ok := cluster.TaskID(text).Parts(); return ok }))
	if text := q.Get("types"); text != "" {
		f.types = strings.Split(text, ",")
	}
	if text := q.Get("reasons"); text != "" {
		for code := range strings.SplitSeq(text, ",") {
			f.reasons = append(f.reasons, cluster.ReasonCode(code))
		}
	}
	ago, err := route.Duration(r, "since")
	if err != nil {
		faults = append(faults, respond.ProblemOf(err).Faults...)
	}
	if ago > 0 {
		f.since = now.Add(-ago)
	}
	if len(faults) > 0 {
		p := respond.Problemf(http.StatusBadRequest, "the query has %s", respond.Plural(len(faults), "fault"))
		p.Faults = faults
		return f, p
	}
	return f, nil
}

// matches reports whether the filter selects an event of a batch at the time.
func (f *eventFilter) matches(e *cluster.Event, at time.Time) bool {
	switch {
	case !f.since.IsZero() && at.Before(f.since):
		return false
	case len(f.types) > 0 && !slices.ContainsFunc(f.types, func(t string) bool {
		return e.Type == t || strings.HasPrefix(e.Type, t+".")
	}):
		return false
	case len(f.reasons) > 0 && !slices.Contains(f.reasons, e.Reason):
		return false
	case f.node != "" && e.Node != f.node, f.task != "" && e.Task != f.task,
		f.cluster != "" && clusterOf(e) != f.cluster:
		return false
	}
	return f.owner.Name == "" || f.ofOwner(e)
}

// ofOwner reports whether an event is about the filter's owner or one of its tasks. The caller has checked the cluster.
func (f *eventFilter) ofOwner(e *cluster.Event) bool {
	if e.Owner != nil {
		return e.Owner.Kind == f.owner.Kind && e.Owner.Name == f.owner.Name
	}
	owner, ok := e.Task.Owner()
	return ok && owner.Kind == f.owner.Kind && owner.Name == f.owner.Name
}

// clusterOf returns the cluster that an event is about, "" for none.
func clusterOf(e *cluster.Event) string {
	if e.Cluster != "" {
		return e.Cluster
	}
	if e.Owner != nil {
		return e.Owner.Cluster
	}
	parts, _ := e.Task.Parts()
	return parts.Cluster
}

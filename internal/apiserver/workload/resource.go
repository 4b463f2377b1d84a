// Package workload holds the operations of services, jobs, crons and tasks: to list, read, write, scale, roll out, stop
// and explain them.
package workload

import (
	"iter"
	"net/http"
	"reflect"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// resource serves the operations that services, jobs, crons and endpoints share: list, read, write, change and delete.
// T is the object, P its pointer, and V its view.
type resource[T any, P userObject[T], V any] struct {
	Common

	noun string // name in paths and messages
	key  func(store.Prefix, *T) string
	all  func(*store.Snapshot, string) iter.Seq[store.Entry[T]]
	one  func(snap *store.Snapshot, in, name string) (store.Entry[T], bool)
	head func(*T) head
	set  func(*draft.Draft, *T, draft.Precondition) (api.Change, error)
	view func(*views.Builder, store.Entry[T]) V
	// show removes from a view what the caller may not see.
	show func(*access.Caller, *V)
	// shorten removes from a view what a brief list leaves out; nil if there are no brief lists.
	shorten func(*V)
	// topics are the topics of the list. touched returns the elements ("cluster/name") that changes touch, or that they
	// may touch all.
	topics  store.Topic
	touched func(now *store.Snapshot, c *store.Changes) (names map[string]bool, whole bool)
	// showsOthers says that the views show services or jobs of other names.
	showsOthers bool
	// steady returns a view without the fields that change all the time; nil if it has none.
	steady func(V) V
}

// userObject is a pointer to an object that users write.
type userObject[T any] interface {
	*T
	draft.Spec
}

// head has the fields that all objects have.
type head struct {
	cluster, name *string
	labels        cluster.Labels
	life          *cluster.Lifespan
}

// Common is what the operations of this package need.
type Common struct {
	backend.Backend

	Views *views.Source
	Pins  *agentapi.Pins
}

func (c Common) services() resource[cluster.Service, *cluster.Service, api.ServiceView] {
	return resource[cluster.Service, *cluster.Service, api.ServiceView]{
		Common: c, noun: "service",
		key:  func(p store.Prefix, svc *cluster.Service) string { return p.Service(svc.Cluster, svc.Name) },
		all:  (*store.Snapshot).Services,
		one:  (*store.Snapshot).Service,
		head: func(svc *cluster.Service) head { return head{&svc.Cluster, &svc.Name, svc.Labels, &svc.Lifespan} },
		set:  (*draft.Draft).SetService,
		view: (*views.Builder).Service,
		show: (*access.Caller).ShowService,

		topics: ownerTopics, touched: changedNames(cluster.KindService),
	}
}

func (c Common) jobs() resource[cluster.Job, *cluster.Job, api.JobView] {
	return resource[cluster.Job, *cluster.Job, api.JobView]{
		Common: c, noun: "job",
		key:     func(p store.Prefix, job *cluster.Job) string { return p.Job(job.Cluster, job.Name) },
		all:     (*store.Snapshot).Jobs,
		one:     (*store.Snapshot).Job,
		head:    func(job *cluster.Job) head { return head{&job.Cluster, &job.Name, job.Labels, &job.Lifespan} },
		set:     (*draft.Draft).SetJob,
		view:    (*views.Builder).Job,
		show:    (*access.Caller).ShowJob,
		shorten: func(v *api.JobView) { v.Steps, v.Status.Steps = []cluster.Step{}, nil },

		topics: ownerTopics, touched: changedNames(cluster.KindJob),
	}
}

// listRoutes returns the operations that list the objects of all clusters and of one.
func (c resource[T, P, V]) listRoutes(plural string) []route.Route {
	parameters := []route.Parameter{route.ByName(), route.BySelector("elements")}
	if c.shorten != nil {
		parameters = append(parameters, route.QueryParam("brief", "boolean", "leave the steps out of the jobs"))
	}
	all := route.Route{
		Method: "GET", Path: "/v1/" + c.noun + "s", Name: "listAll" + plural, Role: cluster.RoleViewer, Shared: true,
		Summary: "The " + c.noun + "s of all clusters.",
		Query:   route.ListParameters(parameters...),
		Reply:   reflect.TypeFor[api.Page[V]](), Stream: route.MediaEventStream, Long: true, Serve: c.list,
	}
	one := all
	one.Path, one.Name, one.Shared = "/v1/clusters/{cluster}/"+c.noun+"s", "list"+plural, false
	one.Summary = "The " + c.noun + "s of a cluster."
	return []route.Route{all, one}
}

func (c resource[T, P, V]) list(w http.ResponseWriter, r *http.Request) error {
	in := r.PathValue("cluster")
	if err := c.KnownCluster(r, in); err != nil {
		return err
	}
	caller, only := access.CallerOf(r.Context()), r.URL.Query().Get("name")
	labels, err := route.SelectorOf(r)
	if err != nil {
		return err
	}
	item := c.itemsFor(r)
	return lists.Serve(c.Lists, w, r, lists.Source[V]{
		Lasting: c.steady,
		List:    c.noun + "s", Topics: c.topics, Touches: touchesOwners(func(o cluster.OwnerRef) bool {
			return (in == "" || o.Cluster == in) && (only == "" || o.Name == only || c.showsOthers) &&
				caller.Sees(o.Cluster)
		}),
		Part: func(i *lists.Item[V]) string { return i.Key },
		All: func(snap *store.Snapshot) (all []lists.Item[V]) {
			b := c.Views.At(snap)
			for e := range c.all(snap, in) {
				h := c.head(e.Value)
				if caller.Sees(*h.cluster) && (only == "" || *h.name == only) && labels.Matches(h.labels) {
					all = append(all, item(b, *h.cluster+"/"+*h.name, e))
				}
			}
			return all
		},
		Some: func(_, now *store.Snapshot, changes *store.Changes) (parts map[string][]lists.Item[V], whole bool) {
			names, whole := c.touched(now, changes)
			if whole {
				return nil, true
			}
			b := c.Views.At(now)
			parts = map[string][]lists.Item[V]{}
			for key := range names { // order-free: each on its own
				of, name, _ := strings.Cut(key, "/")
				if in != "" && of != in || only != "" && name != only || !caller.Sees(of) {
					continue
				}
				parts[key] = nil
				if e, ok := c.one(now, of, name); ok && labels.Matches(c.head(e.Value).labels) {
					parts[key] = []lists.Item[V]{item(b, key, e)}
				}
			}
			return parts, false
		},
	})
}

// itemsFor returns what makes the elements of a list that answers a request.
func (c resource[T, P, V]) itemsFor(r *http.Request) func(*views.Builder, string, store.Entry[T]) lists.Item[V] {
	caller, brief := access.CallerOf(r.Context()), c.shorten != nil && route.Flag(r, "brief")
	return func(b *views.Builder, key string, e store.Entry[T]) lists.Item[V] {
		v := c.viewFor(caller, b, e)
		if brief {
			c.shorten(&v)
		}
		return lists.Item[V]{Key: key, Value: v}
	}
}

// viewFor returns the view of an object as a caller may see it.
func (c resource[T, P, V]) viewFor(caller *access.Caller, b *views.Builder, e store.Entry[T]) V {
	v := c.view(b, e)
	c.show(caller, &v)
	return v
}

// shown returns the view of an object as the caller of a request may see it.
func (c resource[T, P, V]) shown(r *http.Request, snap *store.Snapshot, e store.Entry[T]) V {
	return c.viewFor(access.CallerOf(r.Context()), c.Views.At(snap), e)
}

// named returns the cluster and the name in the address.
func (c resource[T, P, V]) named(r *http.Request) (in, name string) {
	return r.PathValue("cluster"), r.PathValue(c.noun)
}

func (c resource[T, P, V]) read(w http.ResponseWriter, r *http.Request) error {
	snap, err := c.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	return c.answer(w, r, snap, http.StatusOK)
}

func (c resource[T, P, V]) answer(w http.ResponseWriter, r *http.Request, snap *store.Snapshot, status int) error {
	in, name := c.named(r)
	e, ok := c.one(snap, in, name)
	if !ok {
		return respond.NotFound(c.noun, in+"/"+name)
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, status, c.shown(r, snap, e))
}

func (c resource[T, P, V]) write(w http.ResponseWriter, r *http.Request) error {
	in, name := c.named(r)
	var asked T
	pre, err := draft.ReadObject(w, r, P(&asked), func() cluster.Faults {
		h := c.head(&asked)
		return append(draft.FillName("cluster", h.cluster, in), draft.FillName("name", h.name, name)...)
	})
	if err != nil {
		return err
	}
	set := draft.Single(P(&asked))
	caller := access.CallerOf(r.Context())
	c.Pins.Pin(r.Context(), caller, draft.DefinitionsOf(set),
		agentapi.RunnersOf(caller, c.Reads.Tables.Snapshot(), set))
	var change api.Change
	mine := written[T]{}
	snap, err := c.Writer.Write(r.Context(), func(d *draft.Draft) (err error) {
		object := asked
		change, err = c.set(d, &object, pre)
		mine = written[T]{&object, d}
		return draft.AsProblem(err)
	})
	if err != nil {
		return err
	}
	return c.answerWrite(w, r, snap, mine, draft.StatusOfWrite(change))
}

// written is an object of a draft.
type written[T any] struct {
	object *T
	draft  *draft.Draft
}

// answerWrite answers with an object as the request wrote it, with that write's revision. A later write may already be
// in the tables. Its revision in an If-Match would overwrite a state that the client never saw.
func (c resource[T, P, V]) answerWrite(w http.ResponseWriter, r *http.Request, snap *store.Snapshot, mine written[T],
	status int,
) error {
	e, err := c.afterWrite(r, snap, mine)
	if err != nil {
		return err
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, status, c.shown(r, snap, e))
}

// afterWrite returns an object as the request wrote it, see answerWrite.
func (c resource[T, P, V]) afterWrite(r *http.Request, snap *store.Snapshot, mine written[T]) (store.Entry[T], error) {
	in, name := c.named(r)
	e, ok := c.one(snap, in, name)
	switch at := mine.draft.Revision; {
	case at != 0 && (!ok || e.Modified != at):
		return store.Entry[T]{Value: mine.object, Key: e.Key, Created: e.Created, Modified: at}, nil
	case !ok:
		return e, respond.NotFound(c.noun, in+"/"+name)
	}
	return e, nil
}

// change changes an object and answers with it. The function do changes the object and reports whether to write it.
func (c resource[T, P, V]) change(w http.ResponseWriter, r *http.Request,
	do func(*draft.Draft, *T) (bool, error),
) error {
	snap, mine, err := c.applyChange(r, do)
	if err != nil {
		return err
	}
	return c.answerWrite(w, r, snap, mine, http.StatusOK)
}

// applyChange changes an object, see change.
func (c resource[T, P, V]) applyChange(r *http.Request, do func(*draft.Draft, *T) (bool, error)) (*store.Snapshot,
	written[T],
	error,
) {
	in, name := c.named(r)
	mine := written[T]{}
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return nil, mine, err
	}
	snap, err := c.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := c.one(d.Snap, in, name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound(c.noun, in+"/"+name)
		}
		next := *e.Value
		mine = written[T]{&next, d}
		life := c.head(&next).life
		if life.Deleted {
			return respond.Problemf(http.StatusConflict,
				"%s %s/%s is being deleted: wait until it is gone, as `berth wait --for gone` does", c.noun, in, name)
		}
		write, err := do(d, &next)
		if err != nil || !write {
			return draft.AsProblem(err)
		}
		life.Updated, life.Trace = d.Now, d.Trace
		d.Put(c.key(d.Prefix, &next), &next, e.Modified)
		return nil
	})
	return snap, mine, err
}

// delete marks an object as deleted. The control plane stops its tasks and then removes the record.
func (c resource[T, P, V]) delete(w http.ResponseWriter, r *http.Request) error {
	in, name := c.named(r)
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	var last V
	snap, err := c.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := c.one(d.Snap, in, name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound(c.noun, in+"/"+name)
		}
		next := *e.Value
		if life := c.head(&next).life; !life.Deleted {
			life.Deleted, life.Updated, life.Trace = true, d.Now, d.Trace
			d.Put(c.key(d.Prefix, &next), &next, e.Modified)
		}
		e.Value = &next
		last = c.shown(r, d.Snap, e)
		return nil
	})
	if err != nil {
		return err
	}
	if e, ok := c.one(snap, in, name); ok {
		last = c.shown(r, snap, e)
		respond.SetETag(w, e.Modified)
	}
	return respond.JSON(w, http.StatusAccepted, last) // it may be gone already
}

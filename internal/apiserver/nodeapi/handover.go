package nodeapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// adoptNode makes this store the next owner of a node, or says what is in the way. The body is a request of the node's
// administrator with the objects that the present owner showed.
func (a *API) adoptNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.NodeAdoptRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	if name := r.PathValue("node"); ask.Objects.Node != name || !cluster.ValidNodeName(name) {
		return respond.Invalid(cluster.Faults{{Path: "objects.node", Message: fmt.Sprintf("is %q, want the node %s",
			respond.Clip(ask.Objects.Node), respond.Clip(name))}})
	}
	domain := cmp.Or(ask.Domain, cluster.DefaultDomain)
	var reply api.NodeAdoptReply
	fill := func(d *draft.Draft) (err error) {
		if reply.Changes, err = d.AdoptNode(&ask.Objects, domain); err != nil {
			return draft.AsProblem(err)
		}
		return a.Writer.CheckSize(d, nil)
	}
	if err := a.Writer.WriteUnless(r.Context(), ask.DryRun, fill); err != nil {
		return err
	}
	if !ask.DryRun {
		access.ExchangeOf(r.Context()).Object = fmt.Sprintf("node %s with %d services", ask.Objects.Node,
			len(ask.Objects.Services))
	}
	return respond.JSON(w, http.StatusOK, reply)
}

// releaseNode gives a node up for an owner outside of this store, or shows what moves and what is in the way. The
// objects are deleted here and the node is marked in one transaction, which compares every object with the revision
// that the next owner has adopted. No server sends the node anything from then on, so the tasks run on.
func (a *API) releaseNode(w http.ResponseWriter, r *http.Request) error {
	var ask api.NodeReleaseRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	name := r.PathValue("node")
	var reply api.NodeReleaseReply
	fill := func(d *draft.Draft) error {
		reply = api.NodeReleaseReply{}
		if host, ok := d.Snap.Host(name); ok && host.Value.Released != 0 {
			reply.Released = true
			return nil
		}
		rel := release{API: a, d: d, snap: d.Snap, node: name}
		if err := rel.collect(); err != nil {
			return err
		}
		reply.Objects = rel.objects
		if ask.DryRun {
			return nil
		}
		if !maps.Equal(ask.Revisions, rel.objects.Revisions) {
			return respond.Problemf(http.StatusConflict, "the objects of node %s have changed since they were read: "+
				"repeat the command", name)
		}
		reply.Released = true
		rel.write()
		return a.Writer.CheckSize(d, nil)
	}
	if err := a.Writer.WriteUnless(r.Context(), ask.DryRun, fill); err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, reply)
}

// release collects and removes what moves with a node.
type release struct {
	*API
	d       *draft.Draft
	snap    *store.Snapshot
	node    string
	only    bool // the node is the only one of the store
	objects api.NodeObjects
	faults  cluster.Faults
	moving  map[cluster.OwnerRef]bool
	refs    map[cluster.Ref]bool
}

func (r *release) refuse(path, format string, args ...any) {
	r.faults = append(r.faults, cluster.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

// collect fills in the objects. The error lists all conflicts.
func (r *release) collect() error {
	node, ok := r.snap.Node(r.node)
	host, set := r.snap.Host(r.node)
	awaited := !ok && set && host.Value.Generation > 0 // it was adopted, and has not come
	if !ok && !awaited {
		return respond.NotFound("node", r.node)
	}
	r.moving, r.refs = map[cluster.OwnerRef]bool{}, map[cluster.Ref]bool{}
	r.objects = api.NodeObjects{Node: r.node, Revisions: map[string]uint64{}}
	domain := r.snap.WantedDomain(r.node)
	if awaited {
		r.objects.Generation = host.Value.Generation
	} else {
		r.objects.Generation, domain = node.Value.Generation, node.Value.Domain
	}
	r.only = !awaited
	for e := range r.snap.Nodes() {
		r.only = r.only && e.Value.Name == r.node
	}
	if set {
		if host.Value.Gone || host.Value.Drain != nil {
			r.refuse("node", "%s is being drained or was forgotten: undrain it first (berth node uncordon %s)", r.node,
				r.node)
		}
		r.objects.Labels, r.objects.Taints = host.Value.Labels, host.Value.Taints
		r.objects.ReservedPorts = host.Value.ReservedPorts
	}
	if recovery, ok := r.snap.Recovery(domain); ok && recovery.Value.State == cluster.RecoveryNeeded {
		r.refuse("node", "the store of its servers went back: decide first (berth operator recover)")
	}
	for e := range r.snap.Services("") {
		r.service(e)
	}
	for e := range r.snap.Jobs("") {
		r.job(e)
	}
	for e := range r.snap.Crons("") {
		r.cron(e)
	}
	for e := range r.snap.Endpoints("") {
		owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: e.Value.Cluster, Name: e.Value.Service}
		if r.moving[owner] {
			r.objects.Endpoints = append(r.objects.Endpoints, *e.Value)
			r.note(cluster.KindEndpoint, e.Value.Cluster, e.Value.Name, e.Modified)
		}
	}
	r.attempts()
	r.definitions()
	r.clusters()
	if len(r.faults) > 0 {
		return draft.Conflicts("node "+r.node+" cannot be released", r.faults)
	}
	return nil
}

// note notes the revision of an object that moves.
func (r *release) note(kind cluster.Kind, in, name string, revision uint64) {
	r.objects.Revisions[string(kind)+"/"+in+"/"+name] = revision
}

// moves reports whether tasks of a placement run on the node alone.
func (r *release) moves(p *cluster.Placement) bool { return r.only || draft.IsBound(p, r.node) }

// service adds a service that moves, or what is in its way.
func (r *release) service(e store.Entry[cluster.Service]) {
	svc := e.Value
	if !r.moves(&svc.Placement) || svc.Deleted {
		return
	}
	path := "service " + svc.Cluster + "/" + svc.Name
	r.moving[svc.Owner()] = true
	if ro, ok := r.snap.Rollout(svc.Cluster, svc.Name); ok && !svc.Stopped &&
		(ro.Value.Generation != svc.Generation || !ro.Value.State.Ended()) {
		r.refuse(path, "has a rollout in progress: wait for its end (berth rollout status %s)", svc.Name)
	}
	for row := range r.snap.Attempts(svc.Owner()) {
		if row.Standing() && row.Node != r.node {
			r.refuse(path, "has a task on node %s: the service would be at two owners. Wait until it ran on %s alone",
				row.Node, r.node)
			break
		}
	}
	r.objects.Services = append(r.objects.Services, *svc)
	r.refs[svc.Definition] = true
	r.note(cluster.KindService, svc.Cluster, svc.Name, e.Modified)
}

// job refuses a job that has not ended and whose tasks are, or must be, on the node.
func (r *release) job(e store.Entry[cluster.Job]) {
	job := e.Value
	bound := r.only
	for i := range job.Steps {
		bound = bound || draft.IsBound(&job.Steps[i].Placement, r.node)
	}
	for row := range r.snap.Attempts(job.Owner()) {
		bound = bound || row.Live() && row.Node == r.node
	}
	if bound && !r.Views.At(r.snap).Job(e).Status.State.Ended() {
		r.refuse("job "+job.Cluster+"/"+job.Name, "has not ended: wait for it, or cancel it (berth job cancel %s)",
			job.Name)
	}
}

// cron adds a cron whose jobs run on the node alone.
func (r *release) cron(e store.Entry[cluster.Cron]) {
	c := e.Value
	for i := range c.Job.Steps {
		if !r.moves(&c.Job.Steps[i].Placement) {
			return
		}
	}
	r.objects.Crons = append(r.objects.Crons, *c)
	for i := range c.Job.Steps {
		r.refs[c.Job.Steps[i].Definition] = true
	}
	r.note(cluster.KindCron, c.Cluster, c.Name, e.Modified)
}

// attempts checks the attempts on the node. An attempt whose beginning or end is under way is refused: the next owner
// would begin or stop it again.
func (r *release) attempts() {
	seen := map[string]bool{}
	refuse := func(path, format string, args ...any) {
		if !seen[path] {
			seen[path] = true
			r.refuse(path, format, args...)
		}
	}
	for row := range r.snap.NodeAttempts(r.node) {
		if !row.Standing() && !row.IsUnreadable() {
			continue // only its outcome is left
		}
		owner, ok := row.Ref()
		path := "task " + string(row.Task)
		switch {
		case !ok || row.IsForeign() || row.IsUnreadable():
			refuse(path, "has a record that Berth cannot read")
		case owner.Kind == cluster.KindJob && row.Live(): // the job is refused
		case owner.Kind == cluster.KindJob:
		case !r.moving[owner]:
			refuse("service "+owner.Cluster+"/"+owner.Name, "has a task on the node and may run elsewhere, too: move "+
				"it away (a constraint node.name != %s), or bind the service to the node (node.name = %s)", r.node,
				r.node)
		case row.Observed != nil && row.Observed.Gone:
		case row.Outcome != nil, row.Desired != nil && row.Desired.Stop != nil:
			refuse(path, "is ending: try again in a moment")
		case row.Observed == nil || row.Desired == nil:
			refuse(path, "is being placed: try again in a moment")
		case row.Observed.State.Terminal():
			refuse(path, "has just ended: try again in a moment")
		default:
			r.objects.Tasks++
			r.refs[row.Desired.Definition] = true
		}
	}
}

// definitions adds the versions that the objects and their tasks refer to.
func (r *release) definitions() {
	refs := slices.SortedFunc(maps.Keys(r.refs), func(a, b cluster.Ref) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	for _, ref := range refs {
		e, ok := r.snap.Definition(ref)
		if !ok {
			r.refuse("definition "+ref.String(), "is missing")
			continue
		}
		if names := e.Value.Secrets(); len(names) > 0 {
			r.refuse("definition "+ref.String(), "uses the secrets %s: tasks with secrets do not move, because "+
				"another owner has other values under these names", names)
		}
		r.objects.Definitions = append(r.objects.Definitions, *e.Value)
	}
}

// clusters adds the clusters of the objects, and says which of their parts stay.
func (r *release) clusters() {
	names := map[string]bool{}
	for i := range r.objects.Services {
		names[r.objects.Services[i].Cluster] = true
	}
	for i := range r.objects.Crons {
		names[r.objects.Crons[i].Cluster] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c, ok := r.snap.Cluster(name)
		if !ok {
			r.refuse("cluster "+name, "is missing")
			continue
		}
		r.objects.Clusters = append(r.objects.Clusters, *c.Value)
		for e := range r.snap.Secrets(name) {
			r.objects.Stays = append(r.objects.Stays, fmt.Sprintf("the secret %s/%s", name, e.Value.Name))
		}
	}
}

// write drafts the release: the objects are deleted, and the node is marked.
func (r *release) write() {
	why := "it moved with the node " + r.node
	for i := range r.objects.Services {
		e, _ := r.snap.Service(r.objects.Services[i].Cluster, r.objects.Services[i].Name)
		svc := *e.Value
		svc.Deleted = true
		owner := svc.Owner()
		key := r.d.Prefix.Service(svc.Cluster, svc.Name)
		r.d.Put(key, &svc, e.Modified)
		r.d.Instead[key] = cluster.Event{
			Type: "service.deleted", Cluster: svc.Cluster, Owner: &owner, Reason: cluster.ReasonDeleted, Message: why,
		}
	}
	for i := range r.objects.Crons {
		c := &r.objects.Crons[i]
		e, _ := r.snap.Cron(c.Cluster, c.Name)
		fired, _ := r.snap.Fired(c.Cluster, c.Name)
		r.d.Require(r.d.Prefix.Fired(c.Cluster, c.Name), fired.Modified) // no job is made meanwhile
		r.d.Remove(r.d.Prefix.Cron(c.Cluster, c.Name), e.Modified, cluster.Event{
			Type: "cron.deleted", Cluster: c.Cluster, Reason: cluster.ReasonDeleted, Message: why,
			Owner: &cluster.OwnerRef{Kind: cluster.KindCron, Cluster: c.Cluster, Name: c.Name},
		})
	}
	for i := range r.objects.Endpoints {
		p := &r.objects.Endpoints[i]
		e, _ := r.snap.Endpoint(p.Cluster, p.Name)
		owner := p.Owner()
		r.d.Remove(r.d.Prefix.Endpoint(p.Cluster, p.Name), e.Modified, cluster.Event{
			Type: "endpoint.deleted", Cluster: p.Cluster, Owner: &owner, Reason: cluster.ReasonDeleted, Message: why,
		})
	}
	host := cluster.Host{Name: r.node}
	old, ok := r.snap.Host(r.node)
	if ok {
		host = *old.Value
	}
	host.Gone, host.Released = true, max(r.objects.Generation, host.Generation)
	key := r.d.Prefix.Host(r.node)
	r.d.Put(key, &host, old.Modified)
	r.d.Instead[key] = cluster.Event{
		Type: "node.released", Node: r.node,
		Message: fmt.Sprintf("another owner takes it, with %d tasks, which run on", r.objects.Tasks),
	}
}

// HandoverRoutes returns the operations that move a node from one owner to another.
func (a *API) HandoverRoutes() []route.Route {
	return []route.Route{
		{
			Method: "POST", Path: "/v1/nodes/{node}/adopt", Name: "adoptNode", Role: cluster.RoleAdmin,
			Summary: "Takes a node of another owner, with its objects: their generations and versions stay, so its " +
				"tasks run on. 409 lists all conflicts.",
			Body: reflect.TypeFor[api.NodeAdoptRequest](), Reply: reflect.TypeFor[api.NodeAdoptReply](),
			Serve: a.adoptNode,
		},
		{
			Method: "POST", Path: "/v1/nodes/{node}/release", Name: "releaseNode", Role: cluster.RoleAdmin,
			Summary: "Gives a node up for another owner, with the objects that run on it alone. Its tasks run on. " +
				"409 lists all conflicts.",
			Body: reflect.TypeFor[api.NodeReleaseRequest](), Reply: reflect.TypeFor[api.NodeReleaseReply](),
			Serve: a.releaseNode,
		},
	}
}

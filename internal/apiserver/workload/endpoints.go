package workload

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// EndpointsAPI lists, reads, writes and deletes endpoints, and lists their addresses.
type EndpointsAPI struct{ Common }

// Routes returns the operations of endpoints.
func (a *EndpointsAPI) Routes() []route.Route {
	const one = "/v1/clusters/{cluster}/endpoints/{endpoint}"
	view := reflect.TypeFor[api.EndpointView]()
	return append(a.endpoints().listRoutes("Endpoints"), []route.Route{
		{
			Method: "GET", Path: one, Name: "readEndpoint", Role: cluster.RoleViewer,
			Summary: "One endpoint with its status.", Query: []route.Parameter{route.Consistent()}, Reply: view,
			Serve: a.endpoints().read,
		},
		{
			Method: "PUT", Path: one, Name: "writeEndpoint", Role: cluster.RoleSubmitter,
			Summary: "Makes or changes an endpoint.", Writes: true, Body: reflect.TypeFor[cluster.Endpoint](),
			Reply: view, Serve: a.endpoints().write,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteEndpoint", Role: cluster.RoleSubmitter,
			Summary: "Deletes an endpoint. Its service stays as it is.", Writes: true,
			Status: http.StatusNoContent, Serve: a.deleteEndpoint,
		},
		{
			Method: "GET", Path: one + "/addresses", Name: "listEndpointAddresses", Role: cluster.RoleViewer,
			Summary: "The addresses of an endpoint, without those of tasks that are to stop.",
			Query:   route.ListParameters(), Reply: reflect.TypeFor[api.Page[api.EndpointAddress]](),
			Stream: route.MediaEventStream, Long: true, Serve: a.listEndpointAddresses,
		},
	}...)
}

func (a *EndpointsAPI) endpoints() resource[cluster.Endpoint, *cluster.Endpoint, api.EndpointView] {
	return resource[cluster.Endpoint, *cluster.Endpoint, api.EndpointView]{
		Common: a.Common, noun: "endpoint",
		key:  func(p store.Prefix, e *cluster.Endpoint) string { return p.Endpoint(e.Cluster, e.Name) },
		all:  (*store.Snapshot).Endpoints,
		one:  (*store.Snapshot).Endpoint,
		head: func(e *cluster.Endpoint) head { return head{&e.Cluster, &e.Name, e.Labels, &e.Lifespan} },
		set:  (*draft.Draft).SetEndpoint,
		view: (*views.Builder).Endpoint,
		show: (*access.Caller).ShowEndpoint,

		topics: store.TopicEndpoints | ownerTopics, touched: changedEndpoints, showsOthers: true,
	}
}

// deleteEndpoint removes an endpoint immediately, because nothing belongs to it.
func (a *EndpointsAPI) deleteEndpoint(w http.ResponseWriter, r *http.Request) error {
	in, name := a.endpoints().named(r)
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		e, ok := d.Snap.Endpoint(in, name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound("endpoint", in+"/"+name)
		}
		owner := e.Value.Owner()
		d.Remove(d.Prefix.Endpoint(in, name), e.Modified, cluster.Event{
			Type: "endpoint.deleted", Cluster: in, Owner: &owner,
			Reason: cluster.ReasonDeleted, Message: "the user deleted it",
		})
		return nil
	})
}

// listEndpointAddresses lists the addresses of an endpoint.
func (a *EndpointsAPI) listEndpointAddresses(w http.ResponseWriter, r *http.Request) error {
	in, name := a.endpoints().named(r)
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	if _, ok := snap.Endpoint(in, name); !ok {
		return respond.NotFound("endpoint", in+"/"+name)
	}
	// The service is not compared: the endpoint may name another one by the time of the change.
	touches := touchesOwners(func(o cluster.OwnerRef) bool { return o.Kind == cluster.KindService && o.Cluster == in })
	return lists.Serve(a.Lists, w, r, lists.Source[api.EndpointAddress]{
		List: "endpoint-addresses", Topics: store.TopicEndpoints | store.TopicOwners | store.TopicNodes,
		Touches: touches,
		All: func(snap *store.Snapshot) []lists.Item[api.EndpointAddress] {
			return endpointAddresses(snap, in, name)
		},
	})
}

// endpointAddresses shows store.EndpointAddresses. An endpoint that was deleted has none.
func endpointAddresses(snap *store.Snapshot, in, name string) (list []lists.Item[api.EndpointAddress]) {
	e, ok := snap.Endpoint(in, name)
	if !ok {
		return nil
	}
	canary := canaryOf(snap, e.Value.Target())
	all := snap.EndpointAddresses(e.Value)
	for i := range all {
		list = append(list, lists.Item[api.EndpointAddress]{
			Key:   views.TaskKey(all[i].Task, all[i].Attempt),
			Value: views.EndpointAddress(&all[i], e.Value.Port, canary),
		})
	}
	// The keys order numbers: 10 after 9.
	slices.SortFunc(list, func(a, b lists.Item[api.EndpointAddress]) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// changedEndpoints returns the endpoints of services with changed records, tasks or nodes.
func changedEndpoints(now *store.Snapshot, c *store.Changes) (names map[string]bool, whole bool) {
	owners, whole := changedOwners(now, c)
	if whole || c.Endpoints {
		return nil, true
	}
	names = map[string]bool{}
	for e := range now.Endpoints("") {
		if owners[e.Value.Target()] {
			names[e.Value.Cluster+"/"+e.Value.Name] = true
		}
	}
	return names, false
}

package workload

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// ServicesAPI lists, reads, writes, stops and restarts services.
type ServicesAPI struct{ Common }

func (a *ServicesAPI) stopService(w http.ResponseWriter, r *http.Request) error {
	return a.services().change(w, r, func(_ *draft.Draft, svc *cluster.Service) (bool, error) {
		write := !svc.Stopped
		svc.Stopped = true
		return write, nil
	})
}

func (a *ServicesAPI) startService(w http.ResponseWriter, r *http.Request) error {
	return a.services().change(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
		if !svc.Stopped {
			return false, nil
		}
		svc.Stopped = false
		return true, d.RequirePermissions(svc.Cluster, d.CheckPermissions(svc.Cluster, svc.Definition, "definition"))
	})
}

func (a *ServicesAPI) restartService(w http.ResponseWriter, r *http.Request) error {
	return a.services().change(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
		if svc.Stopped {
			return false,
				respond.Problemf(http.StatusConflict, "service %s/%s is stopped: start it", svc.Cluster, svc.Name)
		}
		d.NextVersion(svc)
		svc.Restarted = svc.Generation
		return true, d.RequirePermissions(svc.Cluster, d.CheckPermissions(svc.Cluster, svc.Definition, "definition"))
	})
}

// Routes returns the operations of services.
func (a *ServicesAPI) Routes() []route.Route {
	const one = "/v1/clusters/{cluster}/services/{service}"
	view := reflect.TypeFor[api.ServiceView]()
	return append(a.services().listRoutes("Services"), []route.Route{
		{
			Method: "GET", Path: one, Name: "readService", Role: cluster.RoleViewer,
			Summary: "One service with its status.",
			Query:   []route.Parameter{route.Consistent()}, Reply: view, Serve: a.services().read,
		},
		{
			Method: "PUT", Path: one, Name: "writeService", Role: cluster.RoleSubmitter,
			Summary: "Makes or changes a service.",
			Writes:  true, Body: reflect.TypeFor[cluster.Service](), Reply: view, Serve: a.services().write,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteService", Role: cluster.RoleSubmitter,
			Summary: "Deletes a service: its tasks are stopped, then it is gone.", Writes: true,
			Status: http.StatusAccepted, Reply: view, Serve: a.services().delete,
		},
		{
			Method: "GET", Path: one + "/addresses", Name: "listAddresses", Role: cluster.RoleViewer,
			Summary: "The addresses of the healthy tasks of a service, without those that are to stop.",
			Query:   route.ListParameters(), Reply: reflect.TypeFor[api.Page[api.Address]](),
			Stream: route.MediaEventStream, Long: true,
			Serve: a.listAddresses,
		},
		{
			Method: "POST", Path: one + "/stop", Name: "stopService", Role: cluster.RoleSubmitter,
			Summary: "Stops all tasks and keeps the service.", Writes: true, Reply: view, Serve: a.stopService,
		},
		{
			Method: "POST", Path: one + "/start", Name: "startService", Role: cluster.RoleSubmitter,
			Summary: "Starts a stopped service.", Writes: true, Reply: view, Serve: a.startService,
		},
		{
			Method: "POST", Path: one + "/restart", Name: "restartService", Role: cluster.RoleSubmitter,
			Summary: "Replaces all tasks, as a rollout does.", Writes: true, Reply: view, Serve: a.restartService,
		},
	}...)
}

package apiserver

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// servicesAPI lists, reads, writes, stops and restarts services.
type servicesAPI struct{ workloads }

func (a *servicesAPI) stopService(w http.ResponseWriter, r *http.Request) error {
	return a.services().change(w, r, func(_ *draft, svc *cluster.Service) (bool, error) {
		write := !svc.Stopped
		svc.Stopped = true
		return write, nil
	})
}

func (a *servicesAPI) startService(w http.ResponseWriter, r *http.Request) error {
	return a.services().change(w, r, func(d *draft, svc *cluster.Service) (bool, error) {
		if !svc.Stopped {
			return false, nil
		}
		svc.Stopped = false
		return true, d.still(svc.Cluster, d.permitted(svc.Cluster, svc.Definition, "definition"))
	})
}

func (a *servicesAPI) restartService(w http.ResponseWriter, r *http.Request) error {
	return a.services().change(w, r, func(d *draft, svc *cluster.Service) (bool, error) {
		if svc.Stopped {
			return false, problemf(http.StatusConflict, "service %s/%s is stopped: start it", svc.Cluster, svc.Name)
		}
		d.nextVersion(svc)
		svc.Restarted = svc.Generation
		return true, d.still(svc.Cluster, d.permitted(svc.Cluster, svc.Definition, "definition"))
	})
}

func (a *servicesAPI) routes() []route {
	const list, one = "/v1/clusters/{cluster}/services", "/v1/clusters/{cluster}/services/{service}"
	page, view := reflect.TypeFor[api.Page[api.ServiceView]](), reflect.TypeFor[api.ServiceView]()
	return []route{
		{
			method: "GET", path: "/v1/services", name: "listAllServices", role: cluster.RoleViewer, shared: true,
			summary: "The services of all clusters.", query: listParameters(), reply: page, stream: eventStream,
			long: true, serve: a.services().list,
		},
		{
			method: "GET", path: list, name: "listServices", role: cluster.RoleViewer,
			summary: "The services of a cluster.",
			query:   listParameters(), reply: page, stream: eventStream, long: true, serve: a.services().list,
		},
		{
			method: "GET", path: one, name: "readService", role: cluster.RoleViewer,
			summary: "One service with its status.",
			query:   []parameter{consistent()}, reply: view, serve: a.services().read,
		},
		{
			method: "PUT", path: one, name: "writeService", role: cluster.RoleSubmitter,
			summary: "Makes or changes a service.",
			writes:  true, body: reflect.TypeFor[cluster.Service](), reply: view, serve: a.services().write,
		},
		{
			method: "DELETE", path: one, name: "deleteService", role: cluster.RoleSubmitter,
			summary: "Deletes a service: its tasks are stopped, then it is gone.", writes: true,
			status: http.StatusAccepted, reply: view, serve: a.services().delete,
		},
		{
			method: "GET", path: one + "/addresses", name: "listAddresses", role: cluster.RoleViewer,
			summary: "Where the healthy tasks of a service are reached, without those that are to be stopped.",
			query:   listParameters(), reply: reflect.TypeFor[api.Page[api.Address]](), stream: eventStream, long: true,
			serve: a.listAddresses,
		},
		{
			method: "POST", path: one + "/stop", name: "stopService", role: cluster.RoleSubmitter,
			summary: "Stops all tasks and keeps the service.", writes: true, reply: view, serve: a.stopService,
		},
		{
			method: "POST", path: one + "/start", name: "startService", role: cluster.RoleSubmitter,
			summary: "Starts a stopped service.", writes: true, reply: view, serve: a.startService,
		},
		{
			method: "POST", path: one + "/restart", name: "restartService", role: cluster.RoleSubmitter,
			summary: "Replaces all tasks, as a rollout does.", writes: true, reply: view, serve: a.restartService,
		},
	}
}

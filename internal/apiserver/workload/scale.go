package workload

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// ScalesAPI shows and sets the number of tasks of services.
type ScalesAPI struct{ Common }

// Routes returns the operations of the counts of services.
func (a *ScalesAPI) Routes() []route.Route {
	const one = "/v1/clusters/{cluster}/services/{service}/scale"
	view := reflect.TypeFor[api.ServiceView]()
	return []route.Route{
		{
			Method: "GET", Path: one, Name: "readScale", Role: cluster.RoleViewer,
			Summary: "The count of a service, its targets, and its last changes.",
			Query:   []route.Parameter{route.Consistent()}, Reply: reflect.TypeFor[api.ScaleView](), Serve: a.readScale,
		},
		{
			Method: "POST", Path: one, Name: "scaleService", Role: cluster.RoleSubmitter,
			Summary: "Sets the number of tasks and the bounds of scaling. With scaling, the number is its new " +
				"start.", Writes: true, Body: reflect.TypeFor[api.ScaleRequest](), Reply: view,
			Serve: a.scaleService,
		},
		{
			Method: "POST", Path: one + "/suspend", Name: "suspendScaling", Role: cluster.RoleSubmitter,
			Summary: "Suspends scaling: the number of tasks stays as it is.", Writes: true, Reply: view,
			Serve: a.suspendScaling(true),
		},
		{
			Method: "POST", Path: one + "/resume", Name: "resumeScaling", Role: cluster.RoleSubmitter,
			Summary: "Resumes scaling.", Writes: true, Reply: view,
			Serve: a.suspendScaling(false),
		},
	}
}

// scaleService sets the count and the bounds of a service. Missing bounds stay as they are.
func (a *ScalesAPI) scaleService(w http.ResponseWriter, r *http.Request) error {
	var ask api.ScaleRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	if faults := scaleFaults(&ask); len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return a.services().change(w, r, func(d *draft.Draft, svc *cluster.Service) (bool, error) {
		if svc.Mode == cluster.ModeDaemon {
			return false, draft.Conflictf("count",
				"service %s/%s is a daemon: it has one task on each node that its constraints allow", svc.Cluster,
				svc.Name)
		}
		was := *svc
		if err := setScale(svc, &ask); err != nil {
			return false, err
		}
		if ask.Count != nil && (svc.Scaling != nil || svc.Count != was.Count) {
			svc.Recounted++ // an equal count still ends the count that scaling chose
		}
		if allowsMoreTasks(d, &was, svc) {
			if err := d.RequirePermissions(svc.Cluster,
				d.CheckPermissions(svc.Cluster, svc.Definition, "definition")); err != nil {
				return false, err
			}
		}
		action, _ := draft.Compare(&was, svc)
		return action != api.ActionNone, nil
	})
}

// allowsMoreTasks reports whether a change of a service's count and bounds adds tasks, or lets scaling add some. The
// count that scaling chose may be below the one of the spec.
func allowsMoreTasks(d *draft.Draft, was, svc *cluster.Service) bool {
	scale, _ := d.Snap.Scale(was.Cluster, was.Name)
	if svc.Count > was.At(scale.Value).Count && (svc.Count != was.Count || svc.Recounted != was.Recounted) {
		return true
	}
	return svc.Scaling != nil && (svc.Scaling.Max > was.Scaling.Max || svc.Scaling.Min > was.Scaling.Min)
}

func scaleFaults(ask *api.ScaleRequest) (faults cluster.Faults) {
	if ask.Count == nil && ask.Min == nil && ask.Max == nil {
		return cluster.Faults{{Path: "count", Message: "is missing: want how many tasks there are to be"}}
	}
	check := func(path string, n *int) {
		if n != nil && (*n < 0 || *n > cluster.MaxCount) {
			faults = append(faults, cluster.Fault{
				Path:    path,
				Message: fmt.Sprintf("is %d, want 0 to %d", *n, cluster.MaxCount),
			})
		}
	}
	check("count", ask.Count)
	check("min", ask.Min)
	check("max", ask.Max)
	if ask.Min != nil && ask.Max != nil && *ask.Min > *ask.Max {
		faults = append(faults, cluster.Fault{
			Path:    "min",
			Message: fmt.Sprintf("is %d, and max is %d", *ask.Min, *ask.Max),
		})
	}
	return faults
}

// setScale sets a service's count and the bounds of its scaling. Without a count in the request the present one is
// brought within new bounds.
func setScale(svc *cluster.Service, ask *api.ScaleRequest) error {
	if svc.Scaling == nil {
		if ask.Min != nil || ask.Max != nil {
			return draft.Conflictf("",
				"service %s/%s has no scaling, so it has no bounds: give it some with its manifest",
				svc.Cluster, svc.Name)
		}
		svc.Count = *ask.Count
		return nil
	}
	scaling := *svc.Scaling // the tables' own value must not change
	if ask.Min != nil {
		scaling.Min = *ask.Min
	}
	if ask.Max != nil {
		scaling.Max = *ask.Max
	}
	if scaling.Max < 1 {
		return draft.Faultf("max", "is %d, want 1 to %d: to run none, stop the service", scaling.Max, cluster.MaxCount)
	}
	if scaling.Min > scaling.Max {
		return draft.Faultf("min", "is %d, and max is %d", scaling.Min, scaling.Max)
	}
	svc.Scaling = &scaling
	if ask.Count == nil {
		svc.Count = max(scaling.Min, min(svc.Count, scaling.Max))
		return nil
	}
	if *ask.Count < scaling.Min || *ask.Count > scaling.Max {
		return draft.Faultf("count", "is %d, and the scaling of service %s/%s keeps it from %d to %d: change min "+
			"or max as well",
			*ask.Count, svc.Cluster, svc.Name, scaling.Min, scaling.Max)
	}
	svc.Count = *ask.Count
	return nil
}

func (a *ScalesAPI) suspendScaling(suspend bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		return a.services().change(w, r, func(_ *draft.Draft, svc *cluster.Service) (bool, error) {
			if svc.Scaling == nil {
				return false, draft.Conflictf("", "service %s/%s has no scaling", svc.Cluster, svc.Name)
			}
			if svc.Scaling.Suspended == suspend {
				return false, nil
			}
			scaling := *svc.Scaling
			scaling.Suspended = suspend
			svc.Scaling = &scaling
			return true, nil
		})
	}
}

func (a *ScalesAPI) readScale(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	in, name := a.services().named(r)
	e, ok := snap.Service(in, name)
	if !ok {
		return respond.NotFound("service", in+"/"+name)
	}
	respond.SetETag(w, e.Modified)
	v := a.Views.At(snap).Scale(e)
	access.CallerOf(r.Context()).ShowScale(&v)
	return respond.JSON(w, http.StatusOK, v)
}

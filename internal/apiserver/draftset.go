package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// maxObjects bounds the objects of one apply.
const maxObjects = 10_000

// appliedObject is an object of an apply, read and valid by itself. Only the field of its kind is set.
type appliedObject struct {
	path       string
	kind       cluster.Kind
	name       string // unique within its kind
	cluster    *cluster.Cluster
	definition *cluster.TaskDefinition
	service    *cluster.Service
	job        *cluster.Job
	cron       *cluster.Cron
}

// manifests reads the objects of an apply and puts them in the order in which they are written: what others refer to
// comes first.
func manifests(objects []api.Object) ([]appliedObject, cluster.Faults) {
	var faults cluster.Faults
	if len(objects) > maxObjects {
		return nil, cluster.Faults{{
			Path:    "objects",
			Message: fmt.Sprintf("holds %d objects, at most %d are allowed", len(objects), maxObjects),
		}}
	}
	first := map[string]string{}
	set := make([]appliedObject, 0, len(objects))
	for i, o := range objects {
		m := appliedObject{path: fmt.Sprintf("objects[%d]", i), kind: o.Kind}
		found := m.read(o)
		faults = append(faults, shift(found, m.path)...)
		if len(found) == 0 {
			if other, ok := first[string(m.kind)+" "+m.name]; ok {
				faults = append(faults, cluster.Fault{
					Path:    m.path,
					Message: fmt.Sprintf("is %s %s again, as %s", m.kind, m.name, other),
				})
			}
			first[string(m.kind)+" "+m.name] = m.path
		}
		set = append(set, m)
		if len(faults) > maxFaults {
			break
		}
	}
	order := []cluster.Kind{
		cluster.KindCluster, cluster.KindTaskDefinition, cluster.KindService, cluster.KindJob,
		cluster.KindCron,
	}
	slices.SortStableFunc(set, func(a, b appliedObject) int {
		return cmp.Compare(slices.Index(order, a.kind), slices.Index(order, b.kind))
	})
	return set, faults
}

// read reads and validates an object of its kind.
func (m *appliedObject) read(o api.Object) cluster.Faults {
	var object noun
	switch m.kind {
	case cluster.KindCluster:
		m.cluster = new(cluster.Cluster)
		object = m.cluster
	case cluster.KindTaskDefinition:
		m.definition = new(cluster.TaskDefinition)
		object = m.definition
	case cluster.KindService:
		m.service = new(cluster.Service)
		object = m.service
	case cluster.KindJob:
		m.job = new(cluster.Job)
		object = m.job
	case cluster.KindCron:
		m.cron = new(cluster.Cron)
		object = m.cron
	default:
		return cluster.Faults{{
			Path:    "kind",
			Message: fmt.Sprintf("is %q, want Cluster, TaskDefinition, Service, Job or Cron", clip(string(m.kind))),
		}}
	}
	if len(o.Spec) == 0 || string(o.Spec) == "null" {
		return cluster.Faults{{Path: "spec", Message: "is missing: want the fields of the object"}}
	}
	faults, err := decode(o.Spec, object)
	if err != nil {
		return cluster.FaultsOf(err)
	}
	if len(faults) > 0 {
		return faults
	}
	if faults := complete(object); len(faults) > 0 {
		return faults
	}
	switch m.kind {
	case cluster.KindCluster:
		m.name = m.cluster.Name
	case cluster.KindTaskDefinition:
		m.name = m.definition.Ref().String()
	case cluster.KindService:
		m.name = m.service.Cluster + "/" + m.service.Name
	case cluster.KindJob:
		m.name = m.job.Cluster + "/" + m.job.Name
	case cluster.KindCron:
		m.name = m.cron.Cluster + "/" + m.cron.Name
	}
	return nil
}

// set draws the writes of a set. Faults of all objects are told at once; if all that is wrong are
// conflicts with what stands, the answer is 409.
func (d *draft) set(set []appliedObject) ([]api.Change, error) {
	changes := make([]api.Change, 0, len(set))
	var faults cluster.Faults
	conflicts := 0
	for _, m := range set {
		change, err := d.setOne(m)
		if err != nil {
			found, isConflict := faultsOf(err)
			if found == nil {
				return nil, err
			}
			if isConflict {
				conflicts += len(found)
			}
			faults = append(faults, shift(found, m.path)...)
		}
		changes = append(changes, change)
	}
	if len(faults) == 0 {
		return changes, nil
	}
	p := faulty(faults)
	if conflicts == len(faults) {
		p.Status, p.Title = http.StatusConflict, http.StatusText(http.StatusConflict)
		p.Detail = fmt.Sprintf("the objects have %s with what exists; nothing was written",
			plural(len(faults), "conflict"))
	}
	return nil, p
}

func (d *draft) setOne(m appliedObject) (api.Change, error) {
	switch m.kind {
	case cluster.KindCluster:
		object := *m.cluster
		return d.setCluster(&object, precondition{})
	case cluster.KindTaskDefinition:
		object := *m.definition
		return d.setDefinition(&object)
	case cluster.KindService:
		object := *m.service
		return d.setService(&object, precondition{})
	case cluster.KindJob:
		object := *m.job
		object.Steps = slices.Clone(m.job.Steps) // references are filled in
		return d.setJob(&object, precondition{})
	case cluster.KindCron:
		object := *m.cron
		return d.setCron(&object, precondition{})
	}
	return api.Change{}, fmt.Errorf("unknown kind %q", m.kind)
}

// faultsOf returns the faults that an error of a draft carries, nil if it is of another kind, and whether they are
// conflicts with what exists.
func faultsOf(err error) (faults cluster.Faults, isConflict bool) {
	var c *conflict
	var p *problem
	switch {
	case errors.As(err, &c):
		return cluster.Faults{c.Fault}, true
	case errors.As(err, &p):
		if p.Status != http.StatusConflict {
			return nil, false
		}
		if len(p.Faults) == 0 {
			return cluster.Faults{{Message: p.Detail}}, true
		}
		return p.Faults, true
	case errors.As(err, &faults):
		return faults, false
	}
	return nil, false
}

// asProblem turns the faults of a single object's draft into an answer.
func asProblem(err error) error {
	var p *problem
	if err == nil || errors.As(err, &p) {
		return err
	}
	faults, isConflict := faultsOf(err)
	switch {
	case faults == nil:
		return err
	case isConflict:
		p := problemf(http.StatusConflict, "%s", faults.Error())
		p.Faults = faults
		return p
	}
	return faulty(faults)
}

// definitionsOf returns the definitions of a set.
func definitionsOf(set []appliedObject) (all []*cluster.TaskDefinition) {
	for _, m := range set {
		if m.definition != nil {
			all = append(all, m.definition)
		}
	}
	return all
}

package draft

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// maxObjects bounds the objects of one apply.
const maxObjects = 10_000

// AppliedObject is an object of an apply, read and valid on its own.
type AppliedObject struct {
	Object Spec

	path string
	kind cluster.Kind
	name string // unique within its kind
}

// Manifests reads the objects of an apply and orders them for writing: objects that others refer to come first.
func Manifests(objects []api.Object) ([]AppliedObject, cluster.Faults) {
	var faults cluster.Faults
	if len(objects) > maxObjects {
		return nil, cluster.Faults{{
			Path:    "objects",
			Message: fmt.Sprintf("holds %d objects, at most %d are allowed", len(objects), maxObjects),
		}}
	}
	first := map[string]string{}
	set := make([]AppliedObject, 0, len(objects))
	for i, o := range objects {
		m := AppliedObject{path: fmt.Sprintf("objects[%d]", i), kind: o.Kind}
		found := m.read(o)
		faults = append(faults, strictjson.PrefixPaths(found, m.path)...)
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
		if len(faults) > strictjson.MaxFaults {
			break
		}
	}
	order := []cluster.Kind{
		cluster.KindDomain, cluster.KindCluster, cluster.KindPool, cluster.KindProfile, cluster.KindTaskDefinition,
		cluster.KindService, cluster.KindJob, cluster.KindCron, cluster.KindEndpoint,
	}
	slices.SortStableFunc(set, func(a, b AppliedObject) int {
		return cmp.Compare(slices.Index(order, a.kind), slices.Index(order, b.kind))
	})
	return set, faults
}

// read reads and validates an object of its kind.
func (m *AppliedObject) read(o api.Object) cluster.Faults {
	m.Object = newObject(m.kind)
	if m.Object == nil {
		return cluster.Faults{{
			Path: "kind",
			Message: fmt.Sprintf("is %q, want Cluster, Pool, Profile, TaskDefinition, Service, Job, Cron or Endpoint",
				respond.Clip(string(m.kind))),
		}}
	}
	if len(o.Spec) == 0 || string(o.Spec) == "null" {
		return cluster.Faults{{Path: "spec", Message: "is missing: want the fields of the object"}}
	}
	faults, err := strictjson.Decode(o.Spec, m.Object)
	if err != nil {
		return cluster.FaultsOf(err)
	}
	if len(faults) > 0 {
		return faults
	}
	if faults := Complete(m.Object); len(faults) > 0 {
		return faults
	}
	m.name = nameOf(m.Object)
	return nil
}

// newObject returns a new object of a kind, nil for a kind that no apply writes.
func newObject(kind cluster.Kind) Spec {
	switch kind {
	case cluster.KindDomain:
		return new(cluster.Domain)
	case cluster.KindCluster:
		return new(cluster.Cluster)
	case cluster.KindPool:
		return new(cluster.Pool)
	case cluster.KindProfile:
		return new(cluster.Profile)
	case cluster.KindTaskDefinition:
		return new(cluster.TaskDefinition)
	case cluster.KindService:
		return new(cluster.Service)
	case cluster.KindJob:
		return new(cluster.Job)
	case cluster.KindCron:
		return new(cluster.Cron)
	case cluster.KindEndpoint:
		return new(cluster.Endpoint)
	}
	return nil
}

// nameOf returns the name of an object, unique within its kind.
func nameOf(v Spec) string {
	switch v := v.(type) {
	case *cluster.Domain:
		return v.Name
	case *cluster.Cluster:
		return v.Name
	case *cluster.Pool:
		return v.Name
	case interface{ Ref() cluster.Ref }: // a version of a definition or a profile
		return v.Ref().String()
	case interface{ Owner() cluster.OwnerRef }: // an object in a cluster
		o := v.Owner()
		return o.Cluster + "/" + o.Name
	}
	return ""
}

// CheckReach returns an error if the set holds an object outside of the clusters that the caller is limited to. Task
// definitions are in no cluster. The check reads nothing but the set, so that the answer does not tell what exists in
// other clusters.
func CheckReach(c *access.Caller, set []AppliedObject) error {
	for i := range set {
		in := ""
		switch v := set[i].Object.(type) {
		case *cluster.TaskDefinition:
			continue
		case *cluster.Cluster:
			in = v.Name
		case interface{ Owner() cluster.OwnerRef }:
			in = v.Owner().Cluster
		}
		if err := c.MayReach(in); err != nil {
			return err
		}
	}
	return nil
}

// Set drafts the writes of a set. Faults of all objects are returned together. If all faults are conflicts with present
// objects, the answer is 409.
func (d *Draft) Set(set []AppliedObject) ([]api.Change, error) {
	changes := make([]api.Change, 0, len(set))
	var faults cluster.Faults
	conflicts := 0
	d.needs.note(set)
	for _, m := range set {
		change, err := d.setOne(m.Object)
		if err != nil {
			found, isConflict := faultsOf(err)
			if found == nil {
				return nil, err
			}
			if isConflict {
				conflicts += len(found)
			}
			faults = append(faults, strictjson.PrefixPaths(found, m.path)...)
		}
		changes = append(changes, change)
	}
	if len(faults) == 0 {
		return changes, nil
	}
	p := respond.Invalid(faults)
	if conflicts == len(faults) {
		p.Status, p.Title = http.StatusConflict, http.StatusText(http.StatusConflict)
		p.Detail = fmt.Sprintf("the objects have %s with what exists; nothing was written",
			respond.Plural(len(faults), "conflict"))
	}
	return nil, p
}

// CheckSize returns a problem of status 413 if a draft of the set is too large for one transaction of the store. The
// problem says how many objects of the set fit, in the order in which Manifests returns them.
func (s *Writer) CheckSize(d *Draft, set []AppliedObject) error {
	limits := s.Engine.Limits()
	g, err := d.groupWithEvents()
	if err != nil {
		return err
	}
	need := store.SizeOf([]store.Group{g})
	if limits.Hold(need) {
		return nil
	}
	most := sort.Search(len(set), func(n int) bool {
		part := s.Empty(d.Snap)
		part.Caller, part.By, part.Trace = d.Caller, d.By, d.Trace
		part.needs.note(set)
		if _, err := part.Set(set[:n+1]); err != nil {
			return true
		}
		g, err := part.groupWithEvents()
		return err != nil || !limits.Hold(store.SizeOf([]store.Group{g}))
	})
	detail := fmt.Sprintf(
		"the %d objects need %d operations and %s in one transaction, and this store takes %d and %s; nothing was "+
			"written. ",
		len(set), need.Operations, cluster.Bytes(need.Bytes), limits.Operations, cluster.Bytes(limits.Bytes))
	if most == 0 {
		return respond.Problemf(http.StatusRequestEntityTooLarge, "%sThe object %s alone is too large", detail,
			set[0].name)
	}
	return respond.Problemf(http.StatusRequestEntityTooLarge,
		"%sApply them in parts, domains, clusters and pools first, then task definitions, then the rest: the first %d "+
			"of this order fit", detail, most)
}

// setOne drafts the write of a copy of an object: the draft completes it.
func (d *Draft) setOne(v Spec) (api.Change, error) {
	switch v := v.(type) {
	case *cluster.Domain:
		object := *v
		return d.SetDomain(&object, Precondition{})
	case *cluster.Cluster:
		object := *v
		return d.SetCluster(&object, Precondition{})
	case *cluster.Pool:
		object := *v
		return d.SetPool(&object, Precondition{})
	case *cluster.Profile:
		object := *v
		return d.SetProfile(&object)
	case *cluster.TaskDefinition:
		object := *v
		return d.SetDefinition(&object)
	case *cluster.Service:
		object := *v
		return d.SetService(&object, Precondition{})
	case *cluster.Job:
		object := *v
		object.Steps = slices.Clone(v.Steps) // references are completed
		return d.SetJob(&object, Precondition{})
	case *cluster.Cron:
		object := *v
		return d.SetCron(&object, Precondition{})
	case *cluster.Endpoint:
		object := *v
		return d.SetEndpoint(&object, Precondition{})
	}
	return api.Change{}, fmt.Errorf("unknown object %T", v)
}

// faultsOf returns the faults in an error of a draft, nil for other errors, and whether they are conflicts.
func faultsOf(err error) (faults cluster.Faults, isConflict bool) {
	var c *conflict
	var p *respond.Problem
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

// AsProblem returns the answer to the faults of a single object's draft.
func AsProblem(err error) error {
	var p *respond.Problem
	if err == nil || errors.As(err, &p) {
		return err
	}
	faults, isConflict := faultsOf(err)
	switch {
	case faults == nil:
		return err
	case isConflict:
		p := respond.Problemf(http.StatusConflict, "%s", faults.Error())
		p.Faults = faults
		return p
	}
	return respond.Invalid(faults)
}

// DefinitionsOf returns the definitions of a set, those of templates among them, whose version is 0.
func DefinitionsOf(set []AppliedObject) (all []*cluster.TaskDefinition) {
	for i := range set {
		if def, ok := set[i].Object.(*cluster.TaskDefinition); ok {
			all = append(all, def)
		}
		for _, t := range set[i].Templates() {
			all = append(all, &t.TaskDefinition)
		}
	}
	return all
}

// Templates returns the definitions inside of the object.
func (m *AppliedObject) Templates() (all []*cluster.InlineDefinition) {
	var steps []cluster.Step
	switch v := m.Object.(type) {
	case *cluster.Service:
		if v.Template != nil {
			return []*cluster.InlineDefinition{v.Template}
		}
	case *cluster.Job:
		steps = v.Steps
	case *cluster.Cron:
		steps = v.Job.Steps
	}
	for i := range steps {
		if steps[i].Template != nil {
			all = append(all, steps[i].Template)
		}
	}
	return all
}

// Single returns the set of one object.
func Single(v Spec) []AppliedObject { return []AppliedObject{{Object: v}} }

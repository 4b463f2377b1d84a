package draft

import (
	"fmt"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/measure"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/timetable"
)

// Spec is an object that users write.
type Spec interface {
	SetDefaults()
	Validate() error
}

// ReadObject reads an object and the request's preconditions. Fill completes the object from the address and returns
// the differences. Defaults and validation follow.
func ReadObject(w http.ResponseWriter, r *http.Request, v Spec, fill func() cluster.Faults) (Precondition, error) {
	pre, err := PreconditionOf(r)
	if err != nil {
		return pre, err
	}
	// A client may send back the fields that a read adds; they are ignored.
	if err := strictjson.ReadBody(w, r, v, "revision", "status"); err != nil {
		return pre, err
	}
	faults := fill()
	faults = append(faults, Complete(v)...)
	if len(faults) > 0 {
		return pre, respond.Invalid(faults)
	}
	return pre, nil
}

// countUnset is the count of a service with scaling whose writer left it out, until the draft reads the present one
// (keepCount).
const countUnset = -1

// Complete sets the defaults of an object and returns all of its faults, also those of schedules and expressions.
func Complete(v Spec) cluster.Faults {
	svc, ok := v.(*cluster.Service)
	open := ok && svc.Count == 0 && svc.Scaling != nil && svc.Mode != cluster.ModeDaemon
	v.SetDefaults()
	faults := append(cluster.FaultsOf(v.Validate()), unreadable(v)...)
	if open {
		svc.Count = countUnset
	}
	return faults
}

// keepCount sets an unset count to the present count within the bounds, or to the minimum for a new service.
func keepCount(svc, prev *cluster.Service) {
	if svc.Count != countUnset {
		return
	}
	svc.Count = svc.Scaling.Min
	if prev != nil {
		svc.Count = max(svc.Scaling.Min, min(prev.Count, svc.Scaling.Max))
	}
}

// unreadable returns the faults of schedules and of the expressions of gates, which package cluster does not read.
func unreadable(v Spec) (faults cluster.Faults) {
	if c, ok := v.(*cluster.Cron); ok {
		return unreadableCron(c)
	}
	svc, ok := v.(*cluster.Service)
	if !ok {
		return nil
	}
	for i := range svc.Update.Gates {
		if err := measure.CheckGate(svc.Update.Gates[i]); err != nil {
			faults = append(faults, cluster.Fault{Path: fmt.Sprintf("update.gates[%d].pass", i), Message: err.Error()})
		}
	}
	if svc.Scaling == nil {
		return faults
	}
	for i := range svc.Scaling.Schedules {
		s := &svc.Scaling.Schedules[i]
		if _, err := timetable.Parse(s.Cron, s.Zone); err != nil {
			faults = append(faults, cluster.Fault{
				Path:    fmt.Sprintf("scaling.schedules[%d].cron", i),
				Message: err.Error(),
			})
		}
	}
	return faults
}

// WriteNamed serves the write of an object that the address names. field returns the field with the name, and set
// drafts the object. WriteNamed returns a snapshot that contains the write, the draft, and the status of the answer.
func WriteNamed[T any, P interface {
	*T
	Spec
}](s *Writer, w http.ResponseWriter, r *http.Request, name string, field func(*T) *string,
	set func(*Draft, *T, Precondition) (api.Change, error),
) (snap *store.Snapshot, written *Draft, status int, err error) {
	var asked T
	pre, err := ReadObject(w, r, P(&asked), func() cluster.Faults { return FillName("name", field(&asked), name) })
	if err != nil {
		return nil, nil, 0, err
	}
	var change api.Change
	snap, err = s.Write(r.Context(), func(d *Draft) (err error) {
		object := asked
		written = d
		change, err = set(d, &object, pre)
		return AsProblem(err)
	})
	return snap, written, StatusOfWrite(change), err
}

// FillName sets a name from the address, or returns the fault that the body has another name.
func FillName(field string, value *string, want string) cluster.Faults {
	if *value == "" {
		*value = want
	}
	if *value != want {
		return cluster.Faults{{
			Path:    field,
			Message: fmt.Sprintf("is %q, and the address says %q", respond.Clip(*value), want),
		}}
	}
	return nil
}

// StatusOfWrite returns 201 for a new object and 200 for a change.
func StatusOfWrite(c api.Change) int {
	if c.Action == api.ActionCreate {
		return http.StatusCreated
	}
	return http.StatusOK
}

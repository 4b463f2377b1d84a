package draft

import (
	"fmt"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/measure"
	"github.com/berthd/berth/internal/timetable"
)

// Object is an object that users write.
type Object interface {
	SetDefaults()
	Validate() error
}

// ReadObject reads an object and the request's preconditions. Fill completes the object from the address and tells
// where the two differ; then come the defaults and the validation.
func ReadObject(w http.ResponseWriter, r *http.Request, v Object, fill func() cluster.Faults) (Precondition, error) {
	pre, err := PreconditionOf(r)
	if err != nil {
		return pre, err
	}
	// What a read adds may come back with a write, and says nothing.
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

// countOpen is the count of a service with scaling whose writer left it out, until the draft knows what stands
// (keepCount).
const countOpen = -1

// Complete fills in the defaults of an object and returns all of its faults, those of schedules and expressions among
// them.
func Complete(v Object) cluster.Faults {
	svc, ok := v.(*cluster.Service)
	open := ok && svc.Count == 0 && svc.Scaling != nil && svc.Mode != cluster.ModeDaemon
	v.SetDefaults()
	faults := append(cluster.FaultsOf(v.Validate()), unreadable(v)...)
	if open {
		svc.Count = countOpen
	}
	return faults
}

// keepCount gives a service whose writer left the count to scaling the one that stands, within the bounds, or else the
// least.
func keepCount(svc, prev *cluster.Service) {
	if svc.Count != countOpen {
		return
	}
	svc.Count = svc.Scaling.Min
	if prev != nil {
		svc.Count = max(svc.Scaling.Min, min(prev.Count, svc.Scaling.Max))
	}
}

// unreadable returns what is wrong with an object's schedules and with the expressions of its gates, which package
// cluster does not read.
func unreadable(v Object) (faults cluster.Faults) {
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

// FillName fills in a name from the address, or tells that the body has another one.
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

// StatusOfWrite tells a new object from a changed one.
func StatusOfWrite(c api.Change) int {
	if c.Action == api.ActionCreate {
		return http.StatusCreated
	}
	return http.StatusOK
}

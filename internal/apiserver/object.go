package apiserver

import (
	"fmt"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// noun is an object that users write.
type noun interface {
	SetDefaults()
	Validate() error
}

// readObject reads an object and the request's preconditions. Fill completes the object from the address and tells
// where the two differ; then come the defaults and the validation.
func readObject(w http.ResponseWriter, r *http.Request, v noun, fill func() cluster.Faults) (precondition, error) {
	pre, err := preconditionOf(r)
	if err != nil {
		return pre, err
	}
	// What a read adds may come back with a write, and says nothing.
	if err := readBody(w, r, v, "revision", "status"); err != nil {
		return pre, err
	}
	faults := fill()
	v.SetDefaults()
	faults = append(faults, cluster.FaultsOf(v.Validate())...)
	if len(faults) > 0 {
		return pre, faulty(faults)
	}
	return pre, nil
}

// named fills in a name from the address, or tells that the body has another one.
func named(field string, value *string, want string) cluster.Faults {
	if *value == "" {
		*value = want
	}
	if *value != want {
		return cluster.Faults{{Path: field, Message: fmt.Sprintf("is %q, and the address says %q", clip(*value), want)}}
	}
	return nil
}

// statusOfWrite tells a new object from a changed one.
func statusOfWrite(c api.Change) int {
	if c.Action == api.ActionCreate {
		return http.StatusCreated
	}
	return http.StatusOK
}

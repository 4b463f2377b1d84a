// Package planning holds the operations of reservations, rebalancings and simulations.
package planning

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// SimulateAPI tells what would become of the domain, one simulation at a time.
type SimulateAPI struct {
	Simulator  Simulator  // nil: then this server tells nobody
	simulating sync.Mutex // held by the simulation that is made
}

// ErrSimulation is in the chain of the error of a simulation that cannot be made as the domain is. Its text says why.
var ErrSimulation = errors.New("the simulation cannot be made")

// Simulator tells what would become of the domain by changes, without writing anything.
type Simulator interface {
	// Check returns all that is wrong with the changes of a request by themselves, their objects left out.
	Check(ask api.SimulateRequest) cluster.Faults
	// Simulate makes the changes. What they meet in the domain that speaks against them are cluster.Faults; what cannot
	// be simulated is an error that wraps ErrSimulation, and what takes too long one that wraps
	// context.DeadlineExceeded. It is called once at a time, and ends with its context.
	Simulate(ctx context.Context, ask api.SimulateRequest) (*api.Simulation, error)
}

// simulateLimit is how long a simulation may take, by the clock on the wall.
const simulateLimit = time.Minute

// Routes returns the operations of simulations.
func (a *SimulateAPI) Routes() []route.Route {
	return []route.Route{{
		Method: "POST", Path: "/v1/simulate", Name: "simulate", Role: cluster.RoleViewer, Quiet: true,
		Body: reflect.TypeFor[api.SimulateRequest](), Reply: reflect.TypeFor[api.Simulation](), Serve: a.simulate,
		Summary: "What would become of the domain if changes were made: where tasks would be placed and " +
			"moved, what would wait. Nothing is written. " +
			"A server makes one simulation at a time, and answers others with 429.",
	}}
}

// simulate has the changes of a request made to a copy of the domain.
func (a *SimulateAPI) simulate(w http.ResponseWriter, r *http.Request) error {
	var ask api.SimulateRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	// What was to be read is read: the deadline for it would end the request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not every writer has deadlines
	if a.Simulator == nil {
		return respond.Problemf(http.StatusServiceUnavailable, "this server makes no simulations: ask another one")
	}
	faults := append(a.Simulator.Check(ask), simulateFaults(&ask)...)
	if len(faults) > 0 {
		return respond.Invalid(faults[:min(len(faults), strictjson.MaxFaults)])
	}
	if !a.simulating.TryLock() {
		w.Header().Set("Retry-After", "5")
		return respond.Problemf(http.StatusTooManyRequests,
			"this server is making another simulation, and makes one at a time: ask again, or another server; "+
				"`berth simulate --snapshot FILE` needs none")
	}
	defer a.simulating.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), simulateLimit)
	defer cancel()
	sim, err := a.Simulator.Simulate(ctx, ask)
	refused, wrong := errors.AsType[cluster.Faults](err)
	switch {
	case err == nil:
		return respond.JSON(w, http.StatusOK, sim)
	case wrong:
		return respond.Invalid(refused)
	case errors.Is(err, ErrSimulation):
		return respond.Problemf(http.StatusConflict, "%v", err)
	case errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil:
		return respond.Problemf(http.StatusServiceUnavailable,
			"the simulation takes more than %s, which is all that a server gives it: ask for fewer changes, "+
				"or save a snapshot "+
				"(`berth operator snapshot save FILE`) and simulate where time does not matter (`berth simulate "+
				"--snapshot FILE`)", simulateLimit)
	}
	return err
}

// simulateFaults is what is wrong with the objects of a request by themselves, at the paths that they have in it.
func simulateFaults(ask *api.SimulateRequest) (all cluster.Faults) {
	for i := range ask.Changes {
		_, faults := draft.Manifests(ask.Changes[i].Run)
		for _, f := range faults {
			f.Path = fmt.Sprintf("changes[%d].run", i) + strings.TrimPrefix(f.Path, "objects")
			all = append(all, f)
		}
		if len(all) > strictjson.MaxFaults {
			break
		}
	}
	return all
}

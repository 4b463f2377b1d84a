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

// SimulateAPI predicts the effect of changes, one simulation at a time.
type SimulateAPI struct {
	Simulator  Simulator  // nil refuses every simulation
	simulating sync.Mutex // held during a simulation
}

// ErrSimulation is wrapped by errors of simulations that are impossible in the present domain. The error's text is for
// users.
var ErrSimulation = errors.New("the simulation cannot be made")

// Simulator predicts the effect of changes on the domain, without writing.
type Simulator interface {
	// Check returns the faults of a request that do not depend on the domain or its objects.
	Check(ask api.SimulateRequest) cluster.Faults
	// Simulate applies the changes to a branch. Conflicts with the domain are cluster.Faults. Impossible simulations
	// wrap ErrSimulation, and slow ones context.DeadlineExceeded. One call runs at a time, and ends with its context.
	Simulate(ctx context.Context, ask api.SimulateRequest) (*api.Simulation, error)
}

// simulateTimeout bounds a simulation in real time.
const simulateTimeout = time.Minute

// Routes returns the operations of simulations.
func (a *SimulateAPI) Routes() []route.Route {
	return []route.Route{{
		Method: "POST", Path: "/v1/simulate", Name: "simulate", Role: cluster.RoleViewer, Quiet: true, Limited: true,
		Body: reflect.TypeFor[api.SimulateRequest](), Reply: reflect.TypeFor[api.Simulation](), Serve: a.simulate,
		Summary: "Predicts the effect of changes on the domain: which tasks would be placed, move or wait. Nothing " +
			"is written. A server runs one simulation at a time, and answers others with 429.",
	}}
}

// simulate applies the changes of a request to a copy of the domain.
func (a *SimulateAPI) simulate(w http.ResponseWriter, r *http.Request) error {
	var ask api.SimulateRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	// The body is read. The deadline for reading it would end the request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // some writers have no deadlines
	if a.Simulator == nil {
		return respond.Problemf(http.StatusServiceUnavailable, "this server runs no simulations: use another one")
	}
	if !a.simulating.TryLock() {
		w.Header().Set("Retry-After", "5")
		return respond.Problemf(http.StatusTooManyRequests,
			"this server runs another simulation, and one at a time: retry, or use another server; "+
				"`berth simulate --snapshot FILE` needs none")
	}
	defer a.simulating.Unlock()
	faults := append(a.Simulator.Check(ask), simulateFaults(&ask)...)
	if len(faults) > 0 {
		return respond.Invalid(faults[:min(len(faults), strictjson.MaxFaults)])
	}
	ctx, cancel := context.WithTimeout(r.Context(), simulateTimeout)
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
			"the simulation takes more than %s, the limit of a server: request fewer changes, or "+
				"save a snapshot (`berth operator snapshot save FILE`) and simulate where time does not matter "+
				"(`berth simulate --snapshot FILE`)", simulateTimeout)
	}
	return err
}

// simulateFaults returns the faults of the objects of a request, with their paths in the request.
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

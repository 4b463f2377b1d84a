package hostapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
)

// mover returns the mover of the node, if the caller may move it. Members of the group of the socket may not, and no
// certificate may: a machine of the one owner must not give the node to another.
func (s *Server) mover(r *http.Request) (Mover, error) {
	if !isAdministrator(r) {
		return nil, respond.Problemf(http.StatusForbidden, "only root, or the user of the agent, may move the node %s "+
			"to another owner, on the unix socket of its API", s.config.Name)
	}
	if s.config.Mover == nil {
		return nil, respond.Problemf(http.StatusConflict, "this process cannot move the node %s: only `berth "+
			"standalone` can. Stop the agent, and start `berth standalone` with the same data directory. It goes on "+
			"as the agent of the same servers", s.config.Name)
	}
	return s.config.Mover, nil
}

func (s *Server) readHandover(w http.ResponseWriter, r *http.Request) error {
	m, err := s.mover(r)
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, m.State())
}

func (s *Server) readHandoverObjects(w http.ResponseWriter, r *http.Request) error {
	m, err := s.mover(r)
	if err != nil {
		return err
	}
	objects, err := m.Objects(r.Context())
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, objects)
}

// handoverStep returns the handler of a step. A step is completed also if its caller leaves.
func handoverStep[R any](s *Server, name string, do func(Mover, context.Context, R) error,
) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		m, err := s.mover(r)
		if err != nil {
			return err
		}
		var ask R
		if err := strictjson.ReadBody(w, r, &ask); err != nil {
			return badRequest(err)
		}
		s.config.Log.Info("the node is moved over its API", "step", name, "caller", callerOf(r))
		if err := do(m, context.WithoutCancel(r.Context()), ask); err != nil {
			return err
		}
		return respond.JSON(w, http.StatusOK, m.State())
	}
}

// handoverOperations returns the routes of the operations that move the node to another owner.
func (s *Server) handoverOperations() []route.Route {
	state := reflect.TypeFor[api.HostHandover]()
	return []route.Route{
		{
			Method: "GET", Path: "/v1/handover", Name: "readHandover", Reply: state,
			Summary: "How far a move of the node to another owner is. For root and the user of the agent, on the " +
				"unix socket; 403 for others. 409 if this process cannot move the node.", Serve: s.readHandover,
		},
		{
			Method: "GET", Path: "/v1/handover/objects", Name: "readHandoverObjects",
			Reply:   reflect.TypeFor[api.NodeObjects](),
			Summary: "What moves with a node that drives itself. 409 lists what is in the way.",
			Serve:   s.readHandoverObjects,
		},
		{
			Method: "POST", Path: "/v1/handover/prepare", Name: "prepareHandover",
			Body: reflect.TypeFor[api.HostPrepareRequest](), Reply: state,
			Summary: "Prepares the node for its next owner: it gets a certificate of servers, or starts a server of " +
				"its own with objects. Tasks and the present owner notice nothing.",
			Serve: handoverStep(s, "prepare", Mover.Prepare),
		},
		{
			Method: "POST", Path: "/v1/handover/complete", Name: "completeHandover",
			Body: reflect.TypeFor[api.HostCompleteRequest](), Reply: state,
			Summary: "Makes the next owner drive the node.", Serve: handoverStep(s, "complete", Mover.Complete),
		},
		{
			Method: "POST", Path: "/v1/handover/cancel", Name: "cancelHandover", Reply: state,
			Summary: "Ends a move before the present owner has released the node.", Serve: s.cancelHandover,
		},
	}
}

func (s *Server) cancelHandover(w http.ResponseWriter, r *http.Request) error {
	m, err := s.mover(r)
	if err != nil {
		return err
	}
	if err := m.Cancel(context.WithoutCancel(r.Context())); err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, m.State())
}

package control

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// ServersAPI lists, reads, promotes and removes servers of the control plane.
type ServersAPI struct {
	backend.Backend

	ServerID string // of this server
	Members  Members
	Reach    func() map[string]Reach // by the ids of the other servers; nil if not known
	Engine   *EngineState
}

// Views shows the servers of the control plane, ordered by id: those with a record, and members of the engine whose
// server has not written a record.
func (a *ServersAPI) Views(snap *store.Snapshot, engine *EngineAnswer) (all []api.ServerView) {
	leader, _ := snap.Leader(cluster.DefaultDomain)
	reached := map[string]Reach{}
	if a.Reach != nil {
		reached = a.Reach()
	}
	seen := map[string]bool{}
	for e := range snap.Servers() {
		v := api.ServerView{Server: *e.Value, Revision: e.Modified, Self: e.Value.ID == a.ServerID}
		v.Leader = leader.Value != nil && leader.Value.Holder == v.ID
		m := engine.member(v.Member)
		if m != nil {
			seen[m.ID] = true
			v.Engine = engineMember(m)
		}
		r, reported := reached[v.ID]
		v.For = cluster.Duration(r.For)
		v.State, v.Reason = judgeServer(&v, engine, r, reported)
		all = append(all, v)
	}
	for i := range engine.members {
		m := &engine.members[i]
		if seen[m.ID] {
			continue
		}
		v := api.ServerView{Server: cluster.Server{ID: m.Name, Member: m.ID}, Self: m.Self, Engine: engineMember(m)}
		v.Leader = leader.Value != nil && v.ID != "" && leader.Value.Holder == v.ID
		v.State, v.Reason = api.ServerJoining,
			"it has joined the store and is starting; its name and address come in a moment"
		if m.Name == "" {
			v.Reason = "it is a member of the store and has not started: start `berth server` on its machine"
		}
		all = append(all, v)
	}
	slices.SortStableFunc(all, func(a, b api.ServerView) int {
		return strings.Compare(a.ID+"/"+a.Member, b.ID+"/"+b.Member)
	})
	return all
}

func engineMember(m *store.Member) *api.EngineMember {
	return &api.EngineMember{ID: m.ID, Peer: m.PeerURL, Leader: m.Leader, Learner: m.Learner, Healthy: m.Healthy}
}

// judgeServer returns the state of a server, with a sentence unless all is well.
func judgeServer(v *api.ServerView, engine *EngineAnswer, r Reach, reported bool) (api.ServerState, string) {
	switch {
	case v.Self:
		return api.ServerUp, ""
	case v.Engine != nil && !v.Engine.Healthy:
		return api.ServerDown, "its store member does not answer"
	case engine.known && engine.membersErr == nil && v.Engine == nil && v.Member != "":
		return api.ServerDown, "it is not a member of the store any more: remove it"
	case reported && !r.Reached && v.Engine == nil:
		return api.ServerDown, r.Problem
	case reported && !r.Reached:
		return api.ServerUp, r.Problem
	case reported || v.Engine != nil:
		return api.ServerUp, ""
	case engine.membersErr != nil:
		return api.ServerUnknown, "the store could not be asked: " + respond.ProblemOf(engine.membersErr).Detail
	}
	return api.ServerUnknown, "it has not reported yet"
}

func (a *ServersAPI) listServers(w http.ResponseWriter, r *http.Request) error {
	return lists.Serve(a.Lists, w, r, lists.Source[api.ServerView]{
		List: "servers", Topics: store.TopicServers | store.TopicLeader | store.TopicDomain,
		All: func(snap *store.Snapshot) (all []lists.Item[api.ServerView]) {
			engine := a.Engine.Ask(context.Background()) // Ask has a timeout
			for _, v := range a.Views(snap, &engine) {
				all = append(all, lists.Item[api.ServerView]{Key: v.ID + "/" + v.Member, Value: v})
			}
			return all
		},
	})
}

// findServer returns the server with the id, or with that id of a member of the engine.
func (a *ServersAPI) findServer(snap *store.Snapshot, engine *EngineAnswer, id string) (api.ServerView, error) {
	for _, v := range a.Views(snap, engine) {
		if v.ID == id || v.Engine != nil && v.Engine.ID == id {
			return v, nil
		}
	}
	return api.ServerView{}, respond.NotFound("server", id)
}

// target returns the server that a request names, by the present content of the store.
func (a *ServersAPI) target(r *http.Request) (api.ServerView, EngineAnswer, error) {
	snap, err := a.Reads.Settled(r.Context())
	if err != nil {
		return api.ServerView{}, EngineAnswer{}, err
	}
	a.Engine.Changed() // the decision needs the present state
	engine := a.Engine.Ask(r.Context())
	if engine.membersErr != nil {
		return api.ServerView{}, engine, engine.membersErr
	}
	v, err := a.findServer(snap, &engine, r.PathValue("server"))
	return v, engine, err
}

func (a *ServersAPI) readServer(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	engine := a.Engine.Ask(r.Context())
	v, err := a.findServer(snap, &engine, r.PathValue("server"))
	if err != nil {
		return err
	}
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *ServersAPI) promoteServer(w http.ResponseWriter, r *http.Request) error {
	v, engine, err := a.target(r)
	if err != nil {
		return err
	}
	switch {
	case !engine.known:
		return respond.Problemf(http.StatusConflict, "the store runs elsewhere: servers have no votes in it")
	case v.Engine == nil:
		return respond.Problemf(http.StatusConflict, "server %s is not a member of the store", ServerName(&v))
	case v.Engine.Learner:
		if err := a.Members.Promote(r.Context(), v.Engine.ID); err != nil {
			return memberProblem(&v, err)
		}
		a.Engine.Changed()
		v.Engine.Learner = false
	}
	return respond.JSON(w, http.StatusOK, v)
}

// removeServer removes a server's member from the store and deletes its record. If a server removes itself, it deletes
// the record first, because without its member it cannot write.
func (a *ServersAPI) removeServer(w http.ResponseWriter, r *http.Request) error {
	v, engine, err := a.target(r)
	if err != nil {
		return err
	}
	if err := a.mayRemove(&v, &engine, route.Flag(r, "force")); err != nil {
		return err
	}
	steps := []func(context.Context, *api.ServerView) error{a.removeMember, a.removeRecord}
	if v.Self {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(r.Context(), &v); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// mayRemove refuses to remove the last server, or a server whose removal leaves the rest without a quorum.
func (a *ServersAPI) mayRemove(v *api.ServerView, engine *EngineAnswer, force bool) error {
	if !engine.known {
		if v.Self {
			return respond.Problemf(http.StatusConflict,
				"server %s is the one that answers: stop it, and ask another one",
				ServerName(v))
		}
		if v.State == api.ServerUp && !force {
			return respond.Problemf(http.StatusConflict, "server %s is up: stop it first, or use --force",
				ServerName(v))
		}
		return nil
	}
	if v.Engine == nil || v.Engine.Learner {
		return nil // it has no vote
	}
	left, healthy := engine.Votes(v.Engine.ID)
	switch {
	case left == 0:
		return respond.Problemf(http.StatusConflict, "server %s is the last one: without it there is no store",
			ServerName(v))
	case healthy < Quorum(left): // not even with force, as the store itself would refuse
		return respond.Problemf(http.StatusConflict,
			"without server %s the store has %s, of which %d must be up and %d would be: it would take no "+
				"writes. Bring another server up first", ServerName(v), respond.Plural(left, "member"),
			Quorum(left), healthy)
	}
	return nil
}

func (a *ServersAPI) removeMember(ctx context.Context, v *api.ServerView) error {
	if v.Engine == nil || a.Members == nil {
		return nil
	}
	defer a.Engine.Changed()
	return memberProblem(v, a.Members.Remove(ctx, v.Engine.ID))
}

func (a *ServersAPI) removeRecord(ctx context.Context, v *api.ServerView) error {
	if v.Revision == 0 {
		return nil
	}
	_, err := a.Writer.Write(ctx, func(d *draft.Draft) error {
		if e, ok := d.Snap.Server(v.ID); ok {
			d.Remove(d.Prefix.Server(v.ID), e.Modified, cluster.Event{
				Type: "server.removed", Reason: cluster.ReasonDeleted, Message: "server " + ServerName(v) +
					" was taken out of the control plane",
			})
		}
		return nil
	})
	return err
}

// memberProblem returns the answer to an error of a change of members.
func memberProblem(v *api.ServerView, err error) error {
	switch {
	case errors.Is(err, store.ErrNotInSync):
		return respond.Problemf(http.StatusConflict,
			"server %s has not caught up with the store yet: retry in a moment",
			ServerName(v))
	case errors.Is(err, store.ErrLosesQuorum):
		return respond.Problemf(http.StatusConflict,
			"the store refuses to remove server %s: those that are left, and up, would be too few for writes",
			ServerName(v))
	case errors.Is(err, store.ErrMember):
		return respond.Problemf(http.StatusConflict, "server %s is not a member of the store", ServerName(v))
	}
	return err
}

// ServerName returns the name of a server for people.
func ServerName(v *api.ServerView) string {
	switch {
	case v.Name != "":
		return v.Name
	case v.ID != "":
		return v.ID
	}
	return v.Member
}

// Routes returns the operations of servers.
func (a *ServersAPI) Routes() []route.Route {
	force := route.QueryParam("force", "boolean", "even if the rest would have no quorum, or the server is up")
	return []route.Route{
		{
			Method: "GET", Path: "/v1/servers", Name: "listServers",
			Summary: "The members of the control plane, with their parts in the store.", Role: cluster.RoleViewer,
			Query: route.ListParameters(), Reply: reflect.TypeFor[api.Page[api.ServerView]](),
			Stream: route.MediaEventStream,
			Long:   true,
			Serve:  a.listServers,
		},
		{
			Method: "GET", Path: "/v1/servers/{server}", Name: "readServer",
			Summary: "One member of the control plane, by its id or its member's.", Role: cluster.RoleViewer,
			Query: []route.Parameter{route.Consistent()}, Reply: reflect.TypeFor[api.ServerView](), Serve: a.readServer,
		},
		{
			Method: "POST", Path: "/v1/servers/{server}/promote", Name: "promoteServer",
			Summary: "Promotes a learner of the store to a voting member.", Role: cluster.RoleAdmin,
			Reply: reflect.TypeFor[api.ServerView](),
			Serve: a.promoteServer,
		},
		{
			Method: "DELETE", Path: "/v1/servers/{server}", Name: "removeServer",
			Summary: "Removes a server from the store and deletes its record. Refused for the last server, and if " +
				"the rest would have no quorum.", Role: cluster.RoleAdmin, Query: []route.Parameter{force},
			Status: http.StatusNoContent, Serve: a.removeServer,
		},
	}
}

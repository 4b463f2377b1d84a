// Package catalog holds the operations of clusters, pools and task definitions, and those that write sets of objects.
package catalog

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
)

// ApplyAPI writes sets of objects.
type ApplyAPI struct {
	backend.Backend

	Pins *agentapi.Pins
}

// apply writes a set of objects, all or none. It validates every object first and returns all faults together.
func (a *ApplyAPI) apply(w http.ResponseWriter, r *http.Request) error {
	var ask api.ApplyRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	set, faults := draft.Manifests(ask.Objects)
	if len(faults) > 0 {
		return respond.Invalid(faults)
	}
	var reply api.ApplyReply
	fill := func(d *draft.Draft) (err error) {
		reply.Changes, err = d.Set(set)
		if err == nil {
			err = access.CallerOf(r.Context()).MayApply(reply.Changes)
		}
		if err == nil {
			err = a.Writer.CheckSize(d, set)
		}
		return err
	}
	if ask.DryRun {
		d := a.Writer.Empty(a.Reads.Tables.Snapshot())
		d.Caller = access.CallerOf(r.Context())
		if err := fill(d); err != nil {
			return err
		}
		return respond.JSON(w, http.StatusOK, reply)
	}
	loose := a.Pins.Pin(r.Context(), access.CallerOf(r.Context()), draft.DefinitionsOf(set),
		agentapi.RunnersOf(access.CallerOf(r.Context()), a.Reads.Tables.Snapshot(), set))
	if err := a.commit(r.Context(), fill, &reply); err != nil {
		return err
	}
	loose.Note(set, reply.Changes)
	access.ExchangeOf(r.Context()).Object = changedObjects(reply.Changes)
	return respond.JSON(w, http.StatusOK, reply)
}

// commit commits a set and fills in the new revisions of its objects.
func (a *ApplyAPI) commit(ctx context.Context, fill func(*draft.Draft) error, reply *api.ApplyReply) error {
	var written *draft.Draft
	_, err := a.Writer.Write(ctx, func(d *draft.Draft) error {
		written = d
		return fill(d)
	})
	if err != nil {
		return err
	}
	for i := range reply.Changes {
		if c := &reply.Changes[i]; c.Action != api.ActionNone {
			c.Revision = written.Revision
		}
	}
	return nil
}

// changedObjects names the objects of an apply for the audit log.
func changedObjects(changes []api.Change) string {
	const most = 20
	var names []string
	for i := range changes {
		c := &changes[i]
		if c.Action == api.ActionNone {
			continue
		}
		if len(names) == most {
			names = append(names, fmt.Sprintf("and more of %d", len(changes)))
			break
		}
		name := c.Name
		if c.Cluster != "" {
			name = c.Cluster + "/" + c.Name
		}
		names = append(names, string(c.Kind)+" "+name)
	}
	return strings.Join(names, ", ")
}

// Routes returns the operations of sets of objects.
func (a *ApplyAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "POST", Path: "/v1/apply", Name: "apply", Role: cluster.RoleSubmitter, Shared: true,
			Summary: "Writes a set of objects, all or none, or only returns the changes.",
			Body:    reflect.TypeFor[api.ApplyRequest](), Reply: reflect.TypeFor[api.ApplyReply](), Serve: a.apply,
		},
	}
}

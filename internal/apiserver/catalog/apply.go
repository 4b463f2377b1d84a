// Package catalog holds the operations of clusters, pools and task definitions, and those that write sets of objects.
package catalog

import (
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
	caller := access.CallerOf(r.Context())
	if err := draft.CheckReach(caller, set); err != nil {
		return err
	}
	var reply api.ApplyReply
	var filled *draft.Draft
	fill := func(d *draft.Draft) (err error) {
		filled = d
		reply.Changes, err = d.Set(set)
		if err == nil {
			err = caller.MayApply(reply.Changes)
		}
		if err == nil {
			err = a.Writer.CheckSize(d, set)
		}
		return err
	}
	var loose agentapi.Unpinned
	if !ask.DryRun {
		loose = a.Pins.Pin(r.Context(), caller, draft.DefinitionsOf(set),
			agentapi.RunnersOf(caller, a.Reads.Tables.Snapshot(), set))
	}
	if err := a.Writer.WriteUnless(r.Context(), ask.DryRun, fill); err != nil {
		return err
	}
	if !ask.DryRun {
		setRevisions(reply.Changes, filled.Revision)
		loose.Note(set, reply.Changes)
		access.ExchangeOf(r.Context()).Object = changedObjects(reply.Changes)
	}
	return respond.JSON(w, http.StatusOK, reply)
}

// setRevisions notes the revision of the objects that were written.
func setRevisions(changes []api.Change, revision uint64) {
	for i := range changes {
		if c := &changes[i]; c.Action != api.ActionNone {
			c.Revision = revision
		}
	}
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

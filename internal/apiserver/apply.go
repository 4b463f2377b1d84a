package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// applyAPI writes sets of objects.
type applyAPI struct {
	backend

	pins *imagePins
}

// apply writes a set of objects, all or none: every object is validated first, and all faults are told at once.
func (a *applyAPI) apply(w http.ResponseWriter, r *http.Request) error {
	var ask api.ApplyRequest
	if err := readBody(w, r, &ask); err != nil {
		return err
	}
	set, faults := manifests(ask.Objects)
	if len(faults) > 0 {
		return faulty(faults)
	}
	var reply api.ApplyReply
	draw := func(d *draft) (err error) {
		reply.Changes, err = d.set(set)
		if err == nil {
			err = callerOf(r.Context()).mayApply(reply.Changes)
		}
		return err
	}
	if ask.DryRun {
		d := a.writer.draft(a.reads.tables.Snapshot())
		d.caller = callerOf(r.Context())
		if err := draw(d); err != nil {
			return err
		}
		return answer(w, http.StatusOK, reply)
	}
	loose := a.pins.pin(r.Context(), definitionsOf(set),
		runnersOf(callerOf(r.Context()), a.reads.tables.Snapshot(), set))
	if err := a.applied(r.Context(), draw, &reply); err != nil {
		return err
	}
	loose.note(reply.Changes)
	exchangeOf(r.Context()).object = changed(reply.Changes)
	return answer(w, http.StatusOK, reply)
}

// applied commits a set and fills in the revisions that the objects have then.
func (a *applyAPI) applied(ctx context.Context, draw func(*draft) error, reply *api.ApplyReply) error {
	var drawn *draft
	_, err := a.writer.write(ctx, func(d *draft) error {
		drawn = d
		return draw(d)
	})
	if err != nil {
		return err
	}
	for i := range reply.Changes {
		if c := &reply.Changes[i]; c.Action != api.ActionNone {
			c.Revision = drawn.revision
		}
	}
	return nil
}

// changed names the objects of an apply for the audit log.
func changed(changes []api.Change) string {
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

func (a *applyAPI) routes() []route {
	return []route{
		{
			method: "POST", path: "/v1/apply", name: "apply", role: cluster.RoleSubmitter, shared: true,
			summary: "Writes a set of objects, all or none, or tells what that would change.",
			body:    reflect.TypeFor[api.ApplyRequest](), reply: reflect.TypeFor[api.ApplyReply](), serve: a.apply,
		},
	}
}

package catalog

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// DefinitionsAPI lists, reads, writes and deletes versions of task definitions.
type DefinitionsAPI struct {
	backend.Backend

	Pins *agentapi.Pins
}

func (a *DefinitionsAPI) listDefinitions(w http.ResponseWriter, r *http.Request) error {
	name, c := r.PathValue("definition"), access.CallerOf(r.Context())
	if err := access.MayReveal(r); err != nil {
		return err
	}
	if name != "" {
		snap, err := a.Reads.ForRequest(r)
		if err != nil {
			return err
		}
		if !seesVersion(snap, c, name) {
			return respond.NotFound("task definition", name)
		}
	}
	labels, err := route.SelectorOf(r)
	if err != nil {
		return err
	}
	topics := store.TopicDefinitions
	if c.Clusters != nil { // which definitions the caller sees depends on their users
		topics |= store.TopicOwners | store.TopicCrons
	}
	return lists.Serve(a.Lists, w, r, lists.Source[api.DefinitionView]{
		List: "definitions", Topics: topics,
		All: func(snap *store.Snapshot) (all []lists.Item[api.DefinitionView]) {
			sees := c.VisibleDefinitions(snap)
			for e := range snap.Definitions(name) {
				if !sees(e.Value.Ref()) {
					continue
				}
				shown := c.ShowDefinition(e.Value)
				if !labels.Matches(shown.Labels) {
					continue
				}
				all = append(all, lists.Item[api.DefinitionView]{
					Key:   fmt.Sprintf("%s/%010d", e.Value.Name, e.Value.Version),
					Value: api.DefinitionView{TaskDefinition: shown, Revision: e.Modified},
				})
			}
			return all
		},
	})
}

// seesVersion reports whether the caller sees any version of a definition.
func seesVersion(snap *store.Snapshot, c *access.Caller, name string) bool {
	sees := c.VisibleDefinitions(snap)
	for e := range snap.Definitions(name) {
		if sees(e.Value.Ref()) {
			return true
		}
	}
	return false
}

func (a *DefinitionsAPI) readDefinition(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	ref := refOf(r)
	if !access.CallerOf(r.Context()).VisibleDefinitions(snap)(ref) {
		return respond.NotFound("task definition", ref.String())
	}
	if err := access.MayReveal(r); err != nil {
		return err
	}
	return answerDefinition(w, r, snap, ref, http.StatusOK)
}

// refOf returns the reference in an address that route.Check has accepted.
func refOf(r *http.Request) cluster.Ref {
	n, _ := strconv.Atoi(r.PathValue("version"))
	return cluster.Ref{Name: r.PathValue("definition"), Version: n}
}

func answerDefinition(w http.ResponseWriter, r *http.Request, snap *store.Snapshot, ref cluster.Ref, status int) error {
	e, ok := snap.Definition(ref)
	if !ok {
		return respond.NotFound("task definition", ref.String())
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, status, api.DefinitionView{
		TaskDefinition: access.CallerOf(r.Context()).ShowDefinition(e.Value),
		Revision:       e.Modified,
	})
}

func (a *DefinitionsAPI) writeDefinition(w http.ResponseWriter, r *http.Request) error {
	ref := refOf(r)
	var def cluster.TaskDefinition
	pre, err := draft.ReadObject(w, r, &def, func() cluster.Faults {
		faults := draft.FillName("name", &def.Name, ref.Name)
		if def.Version == 0 {
			def.Version = ref.Version
		}
		if def.Version != ref.Version {
			faults = append(faults, cluster.Fault{
				Path:    "version",
				Message: fmt.Sprintf("is %d, and the address says %d", def.Version, ref.Version),
			})
		}
		return faults
	})
	if err != nil {
		return err
	}
	a.Pins.Pin(r.Context(), access.CallerOf(r.Context()), []*cluster.TaskDefinition{&def}, nil)
	var change api.Change
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) (err error) {
		old, _ := d.Snap.Definition(ref)
		if err := pre.Check(old.Modified); err != nil {
			return err
		}
		object := def
		change, err = d.SetDefinition(&object)
		return err
	})
	if err != nil {
		return err
	}
	return answerDefinition(w, r, snap, ref, draft.StatusOfWrite(change))
}

// deleteDefinition removes an unused version in two steps, as deleteCluster does: the mark makes concurrent writes fail
// that refer to the version.
func (a *DefinitionsAPI) deleteDefinition(w http.ResponseWriter, r *http.Request) error {
	ref, c := refOf(r), access.CallerOf(r.Context())
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	_, err = a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := d.Snap.Definition(ref)
		if !ok || !c.VisibleDefinitions(d.Snap)(ref) {
			return respond.NotFound("task definition", ref.String())
		}
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		switch {
		case d.Snap.UsedDefinitions()[ref]:
			return definitionInUse(d.Snap, c, ref)
		case !e.Value.Deleted:
			putDefinition(d, e, true)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var found error
	_, err = a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := d.Snap.Definition(ref)
		if found = nil; !ok || !e.Value.Deleted {
			return nil // another request has finished it or written the version again
		}
		if d.Snap.UsedDefinitions()[ref] {
			found = definitionInUse(d.Snap, c, ref)
			putDefinition(d, e, false)
			return nil
		}
		removed := d.Snap.RemoveDefinition(d.Prefix, e)
		for _, w := range removed.Writes {
			d.Put(w.Key, w.Record, w.Modified)
		}
		d.Events = append(d.Events, removed.Event)
		return nil
	})
	if err = errors.Join(err, found); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// putDefinition writes a version again, with or without the mark of a deletion.
func putDefinition(d *draft.Draft, e store.Entry[cluster.TaskDefinition], deleted bool) {
	def := *e.Value
	def.Deleted = deleted
	d.Put(d.Prefix.Definition(def.Ref()), &def, e.Modified)
}

// definitionInUse returns the problem that a version is in use. It names a user that the caller may see.
func definitionInUse(snap *store.Snapshot, c *access.Caller, ref cluster.Ref) *respond.Problem {
	return respond.Problemf(http.StatusConflict,
		"task definition %s is in use%s: point what uses it at another version, or delete that first", ref,
		userOf(snap, c, ref))
}

// userOf names a user of a version, as the end of a sentence. It is empty if the caller sees no user.
func userOf(snap *store.Snapshot, c *access.Caller, ref cluster.Ref) string {
	uses := func(steps []cluster.Step) bool {
		for i := range steps {
			own := steps[i].Definition
			if own.Version == 0 {
				own, _, _ = snap.NewestDefinition(own.Name)
			}
			if own == ref {
				return true
			}
		}
		return false
	}
	for e := range snap.Services("") {
		if c.Sees(e.Value.Cluster) && e.Value.Definition == ref {
			return fmt.Sprintf(" by service %s/%s", e.Value.Cluster, e.Value.Name)
		}
	}
	for e := range snap.Jobs("") {
		if c.Sees(e.Value.Cluster) && uses(e.Value.Steps) {
			return fmt.Sprintf(" by job %s/%s", e.Value.Cluster, e.Value.Name)
		}
	}
	for e := range snap.Crons("") {
		if c.Sees(e.Value.Cluster) && !e.Value.Deleted && uses(e.Value.Job.Steps) {
			return fmt.Sprintf(" by cron %s/%s", e.Value.Cluster, e.Value.Name)
		}
	}
	for row := range snap.AllAttempts() {
		of := cluster.Ref{}
		switch {
		case row.Desired != nil:
			of = row.Desired.Definition
		case row.Outcome != nil:
			of = row.Outcome.Definition
		}
		if o, ok := row.Ref(); ok && of == ref && c.Sees(o.Cluster) {
			return fmt.Sprintf(" by task %s", row.Task)
		}
	}
	return " by an earlier version of a service, or by a workload that you may not see"
}

// Routes returns the operations of task definitions.
func (a *DefinitionsAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/definitions", Name: "listDefinitions", Role: cluster.RoleViewer, Shared: true,
			Summary: "All versions of all task definitions.",
			Query:   route.ListParameters(access.Reveal(), route.BySelector("versions")),
			Reply:   reflect.TypeFor[api.Page[api.DefinitionView]](), Stream: route.MediaEventStream, Long: true,
			Serve: a.listDefinitions,
		},
		{
			Method: "GET", Path: "/v1/definitions/{definition}", Name: "listVersions", Role: cluster.RoleViewer,
			Shared:  true,
			Summary: "All versions of a task definition.",
			Query:   route.ListParameters(access.Reveal(), route.BySelector("versions")),
			Reply:   reflect.TypeFor[api.Page[api.DefinitionView]](), Stream: route.MediaEventStream, Long: true,
			Serve: a.listDefinitions,
		},
		{
			Method: "GET", Path: "/v1/definitions/{definition}/{version}", Name: "readDefinition",
			Role:   cluster.RoleViewer,
			Shared: true, Summary: "One version of a task definition.",
			Query: []route.Parameter{access.Reveal(), route.Consistent()},
			Reply: reflect.TypeFor[api.DefinitionView](), Serve: a.readDefinition,
		},
		{
			Method: "PUT", Path: "/v1/definitions/{definition}/{version}", Name: "writeDefinition",
			Role:   cluster.RoleSubmitter,
			Shared: true, Summary: "Writes a version, once. The same content again changes nothing, another " +
				"content is refused with 409.", Writes: true, Body: reflect.TypeFor[cluster.TaskDefinition](),
			Reply: reflect.TypeFor[api.DefinitionView](), Serve: a.writeDefinition,
		},
		{
			Method: "DELETE", Path: "/v1/definitions/{definition}/{version}", Name: "deleteDefinition",
			Role:   cluster.RoleSubmitter,
			Shared: true, Summary: "Deletes an unused version.", Writes: true, Status: http.StatusNoContent,
			Serve: a.deleteDefinition,
		},
	}
}

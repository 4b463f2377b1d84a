package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// definitionsAPI lists, reads, writes and deletes versions of task definitions.
type definitionsAPI struct {
	backend

	pins *imagePins
}

func (a *definitionsAPI) listDefinitions(w http.ResponseWriter, r *http.Request) error {
	name, c := r.PathValue("definition"), callerOf(r.Context())
	if err := mayReveal(r); err != nil {
		return err
	}
	if name != "" {
		snap, err := a.reads.forRequest(r)
		if err != nil {
			return err
		}
		if !seesVersion(snap, c, name) {
			return notFound("task definition", name)
		}
	}
	topics := store.TopicDefinitions
	if c.clusters != nil { // what the caller sees follows from who uses it
		topics |= store.TopicOwners | store.TopicCrons
	}
	return serveList(a.lists, w, r, source[api.DefinitionView]{
		List: "definitions", Topics: topics,
		All: func(snap *store.Snapshot) (all []item[api.DefinitionView]) {
			sees := c.sight(snap)
			for e := range snap.Definitions(name) {
				if !sees(e.Value.Ref()) {
					continue
				}
				key := fmt.Sprintf("%s/%010d", e.Value.Name, e.Value.Version)
				all = append(all, item[api.DefinitionView]{
					Key:   key,
					Value: api.DefinitionView{TaskDefinition: c.showDefinition(e.Value), Revision: e.Modified},
				})
			}
			return all
		},
	})
}

// seesVersion reports whether there is a version of a definition that the caller sees.
func seesVersion(snap *store.Snapshot, c *caller, name string) bool {
	sees := c.sight(snap)
	for e := range snap.Definitions(name) {
		if sees(e.Value.Ref()) {
			return true
		}
	}
	return false
}

func (a *definitionsAPI) readDefinition(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.reads.forRequest(r)
	if err != nil {
		return err
	}
	ref := refOf(r)
	if !callerOf(r.Context()).sight(snap)(ref) {
		return notFound("task definition", ref.String())
	}
	if err := mayReveal(r); err != nil {
		return err
	}
	return answerDefinition(w, r, snap, ref, http.StatusOK)
}

// refOf returns the reference in an address, which was checked before.
func refOf(r *http.Request) cluster.Ref {
	n, _ := strconv.Atoi(r.PathValue("version"))
	return cluster.Ref{Name: r.PathValue("definition"), Version: n}
}

func answerDefinition(w http.ResponseWriter, r *http.Request, snap *store.Snapshot, ref cluster.Ref, status int) error {
	e, ok := snap.Definition(ref)
	if !ok {
		return notFound("task definition", ref.String())
	}
	tag(w, e.Modified)
	return answer(w, status, api.DefinitionView{
		TaskDefinition: callerOf(r.Context()).showDefinition(e.Value),
		Revision:       e.Modified,
	})
}

func (a *definitionsAPI) writeDefinition(w http.ResponseWriter, r *http.Request) error {
	ref := refOf(r)
	var def cluster.TaskDefinition
	pre, err := readObject(w, r, &def, func() cluster.Faults {
		faults := named("name", &def.Name, ref.Name)
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
	a.pins.pin(r.Context(), []*cluster.TaskDefinition{&def}, nil)
	var change api.Change
	snap, err := a.writer.write(r.Context(), func(d *draft) (err error) {
		old, _ := d.snap.Definition(ref)
		if err := pre.check(old.Modified); err != nil {
			return err
		}
		object := def
		change, err = d.setDefinition(&object)
		return err
	})
	if err != nil {
		return err
	}
	return answerDefinition(w, r, snap, ref, statusOfWrite(change))
}

// deleteDefinition removes a version that nothing uses, in two steps, as that of a cluster: a mark makes writes fail
// that came to refer to it meanwhile.
func (a *definitionsAPI) deleteDefinition(w http.ResponseWriter, r *http.Request) error {
	ref, c := refOf(r), callerOf(r.Context())
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	_, err = a.writer.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Definition(ref)
		if !ok || !c.sight(d.snap)(ref) {
			return notFound("task definition", ref.String())
		}
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		switch {
		case d.snap.UsedDefinitions()[ref]:
			return definitionInUse(d.snap, c, ref)
		case !e.Value.Deleted:
			putDefinition(d, e, true)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var found error
	_, err = a.writer.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Definition(ref)
		if found = nil; !ok || !e.Value.Deleted {
			return nil // another request finished it, or wrote the version anew
		}
		if d.snap.UsedDefinitions()[ref] {
			found = definitionInUse(d.snap, c, ref)
			putDefinition(d, e, false)
			return nil
		}
		removed := d.snap.RemoveDefinition(d.prefix, e)
		for _, w := range removed.Writes {
			d.put(w.Key, w.Record, w.Modified)
		}
		d.events = append(d.events, removed.Event)
		return nil
	})
	if err = errors.Join(err, found); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// putDefinition writes a version again, with or without the mark of a deletion.
func putDefinition(d *draft, e store.Entry[cluster.TaskDefinition], deleted bool) {
	def := *e.Value
	def.Deleted = deleted
	d.put(d.prefix.Definition(def.Ref()), &def, e.Modified)
}

// definitionInUse says that something uses a version. It names what the caller may see of that.
func definitionInUse(snap *store.Snapshot, c *caller, ref cluster.Ref) *problem {
	return problemf(http.StatusConflict,
		"task definition %s is in use%s: point what uses it at another version, or delete that first", ref,
		userOf(snap, c, ref))
}

// userOf names something that uses a version, as the end of a sentence. It is empty where the caller sees nothing of
// that.
func userOf(snap *store.Snapshot, c *caller, ref cluster.Ref) string {
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
		if c.sees(e.Value.Cluster) && e.Value.Definition == ref {
			return fmt.Sprintf(" by service %s/%s", e.Value.Cluster, e.Value.Name)
		}
	}
	for e := range snap.Jobs("") {
		if c.sees(e.Value.Cluster) && uses(e.Value.Steps) {
			return fmt.Sprintf(" by job %s/%s", e.Value.Cluster, e.Value.Name)
		}
	}
	for e := range snap.Crons("") {
		if c.sees(e.Value.Cluster) && !e.Value.Deleted && uses(e.Value.Job.Steps) {
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
		if o, ok := row.Ref(); ok && of == ref && c.sees(o.Cluster) {
			return fmt.Sprintf(" by task %s", row.Task)
		}
	}
	return " by an earlier version of a service, or out of your sight"
}

func (a *definitionsAPI) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/definitions", name: "listDefinitions", role: cluster.RoleViewer, shared: true,
			summary: "All versions of all task definitions.", query: listParameters(reveal()),
			reply: reflect.TypeFor[api.Page[api.DefinitionView]](), stream: eventStream, long: true,
			serve: a.listDefinitions,
		},
		{
			method: "GET", path: "/v1/definitions/{definition}", name: "listVersions", role: cluster.RoleViewer,
			shared:  true,
			summary: "All versions of a task definition.", query: listParameters(reveal()),
			reply: reflect.TypeFor[api.Page[api.DefinitionView]](), stream: eventStream, long: true,
			serve: a.listDefinitions,
		},
		{
			method: "GET", path: "/v1/definitions/{definition}/{version}", name: "readDefinition",
			role:   cluster.RoleViewer,
			shared: true, summary: "One version of a task definition.", query: []parameter{reveal(), consistent()},
			reply: reflect.TypeFor[api.DefinitionView](), serve: a.readDefinition,
		},
		{
			method: "PUT", path: "/v1/definitions/{definition}/{version}", name: "writeDefinition",
			role:   cluster.RoleSubmitter,
			shared: true, summary: "Writes a version, once. The same content again changes nothing, another " +
				"content is refused with 409.", writes: true, body: reflect.TypeFor[cluster.TaskDefinition](),
			reply: reflect.TypeFor[api.DefinitionView](), serve: a.writeDefinition,
		},
		{
			method: "DELETE", path: "/v1/definitions/{definition}/{version}", name: "deleteDefinition",
			role:   cluster.RoleSubmitter,
			shared: true, summary: "Deletes a version that nothing uses.", writes: true, status: http.StatusNoContent,
			serve: a.deleteDefinition,
		},
	}
}

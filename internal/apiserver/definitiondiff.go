package apiserver

import (
	"net/http"
	"reflect"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// diffsAPI compares versions of task definitions.
type diffsAPI struct{ backend }

// routes are those that compare task definitions.
func (a *diffsAPI) routes() []route {
	const one = "/v1/definitions/{definition}/{version}/diff"
	return []route{
		{
			method: "GET", path: one, name: "diffVersions", role: cluster.RoleViewer, shared: true,
			summary: "What a version of a task definition changed since another.",
			query: []parameter{
				queryParam("from", "integer", "the version that is compared with; default the one before"),
				consistent(),
			},
			reply: reflect.TypeFor[api.DefinitionDiff](), serve: a.diffVersions,
		},
		{
			method: "POST", path: one, name: "diffDefinition", role: cluster.RoleSubmitter, shared: true, quiet: true,
			summary: "What a task definition, with defaults filled in, would change since a version that " +
				"stands. Nothing is written.",
			body: reflect.TypeFor[cluster.TaskDefinition](), reply: reflect.TypeFor[api.DefinitionDiff](),
			serve: a.diffDefinition,
		},
	}
}

func (a *diffsAPI) diffVersions(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.reads.forRequest(r)
	if err != nil {
		return err
	}
	to, c := refOf(r), callerOf(r.Context())
	sees := c.sight(snap)
	if _, ok := snap.Definition(to); !ok || !sees(to) {
		return notFound("task definition", to.String())
	}
	from, err := number(r, "from", 0)
	if err != nil {
		return err
	}
	ref := cluster.Ref{Name: to.Name, Version: int(min(from, 1<<31))}
	if from == 0 {
		ref.Version = versionBefore(snap, to, sees)
	}
	if ref.Version == 0 {
		return answer(w, http.StatusOK,
			api.DefinitionDiff{To: to, Note: to.String() + " is the first version that is kept"})
	}
	if _, ok := snap.Definition(ref); !ok || !sees(ref) {
		return notFound("task definition", ref.String())
	}
	v := api.DefinitionDiff{From: ref, To: to}
	if ref == to {
		v.Note = "it is compared with itself"
		return answer(w, http.StatusOK, v)
	}
	v.Fields, v.Note = changedBy(snap, ref, to)
	v.Fields = c.showFields(v.Fields)
	return answer(w, http.StatusOK, v)
}

// versionBefore returns the newest version before one that the caller sees, 0 where there is none.
func versionBefore(snap *store.Snapshot, to cluster.Ref, sees func(cluster.Ref) bool) (before int) {
	for e := range snap.Definitions(to.Name) {
		if v := e.Value.Version; v < to.Version && sees(e.Value.Ref()) {
			before = max(before, v)
		}
	}
	return before
}

func (a *diffsAPI) diffDefinition(w http.ResponseWriter, r *http.Request) error {
	from := refOf(r)
	var def cluster.TaskDefinition
	if err := readBody(w, r, &def, "revision", "status"); err != nil {
		return err
	}
	if faults := complete(&def); len(faults) > 0 {
		return faulty(faults)
	}
	snap := a.reads.tables.Snapshot()
	e, ok := snap.Definition(from)
	if !ok || !callerOf(r.Context()).sight(snap)(from) {
		return notFound("task definition", from.String())
	}
	_, fields := compare(e.Value, &def)
	fields = slices.DeleteFunc(fields, func(f api.FieldChange) bool { return f.Path == "version" || f.Path == "name" })
	v := api.DefinitionDiff{From: from, To: def.Ref(), Fields: fields}
	if len(fields) == 0 {
		v.Note = "the content is the same"
	}
	return answer(w, http.StatusOK, v)
}

package catalog

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// DiffsAPI compares versions of task definitions.
type DiffsAPI struct{ backend.Backend }

// Routes returns the operation that compares versions.
func (a *DiffsAPI) Routes() []route.Route {
	const one = "/v1/definitions/{definition}/{version}/diff"
	return []route.Route{
		{
			Method: "GET", Path: one, Name: "diffVersions", Role: cluster.RoleViewer, Shared: true,
			Summary: "The changes of a version of a task definition since another one.",
			Query: []route.Parameter{
				route.QueryParam("from", "integer", "the version to compare with; default the previous one"),
				route.Consistent(),
			},
			Reply: reflect.TypeFor[api.DefinitionDiff](), Serve: a.diffVersions,
		},
		{
			Method: "POST", Path: one, Name: "diffDefinition", Role: cluster.RoleSubmitter, Shared: true, Quiet: true,
			Summary: "The changes that a task definition, with its defaults, would make to a stored version. " +
				"Nothing is written.",
			Body: reflect.TypeFor[cluster.TaskDefinition](), Reply: reflect.TypeFor[api.DefinitionDiff](),
			Serve: a.diffDefinition,
		},
	}
}

func (a *DiffsAPI) diffVersions(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	to, c := refOf(r), access.CallerOf(r.Context())
	sees := c.VisibleDefinitions(snap)
	if _, ok := snap.Definition(to); !ok || !sees(to) {
		return respond.NotFound("task definition", to.String())
	}
	from, err := route.Number(r, "from", 0)
	if err != nil {
		return err
	}
	ref := cluster.Ref{Name: to.Name, Version: int(min(from, 1<<31))}
	if from == 0 {
		ref.Version = versionBefore(snap, to, sees)
	}
	if ref.Version == 0 {
		return respond.JSON(w, http.StatusOK,
			api.DefinitionDiff{To: to, Note: to.String() + " is the first version that is kept"})
	}
	if _, ok := snap.Definition(ref); !ok || !sees(ref) {
		return respond.NotFound("task definition", ref.String())
	}
	v := api.DefinitionDiff{From: ref, To: to}
	if ref == to {
		v.Note = "it is compared with itself"
		return respond.JSON(w, http.StatusOK, v)
	}
	v.Fields, v.Note = ChangedBy(snap, ref, to)
	v.Fields = c.ShowFields(v.Fields)
	return respond.JSON(w, http.StatusOK, v)
}

// versionBefore returns the newest earlier version that the caller sees, 0 if there is none.
func versionBefore(snap *store.Snapshot, to cluster.Ref, sees func(cluster.Ref) bool) (before int) {
	for e := range snap.Definitions(to.Name) {
		if v := e.Value.Version; v < to.Version && sees(e.Value.Ref()) {
			before = max(before, v)
		}
	}
	return before
}

func (a *DiffsAPI) diffDefinition(w http.ResponseWriter, r *http.Request) error {
	from := refOf(r)
	var def cluster.TaskDefinition
	if err := strictjson.ReadBody(w, r, &def, "revision", "status"); err != nil {
		return err
	}
	if faults := draft.Complete(&def); len(faults) > 0 {
		return respond.Invalid(faults)
	}
	snap := a.Reads.Tables.Snapshot()
	e, ok := snap.Definition(from)
	if !ok || !access.CallerOf(r.Context()).VisibleDefinitions(snap)(from) {
		return respond.NotFound("task definition", from.String())
	}
	_, fields := draft.Compare(e.Value, &def)
	fields = slices.DeleteFunc(fields, func(f api.FieldChange) bool { return f.Path == "version" || f.Path == "name" })
	v := api.DefinitionDiff{From: from, To: def.Ref(), Fields: fields}
	if len(fields) == 0 {
		v.Note = "the content is the same"
	}
	return respond.JSON(w, http.StatusOK, v)
}

// ChangedBy returns the fields in which a definition differs from the previous one, or a note why it lists none.
func ChangedBy(snap *store.Snapshot, before, after cluster.Ref) ([]api.FieldChange, string) {
	if before == after {
		return nil, "the same definition, with restarted tasks"
	}
	a, ok := snap.Definition(before)
	if !ok {
		return nil, fmt.Sprintf("%s no longer exists", before)
	}
	b, ok := snap.Definition(after)
	if !ok {
		return nil, fmt.Sprintf("%s no longer exists", after)
	}
	_, fields := draft.Compare(a.Value, b.Value)
	fields = slices.DeleteFunc(fields, func(f api.FieldChange) bool { return f.Path == "version" })
	if len(fields) == 0 {
		return nil, fmt.Sprintf("%s and %s have the same content", before, after)
	}
	return fields, ""
}

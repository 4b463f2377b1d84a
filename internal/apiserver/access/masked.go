package access

import (
	"net/http"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// What stands in environments and files of task definitions may be secret. Whoever may run a command in a container can
// read it there; to the others, viewers, it is not shown (ADR 0063).

// masked stands where a value of an environment or the content of a file is not shown.
const masked = "(hidden)"

// reads reports whether the values of environments and files may be shown to a caller. Without a caller the server asks
// itself.
func (c *Caller) reads() bool { return c == nil || Rank(c.Role) >= Rank(cluster.RoleSubmitter) }

// MayReveal refuses a request that asks for values (?reveal) that its caller may not see; without the parameter they
// are left out for it.
func MayReveal(r *http.Request) error {
	if c := CallerOf(r.Context()); route.Flag(r, "reveal") && !c.reads() {
		return respond.Problemf(http.StatusForbidden,
			"the values of environments and files need the role %s, and %s has the role %s: ask without "+
				"reveal, or with another token",
			cluster.RoleSubmitter, c.Who, c.Role)
	}
	return nil
}

// Reveal returns the parameter that asks for the values of environments and files.
func Reveal() route.Parameter {
	return route.QueryParam(
		"reveal", "boolean",
		"refuse with 403 where the caller may not see the values of environments and files, which needs the "+
			"role submitter; without it they are then left out",
	)
}

// ShowDefinition returns a definition as a caller may see it. The tables' own stays as it is.
func (c *Caller) ShowDefinition(def *cluster.TaskDefinition) cluster.TaskDefinition {
	if c.reads() {
		return *def
	}
	return hidden(def)
}

// hidden returns a copy of a definition without the values of environments and files.
func hidden(def *cluster.TaskDefinition) cluster.TaskDefinition {
	shown := *def
	shown.Containers = make([]cluster.Container, len(def.Containers))
	for i, container := range def.Containers {
		if container.Env != nil {
			env := make(map[string]string, len(container.Env))
			for name := range container.Env { // order-free: into a map
				env[name] = masked
			}
			container.Env = env
		}
		files := make([]cluster.File, len(container.Files))
		for j, f := range container.Files {
			if f.Content != "" {
				f.Content = masked
			}
			files[j] = f
		}
		if container.Files != nil {
			container.Files = files
		}
		shown.Containers[i] = container
	}
	return shown
}

// ShowFields leaves the same values out of differences of definitions: which of them differ, everybody sees.
func (c *Caller) ShowFields(fields []api.FieldChange) []api.FieldChange {
	if c.reads() {
		return fields
	}
	for i := range fields {
		f := &fields[i]
		if !secretPath(f.Path) {
			continue
		}
		if f.Old != "" {
			f.Old = `"` + masked + `"`
		}
		if f.New != "" {
			f.New = `"` + masked + `"`
		}
	}
	return fields
}

// secretPath reports whether a path of a definition is that of a value of an environment, or of the content of a file.
func secretPath(path string) bool {
	rest, ok := strings.CutPrefix(path, "containers[")
	if !ok {
		return false
	}
	_, rest, _ = strings.Cut(rest, "]")
	return strings.HasPrefix(rest, ".env") || strings.HasPrefix(rest, ".files") && strings.HasSuffix(rest, ".content")
}

package access

import (
	"net/http"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// Environments and files of task definitions may hold secrets. A submitter can run a command in a container and read
// them there, so they are hidden from viewers only (ADR 0063).

// masked replaces a value of an environment or the content of a file.
const masked = "(hidden)"

// reads reports whether the caller may see values of environments and files. A nil caller is the server itself.
func (c *Caller) reads() bool { return c == nil || Rank(c.Role) >= Rank(cluster.RoleSubmitter) }

// MayReveal refuses a request with ?reveal if the caller may not see the values. Without the parameter the values are
// left out.
func MayReveal(r *http.Request) error {
	if c := CallerOf(r.Context()); route.Flag(r, "reveal") && !c.reads() {
		return respond.Problemf(http.StatusForbidden,
			"the values of environments and files need the role %s, and %s has the role %s: ask without "+
				"reveal, or with another token",
			cluster.RoleSubmitter, c.Who, c.Role)
	}
	return nil
}

// Reveal returns the parameter that requests the values of environments and files.
func Reveal() route.Parameter {
	return route.QueryParam(
		"reveal", "boolean",
		"refuse with 403 if the caller may not see the values of environments and files (role submitter); without "+
			"this parameter they are left out",
	)
}

// ShowDefinition returns a definition as the caller may see it. It does not change def.
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

// ShowFields hides the same values in differences of definitions. The names of the changed fields remain.
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

// secretPath reports whether a path of a definition leads to a value of an environment or to the content of a file.
func secretPath(path string) bool {
	rest, ok := strings.CutPrefix(path, "containers[")
	if !ok {
		return false
	}
	_, rest, _ = strings.Cut(rest, "]")
	return strings.HasPrefix(rest, ".env") || strings.HasPrefix(rest, ".files") && strings.HasSuffix(rest, ".content")
}

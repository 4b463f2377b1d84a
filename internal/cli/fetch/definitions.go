package fetch

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// IgnoreNotFound returns nil for a 404. An owner can be deleted before its tasks.
func IgnoreNotFound(err error) error {
	if client.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// NewestVersion returns the newest version number of a task definition.
func NewestVersion(ctx context.Context, c *client.Client, own string) (newest int, err error) {
	versions, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.DefinitionView], error) {
			return c.DefinitionVersions(ctx, own, o)
		})
	for _, d := range versions {
		newest = max(newest, d.Version)
	}
	return newest, err
}

// DefinitionRefs returns the definitions of steps, in the order of the steps.
func DefinitionRefs(steps []cluster.Step) (refs []cluster.Ref) {
	for i := range steps {
		refs = append(refs, steps[i].Definition)
	}
	return refs
}

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berthd/berth/api"
)

// DiffVersions returns the difference between two versions of a task definition; a from of 0 is the version before.
func (c *Client) DiffVersions(ctx context.Context, to api.Ref, from int) (v api.DefinitionDiff, err error) {
	r := get("definitions", to.Name, strconv.Itoa(to.Version), "diff")
	if from != 0 {
		r = r.with(url.Values{"from": {strconv.Itoa(from)}})
	}
	_, err = c.call(ctx, r, &v)
	return v, err
}

// DiffDefinition returns the difference between an existing version and a task definition.
func (c *Client) DiffDefinition(ctx context.Context, from api.Ref, def api.TaskDefinition) (v api.DefinitionDiff,
	err error,
) {
	_, err = c.call(ctx, request{
		method: http.MethodPost,
		path:   []string{"definitions", from.Name, strconv.Itoa(from.Version), "diff"}, body: def,
	}, &v)
	return v, err
}

// RevealedDefinition returns a version of a task definition with the values of environments and files. A caller without
// the right to see them gets 403, while Definition omits them.
func (c *Client) RevealedDefinition(ctx context.Context, ref api.Ref) (v api.DefinitionView, err error) {
	_, err = c.call(ctx, get("definitions", ref.Name, strconv.Itoa(ref.Version)).with(url.Values{"reveal": {"true"}}),
		&v)
	return v, err
}

package transport

import (
	"context"
	"fmt"
	"net/http"
)

type nodeKey struct{}

// WithNode returns a context that says which node calls, as its certificate shows. A context without one belongs to
// a caller that may speak for every node of its machine.
func WithNode(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nodeKey{}, name)
}

// NodeFrom returns the node that WithNode put into the context.
func NodeFrom(ctx context.Context) (name string, ok bool) {
	name, ok = ctx.Value(nodeKey{}).(string)
	return name, ok
}

// ofNode is a message that speaks for a node.
type ofNode interface{ node() string }

func (r Registration) node() string       { return r.Node }
func (r Report) node() string             { return r.Node }
func (r AssignmentsRequest) node() string { return r.Node }

// own refuses a message that speaks for another node than the one that sent it.
func own(w http.ResponseWriter, r *http.Request, in ofNode) bool {
	name, ok := NodeFrom(r.Context())
	if !ok || name == in.node() {
		return true
	}
	respond(w, failure{
		Title: "Forbidden", Status: http.StatusForbidden,
		Detail: fmt.Sprintf("the certificate is that of the node %q, which cannot speak for %q", name, in.node()),
	})
	return false
}

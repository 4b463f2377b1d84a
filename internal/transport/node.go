package transport

import (
	"context"
	"fmt"
	"net/http"
)

type nodeKey struct{}

// WithNode returns a context with the calling node, as its certificate shows. A context without one belongs to a caller
// that may act for every node of its machine.
func WithNode(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nodeKey{}, name)
}

// NodeFrom returns the node that WithNode put into the context.
func NodeFrom(ctx context.Context) (name string, ok bool) {
	name, ok = ctx.Value(nodeKey{}).(string)
	return name, ok
}

// nodeMessage is a message on behalf of a node.
type nodeMessage interface{ node() string }

func (r Registration) node() string       { return r.Node }
func (r Report) node() string             { return r.Node }
func (r AssignmentsRequest) node() string { return r.Node }

// checkNode refuses a message on behalf of another node than the one that sent it.
func checkNode(w http.ResponseWriter, r *http.Request, in nodeMessage) bool {
	name, ok := NodeFrom(r.Context())
	if !ok || name == in.node() {
		return true
	}
	respond(w, Failure{
		Title: "Forbidden", Status: http.StatusForbidden,
		Detail: fmt.Sprintf("the certificate is that of the node %q, which cannot speak for %q", name, in.node()),
	})
	return false
}

package secrets

import (
	"context"
	"sync"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/transport"
)

// Logins finds the login for a registry when a server resolves an image name. Its methods may be called
// concurrently.
type Logins struct {
	Node *node.Node
	// Source is nil if the server provides no secrets.
	Source  Source
	Session func() uint64
	// Own, unless nil, returns the node's own login for a registry, or empty strings.
	Own func(registry string) (user, secret string)
}

// ForRequest returns the login function for a registry that resolves an image name. The login is that of the secret in
// the request, which is requested once and kept nowhere else, or the node's own.
func (l *Logins) ForRequest(ctx context.Context, r transport.StreamRequest) func(registry string) (user,
	secret string) {
	if l.Source == nil || r.Images == nil || r.Images.Login == nil {
		return l.Own
	}
	var mu sync.Mutex
	known := map[string][2]string{}
	return func(registry string) (user, secret string) {
		mu.Lock()
		defer mu.Unlock()
		if login, ok := known[registry]; ok {
			return login[0], login[1]
		}
		reply, err := l.Source.Secrets(ctx,
			transport.SecretsRequest{Node: l.Node.Name, Session: l.Session(), Registry: registry, Stream: r.ID})
		switch {
		case err != nil:
			l.Node.Logger.Info("the login for a registry could not be requested", "registry", registry, "error", err)
		case reply.User != "":
			known[registry] = [2]string{reply.User, string(reply.Password)}
			return reply.User, string(reply.Password)
		}
		if l.Own == nil {
			return "", ""
		}
		return l.Own(registry)
	}
}

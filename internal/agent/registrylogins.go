package agent

import (
	"context"
	"sync"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/transport"
)

// registryLogins finds the login for a registry when a server resolves an image name. Its methods may be called
// concurrently.
type registryLogins struct {
	node *node.Node
	// source is nil if the server provides no secrets.
	source  secretSource
	session func() uint64
	// own, unless nil, returns the node's own login for a registry, or empty strings.
	own func(registry string) (user, secret string)
}

// forRequest returns the login function for a registry that resolves an image name. The login is that of the secret in
// the request, which is requested once and kept nowhere else, or the node's own.
func (l *registryLogins) forRequest(ctx context.Context, r transport.StreamRequest) func(registry string) (user,
	secret string) {
	if l.source == nil || r.Images == nil || r.Images.Login == nil {
		return l.own
	}
	var mu sync.Mutex
	known := map[string][2]string{}
	return func(registry string) (user, secret string) {
		mu.Lock()
		defer mu.Unlock()
		if login, ok := known[registry]; ok {
			return login[0], login[1]
		}
		reply, err := l.source.Secrets(ctx,
			transport.SecretsRequest{Node: l.node.Name, Session: l.session(), Registry: registry, Stream: r.ID})
		switch {
		case err != nil:
			l.node.Logger.Info("the login for a registry could not be asked for", "registry", registry, "error", err)
		case reply.User != "":
			known[registry] = [2]string{reply.User, string(reply.Password)}
			return reply.User, string(reply.Password)
		}
		if l.own == nil {
			return "", ""
		}
		return l.own(registry)
	}
}

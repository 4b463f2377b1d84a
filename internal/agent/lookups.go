package agent

import (
	"context"
	"sync"

	"github.com/berthd/berth/internal/transport"
)

// lookupLogin returns the login function for a registry that resolves an image name. The login is that of the secret in
// the request, which is requested once and kept nowhere else, or the node's own.
func (a *Agent) lookupLogin(ctx context.Context, r transport.StreamRequest) func(registry string) (user,
	secret string) {
	source, asks := a.Source.(secretSource)
	if !asks || r.Images == nil || r.Images.Login == nil {
		return a.Credentials
	}
	var mu sync.Mutex
	known := map[string][2]string{}
	return func(registry string) (user, secret string) {
		mu.Lock()
		defer mu.Unlock()
		if l, ok := known[registry]; ok {
			return l[0], l[1]
		}
		reply, err := source.Secrets(ctx,
			transport.SecretsRequest{Node: a.Name, Session: a.currentMark().Session, Registry: registry, Stream: r.ID})
		switch {
		case err != nil:
			a.Logger.Info("the login for a registry could not be asked for", "registry", registry, "error", err)
		case reply.User != "":
			known[registry] = [2]string{reply.User, string(reply.Password)}
			return reply.User, string(reply.Password)
		}
		if a.Credentials == nil {
			return "", ""
		}
		return a.Credentials(registry)
	}
}

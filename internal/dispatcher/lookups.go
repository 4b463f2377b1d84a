package dispatcher

import (
	"fmt"
	"maps"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// lookupTTL is the time after a look-up request in which the node may fetch its login.
const lookupTTL = 30 * time.Second

// lookup is a request to a node to look up an image with the login of a secret.
type lookup struct {
	node  string
	login transport.SecretName
	until time.Duration // by the server's clock
}

// recordLookup notes that a node may request the login named by a stream request.
func (v *secretSource) recordLookup(node string, r *transport.StreamRequest) {
	if r.Kind != transport.StreamImageResolve || r.Images == nil || r.Images.Login == nil {
		return
	}
	now := v.config.Clock()
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.lookups, func(_ string, l lookup) bool { return l.until < now })
	v.lookups[r.ID] = lookup{node, *r.Images.Login, now + lookupTTL}
}

// streamLogin returns the login for an image look-up, only to the node with that request, and only for the registry of
// the secret. The password is stored nowhere.
func (v *secretSource) streamLogin(r *transport.SecretsRequest) (reply transport.SecretsReply, err error) {
	v.mu.Lock()
	l, ok := v.lookups[r.Stream]
	v.mu.Unlock()
	if !ok || l.node != r.Node || v.config.Clock() > l.until {
		return reply, fmt.Errorf("%w: %s has no request to look up an image as %.60q", transport.ErrRefused, r.Node,
			r.Stream)
	}
	snap := v.config.Tables.Snapshot()
	e, ok := snap.Secret(l.login.Cluster, l.login.Secret)
	switch {
	case !ok:
		reply.Missing = []string{cluster.NoSecret(l.login.Cluster, l.login.Secret)}
		return reply, nil
	case e.Value.Type != cluster.SecretRegistry || e.Value.Registry != r.Registry:
		reply.Missing = []string{fmt.Sprintf("the secret %s is not for the registry %s", l.login.Secret, r.Registry)}
		return reply, nil
	}
	return v.loginOf(snap, e.Value)
}

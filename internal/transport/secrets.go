package transport

import (
	"context"
	"errors"
	"net/http"

	"github.com/berthd/berth/internal/cluster"
)

// PathSecrets is the path for the secrets of an attempt. It is answered over TLS and unix sockets only.
const PathSecrets = "/agent/v1/secrets"

// SecretStamps holds the stamps of the secrets of an attempt on the agent's node, without the values. It is sent when
// an assignment stream begins and whenever a stamp changed.
type SecretStamps struct {
	Task cluster.TaskID `json:"task"`
	UUID string         `json:"uuid"`
	// Stamps are the stamps of the values, by the names of the secrets. Secrets that do not exist are left out.
	Stamps map[string]string `json:"stamps"`
}

// SecretsRequest requests the secrets of one attempt on the node: those of its containers or, with a Registry, the
// login for the image of a Container.
type SecretsRequest struct {
	Node    string         `json:"node"`
	Session uint64         `json:"session"`
	Task    cluster.TaskID `json:"task"`
	UUID    string         `json:"uuid"`
	// Revision is the revision of the attempt's assignment: the values are not older.
	Revision  uint64 `json:"rev"`
	Registry  string `json:"registry,omitempty"`
	Container string `json:"container,omitempty"`
	// Stream, unless empty, is the id of a stream of the kind StreamImageResolve that names a secret. The request is
	// then for the secret's login for the Registry, and for no attempt.
	Stream string `json:"stream,omitempty"`
}

// SecretName names a secret.
type SecretName struct {
	Cluster string `json:"cluster"`
	Secret  string `json:"secret"`
}

func (r SecretsRequest) node() string { return r.Node }

// SecretsReply answers a SecretsRequest. The receiver keeps it in memory only.
type SecretsReply struct {
	// Secrets are the values by their names.
	Secrets map[string]SecretText `json:"secrets,omitempty"`
	// Missing has a sentence for each secret without a value, ordered by name.
	Missing []string `json:"missing,omitempty"`
	// User and Password are the login for the registry, empty if there is none.
	User     string `json:"user,omitempty"`
	Password []byte `json:"password,omitempty"`
	// Login names the secret of the login.
	Login string `json:"login,omitempty"`
}

// SecretText is a value with its stamp.
type SecretText struct {
	Stamp string `json:"stamp"`
	Value []byte `json:"value"`
}

// String keeps the value out of accidental output.
func (s SecretText) String() string { return "secret " + s.Stamp }

// GoString is String.
func (s SecretText) GoString() string { return s.String() }

// secretsDispatch is a Dispatch that serves secrets.
type secretsDispatch interface {
	// Secrets returns the secrets of an attempt on the calling node. ErrRefused says that the attempt is not on the
	// node, or has ended.
	Secrets(ctx context.Context, r SecretsRequest) (SecretsReply, error)
}

// handleSecrets serves requests for secrets.
func handleSecrets(d Dispatch) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g, ok := d.(secretsDispatch)
		if !ok {
			fail(w, errors.New("this server hands out no secrets"))
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		answer(g.Secrets)(w, r)
	}
}

// Secrets requests the secrets of an attempt from the server of the session.
func (c *Client) Secrets(ctx context.Context, r SecretsRequest) (SecretsReply, error) {
	var reply SecretsReply
	l, err := c.servers.currentLink()
	if err != nil {
		return reply, err
	}
	if err := c.call(ctx, l, PathSecrets, r, &reply); err != nil {
		return SecretsReply{}, c.servers.callFailed(ctx, l, err)
	}
	c.servers.callAnswered(l)
	return reply, nil
}

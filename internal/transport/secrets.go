package transport

import (
	"context"
	"errors"
	"net/http"

	"github.com/berthd/berth/internal/cluster"
)

// PathSecrets is where an agent asks for the secrets of an attempt. It is answered over TLS and unix sockets only.
const PathSecrets = "/agent/v1/secrets"

// SecretStamps tells an agent which values the secrets have that an attempt on its node is handed, without the values.
// It comes when an assignment stream begins and whenever one changed.
type SecretStamps struct {
	Task cluster.TaskID `json:"task"`
	UUID string         `json:"uuid"`
	// Stamps are those of the values, by the names of the secrets; what does not exist is missing.
	Stamps map[string]string `json:"stamps"`
}

// SecretsRequest asks for the secrets of one attempt on the node: those that its containers are handed, or, with a
// Registry, what that wants for the image of a Container.
type SecretsRequest struct {
	Node    string         `json:"node"`
	Session uint64         `json:"session"`
	Task    cluster.TaskID `json:"task"`
	UUID    string         `json:"uuid"`
	// Revision is that of the attempt's assignment: the values are not older than that.
	Revision  uint64 `json:"rev"`
	Registry  string `json:"registry,omitempty"`
	Container string `json:"container,omitempty"`
	// Stream, unless empty, is the id of a stream of the kind StreamImageResolve that names a secret: asked for is its
	// login for the Registry, of no attempt.
	Stream string `json:"stream,omitempty"`
}

// SecretName names a secret.
type SecretName struct {
	Cluster string `json:"cluster"`
	Secret  string `json:"secret"`
}

func (r SecretsRequest) node() string { return r.Node }

// SecretsReply answers. Whoever gets it keeps it in memory alone.
type SecretsReply struct {
	// Secrets are the values by their names.
	Secrets map[string]SecretText `json:"secrets,omitempty"`
	// Missing says of each of the others why there is no value, ordered by name.
	Missing []string `json:"missing,omitempty"`
	// User and Password are what the registry wants, empty where nobody knows.
	User     string `json:"user,omitempty"`
	Password []byte `json:"password,omitempty"`
	// Login names the secret that they are of; a server of an earlier build does not tell.
	Login string `json:"login,omitempty"`
}

// SecretText is a value with its stamp.
type SecretText struct {
	Stamp string `json:"stamp"`
	Value []byte `json:"value"`
}

// String keeps the value out of what is printed by mistake.
func (s SecretText) String() string { return "secret " + s.Stamp }

// GoString is String.
func (s SecretText) GoString() string { return s.String() }

// secretGiver is a Dispatch that hands out secrets.
type secretGiver interface {
	// Secrets returns those of an attempt on the node that asks. ErrRefused says that the attempt is not there, or has
	// ended.
	Secrets(ctx context.Context, r SecretsRequest) (SecretsReply, error)
}

// giveSecrets answers agents that ask for secrets.
func giveSecrets(d Dispatch) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g, ok := d.(secretGiver)
		if !ok {
			fail(w, errors.New("this server hands out no secrets"))
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		answer(g.Secrets)(w, r)
	}
}

// Secrets asks the server of the session for the secrets of an attempt.
func (c *Client) Secrets(ctx context.Context, r SecretsRequest) (SecretsReply, error) {
	var reply SecretsReply
	l, err := c.servers.present()
	if err != nil {
		return reply, err
	}
	if err := c.call(ctx, l, PathSecrets, r, &reply); err != nil {
		return SecretsReply{}, c.servers.failed(ctx, l, err)
	}
	c.servers.answered(l)
	return reply, nil
}

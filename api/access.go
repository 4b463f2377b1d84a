package api

import (
	"time"
)

// Messages of who may do what: tokens, and the certificates of machines.

// TokenRequest asks for a token.
type TokenRequest struct {
	// Name is for people: whose token it is, or what for.
	Name string `json:"name,omitempty"`
	// Purpose is "access", for people and programs, or "join", for machines; default access.
	Purpose TokenPurpose `json:"purpose,omitempty"`
	// Role is admin, operator, submitter or viewer for access; node or server for joining.
	Role Role `json:"role"`
	// Clusters, unless empty, are the only ones that an access token of a submitter or a viewer reaches.
	Clusters []string `json:"clusters,omitempty"`
	// Life is how long the token is good for. An access token without lasts until it is revoked; a join token lasts an
	// hour by default, and thirty days at most.
	Life Duration `json:"life,omitempty"`
	// Uses is how often a join token may be used; default 1.
	Uses int `json:"uses,omitempty"`
	// For, unless empty, is the only node name or server id that a join token is good for. Such a token also takes
	// over a name that a living machine has.
	For string `json:"for,omitempty"`
}

// TokenView is what is known of a token; the secret is not.
type TokenView struct {
	ID       string       `json:"id"`
	Name     string       `json:"name,omitempty"`
	Purpose  TokenPurpose `json:"purpose"`
	Role     Role         `json:"role"`
	Clusters []string     `json:"clusters,omitempty"`
	For      string       `json:"for,omitempty"`
	Created  time.Time    `json:"created"`
	By       string       `json:"by,omitempty"`
	Expires  time.Time    `json:"expires,omitzero"`
	Uses     int          `json:"uses,omitempty"`
	Used     int          `json:"used,omitempty"`
	// State is "good", "expired" or, for a join token, "used".
	State    string `json:"state"`
	Revision uint64 `json:"revision"`
}

// TokenReply answers the making of a token: the only time that it is shown.
type TokenReply struct {
	TokenView
	// Token is the whole of it: what is sent as "Authorization: Bearer", or given to a machine that joins.
	Token string `json:"token"`
}

// JoinRequest trades a join token for a certificate.
type JoinRequest struct {
	// Token is the whole join token, "<id>.<secret>.<hash>".
	Token string `json:"token"`
	// Name is the node's name, or the server's id; the request must be for just this name.
	Name string `json:"name"`
	// Request is a certificate signing request in PEM: CN is the name, OU the role.
	Request string `json:"request"`
	// ServerName is what people will call a server; it is refused if another one is called so. Empty for nodes.
	ServerName string `json:"server_name,omitempty"`
	// PeerURL is where a server will be reached by the other members of the store, such as "https://10.0.0.2:7072".
	// Empty for nodes, and for servers whose store runs elsewhere.
	PeerURL string `json:"peer_url,omitempty"`
}

// JoinReply is what a machine needs from then on.
type JoinReply struct {
	// Certificate is signed for the request, and Authority the certificate of who signed it; both in PEM.
	Certificate string `json:"certificate"`
	Authority   string `json:"authority"`
	// AuthorityKey is for servers alone: with it they sign as well.
	AuthorityKey string `json:"authority_key,omitempty"`
	// SecretsKey is for servers alone: with it they seal and open secrets. SecretsKeys are all that the server that
	// answers holds; builds that know of one only read the other.
	SecretsKey  string `json:"secrets_key,omitempty"`
	SecretsKeys string `json:"secrets_keys,omitempty"`
	// Members are the members of the store, the new one included, for servers alone.
	Members []ServerMember `json:"members,omitempty"`
	// Servers are the addresses of the control plane, such as "https://10.0.0.1:7071".
	Servers []string `json:"servers,omitempty"`
}

// ServerMember is a member of the store.
type ServerMember struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// PeerURL is where the other members reach it.
	PeerURL string `json:"peer_url,omitempty"`
	// Learner says that it has no vote yet.
	Learner bool `json:"learner,omitempty"`
}

// RenewRequest asks for a new certificate for the one that the connection shows.
type RenewRequest struct {
	// Request is a certificate signing request in PEM, for the same name and role.
	Request string `json:"request"`
}

// RenewReply carries it.
type RenewReply struct {
	Certificate string `json:"certificate"`
	Authority   string `json:"authority"`
}

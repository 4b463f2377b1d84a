package api

import (
	"time"
)

// Messages for access: tokens and certificates of machines.

// TokenRequest requests a token.
type TokenRequest struct {
	// Name is a label: the token's holder or use.
	Name string `json:"name,omitempty"`
	// Purpose is "access", for people and programs, or "join", for machines; default access.
	Purpose TokenPurpose `json:"purpose,omitempty"`
	// Role is admin, operator, submitter or viewer for access; node or server for joining.
	Role Role `json:"role"`
	// Clusters, unless empty, limits an access token of a submitter or viewer to these clusters.
	Clusters []string `json:"clusters,omitempty"`
	// Life is the validity of the token. Without it, an access token lasts until it is revoked, and a join token an
	// hour. A join token lasts at most thirty days.
	Life Duration `json:"life,omitempty"`
	// Uses is the maximum number of uses of a join token; default 1.
	Uses int `json:"uses,omitempty"`
	// For, unless empty, limits a join token to this node name or server id. Such a token also takes over the name of a
	// live machine.
	For string `json:"for,omitempty"`
}

// TokenView is a token without its secret.
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
	State    TokenState   `json:"state"`
	Revision uint64       `json:"revision"`
}

// TokenState says whether a token is valid.
type TokenState string

// States of a token.
const (
	TokenGood    TokenState = "good"
	TokenExpired TokenState = "expired"
	TokenUsed    TokenState = "used" // a join token without further uses
)

// Values returns every TokenState, in the order of the constants.
func (TokenState) Values() []TokenState {
	return []TokenState{TokenGood, TokenExpired, TokenUsed}
}

// TokenReply is the answer to the creation of a token, and the only one with its secret.
type TokenReply struct {
	TokenView
	// Token is the whole token, for "Authorization: Bearer" or for a machine that joins.
	Token string `json:"token"`
}

// JoinRequest exchanges a join token for a certificate.
type JoinRequest struct {
	// Token is the whole join token, "<id>.<secret>.<hash>".
	Token string `json:"token"`
	// Name is the node's name or the server's id. The certificate signing request must have the same name.
	Name string `json:"name"`
	// Request is a certificate signing request in PEM: CN is the name, OU the role.
	Request string `json:"request"`
	// ServerName is the display name of a server; a name in use is refused. Empty for nodes.
	ServerName string `json:"server_name,omitempty"`
	// PeerURL is the server's address for the other members of the store, such as "https://10.0.0.2:7072". Empty for
	// nodes, and for servers with an external store.
	PeerURL string `json:"peer_url,omitempty"`
}

// JoinReply is the data that a machine needs after it joined.
type JoinReply struct {
	// Certificate is the signed certificate, and Authority the certificate of its signer; both in PEM.
	Certificate string `json:"certificate"`
	Authority   string `json:"authority"`
	// AuthorityKey is the signing key, for servers only.
	AuthorityKey string `json:"authority_key,omitempty"`
	// SecretsKeys are the keys for sealing and opening secrets, for servers only: all keys of the answering server.
	SecretsKeys string `json:"secrets_keys,omitempty"`
	// Members are the members of the store, including the new one, for servers only.
	Members []ServerMember `json:"members,omitempty"`
	// Servers are the addresses of the control plane, such as "https://10.0.0.1:7071".
	Servers []string `json:"servers,omitempty"`
}

// ServerMember is a member of the store.
type ServerMember struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// PeerURL is the address for the other members.
	PeerURL string `json:"peer_url,omitempty"`
	// Learner says that the member has no vote yet.
	Learner bool `json:"learner,omitempty"`
}

// RenewRequest requests a new certificate to replace the one of the connection.
type RenewRequest struct {
	// Request is a certificate signing request in PEM, for the same name and role.
	Request string `json:"request"`
}

// RenewReply is the answer to a RenewRequest.
type RenewReply struct {
	Certificate string `json:"certificate"`
	Authority   string `json:"authority"`
}

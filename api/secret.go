package api

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// SecretWrite is the body of a write of a secret. No answer ever holds the value.
type SecretWrite struct {
	// Value is what containers are handed, or the password for a registry, in base64.
	Value string `json:"value"`
	// Type says what it is for; default "value".
	Type cluster.SecretType `json:"type,omitempty"`
	// Registry is the host that a secret of the type registry is for, and Username who the password is that of.
	Registry string `json:"registry,omitempty"`
	Username string `json:"username,omitempty"`
}

// String keeps the value out of what is printed by mistake.
func (s SecretWrite) String() string { return "a secret of the type " + string(s.Type) }

// GoString is String.
func (s SecretWrite) GoString() string { return s.String() }

// SecretView is what a read shows of a secret: all but its value.
type SecretView struct {
	Cluster  string             `json:"cluster"`
	Name     string             `json:"name"`
	Type     cluster.SecretType `json:"type"`
	Registry string             `json:"registry,omitempty"`
	// Version counts the values that it had, from 1.
	Version uint64 `json:"version"`
	// Size is that of the value in bytes.
	Size    int       `json:"size"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	// Users are the services, jobs and crons that are handed it, or pulled with it by name, as "default/service/web".
	Users []string `json:"users,omitempty"`
	// Restarted are, in the answer to a write, the services whose tasks are replaced because of it.
	Restarted []string `json:"restarted,omitempty"`
	Revision  uint64   `json:"revision,omitempty"`
}

// SecretsKeyView tells of a rotation of the key that secrets are sealed with.
type SecretsKeyView struct {
	// Key is the id of the key that all secrets are sealed with now.
	Key string `json:"key"`
	// Sealed is how many secrets were sealed anew, and Dropped how many older keys are gone.
	Sealed  int `json:"sealed"`
	Dropped int `json:"dropped"`
}

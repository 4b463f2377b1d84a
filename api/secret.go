package api

import (
	"time"
)

// SecretWrite is the body of a write of a secret. No answer ever holds the value.
type SecretWrite struct {
	// Value is what containers are handed, or the password for a registry, in base64.
	Value string `json:"value"`
	// Type says what it is for; default "value".
	Type SecretType `json:"type,omitempty"`
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
	Cluster  string     `json:"cluster"`
	Name     string     `json:"name"`
	Type     SecretType `json:"type"`
	Registry string     `json:"registry,omitempty"`
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

// MasterKeyView is what is known of a master key, which wraps the data keys that secrets are sealed with. The key
// itself is never told.
type MasterKeyView struct {
	MasterKey
	State MasterKeyState `json:"state"`
	// Secrets is how many secrets are sealed under it now.
	Secrets int `json:"secrets"`
	// Holders are the names of the servers that hold it, and Lacking of those that do not: a key is used once that is
	// none.
	Holders []string `json:"holders,omitempty"`
	Lacking []string `json:"lacking,omitempty"`
	// Began says, in the answer to a rekey, that this request made it.
	Began bool `json:"began,omitempty"`
}

// MasterKeyState says how a master key stands.
type MasterKeyState string

// States of a master key, in the order of its life.
const (
	MasterHandedOut MasterKeyState = "handed-out" // it comes to all servers, and is not used yet
	MasterInUse     MasterKeyState = "in-use"     // data keys are wrapped with it
	MasterReplaced  MasterKeyState = "replaced"   // secrets are still sealed under it, until they are sealed anew
	MasterKept      MasterKeyState = "kept"       // nothing in the store needs it; snapshots of before do
	MasterDropped   MasterKeyState = "dropped"    // servers take it out of their files
)

// Values returns every MasterKeyState, in the order of the constants.
func (MasterKeyState) Values() []MasterKeyState {
	return []MasterKeyState{MasterHandedOut, MasterInUse, MasterReplaced, MasterKept, MasterDropped}
}

// SecretsKeyView tells of a rotation of the data key that secrets are sealed with.
type SecretsKeyView struct {
	// Key is the id of the key that all secrets are sealed with now.
	Key string `json:"key"`
	// Sealed is how many secrets were sealed anew, and Dropped how many older keys are gone.
	Sealed  int `json:"sealed"`
	Dropped int `json:"dropped"`
}

package api

import (
	"time"
)

// SecretWrite is the body of a write of a secret. No answer ever contains the value.
type SecretWrite struct {
	// Value is the value for containers, or the password of a registry, in base64.
	Value string `json:"value"`
	// Type is the use of the secret; default "value".
	Type SecretType `json:"type,omitempty"`
	// Registry is the host of a secret of type registry, and Username the user of its password.
	Registry string `json:"registry,omitempty"`
	Username string `json:"username,omitempty"`
}

// String hides the value from accidental output.
func (s SecretWrite) String() string { return "a secret of the type " + string(s.Type) }

// GoString is String.
func (s SecretWrite) GoString() string { return s.String() }

// SecretView is a secret without its value.
type SecretView struct {
	Cluster  string     `json:"cluster"`
	Name     string     `json:"name"`
	Type     SecretType `json:"type"`
	Registry string     `json:"registry,omitempty"`
	// Version is the number of the present value, from 1.
	Version uint64 `json:"version"`
	// Size is the size of the value in bytes.
	Size    int       `json:"size"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	// Users are the services, jobs and crons that use the secret in a container or name it for image pulls, as
	// "default/service/web".
	Users []string `json:"users,omitempty"`
	// Restarted are, in the answer to a write, the services whose tasks are replaced because of it.
	Restarted []string `json:"restarted,omitempty"`
	Revision  uint64   `json:"revision,omitempty"`
}

// MasterKeyView is the state of a master key, which wraps the data keys of secrets. No answer contains the key itself.
type MasterKeyView struct {
	MasterKey
	State MasterKeyState `json:"state"`
	// Secrets is the number of secrets that are sealed under the key now.
	Secrets int `json:"secrets"`
	// Holders are the names of the servers with the key, and Lacking of those without it. A key is used once no server
	// lacks it.
	Holders []string `json:"holders,omitempty"`
	Lacking []string `json:"lacking,omitempty"`
	// Began says, in the answer to a rekey, that this request created the key.
	Began bool `json:"began,omitempty"`
}

// MasterKeyState is the state of a master key.
type MasterKeyState string

// States of a master key, in the order of its use.
const (
	MasterHandedOut MasterKeyState = "handed-out" // servers receive it; it is not used yet
	MasterInUse     MasterKeyState = "in-use"     // data keys are wrapped with it
	MasterReplaced  MasterKeyState = "replaced"   // some secrets are still sealed under it
	MasterKept      MasterKeyState = "kept"       // only older snapshots need it
	MasterDropped   MasterKeyState = "dropped"    // servers remove it from their files
)

// Values returns every MasterKeyState, in the order of the constants.
func (MasterKeyState) Values() []MasterKeyState {
	return []MasterKeyState{MasterHandedOut, MasterInUse, MasterReplaced, MasterKept, MasterDropped}
}

// SecretsKeyView is the result of a rotation of the data key.
type SecretsKeyView struct {
	// Key is the id of the data key of all secrets now.
	Key string `json:"key"`
	// Sealed is the number of secrets that were sealed again, and Dropped the number of older keys that were deleted.
	Sealed  int `json:"sealed"`
	Dropped int `json:"dropped"`
}

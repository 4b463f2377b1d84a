// Package secrets seals the values of secrets, so that neither the store, nor its snapshots, nor the disks below it
// show them.
//
// Each value is sealed with a data key (AES-256-GCM, a random nonce, the key of the record as additional data, so a
// value that is copied under another name cannot be opened). The data key is in the store as well, wrapped in the same
// way by a master key. The master key is never in the store: it is in a file in the data directory of every server.
// `berth server init` makes it, or the first start of a server of its own machine; joining servers get it together with
// the authority's key. A reader needs both the file and a copy of the store.
//
// The file holds one or several master keys, a line each, the oldest first. Each has an id, which does not reveal the
// key and by which data keys name it. Package keyring replaces master keys; this package covers a single server.
package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// File is the name of the file with the master keys in the data directory of a server.
const File = "secrets.key"

// keySize is the size of all keys, in bytes.
const keySize = 32

// Errors for errors.Is.
var (
	// ErrMaster says that this server lacks the master key that wraps a data key.
	ErrMaster = errors.New("this server lacks the key that secrets are sealed with")
	// ErrSealed says that a value cannot be opened: it was changed, or copied from another record.
	ErrSealed = errors.New("the sealed value was changed, or is that of another secret")
)

// Vault seals and opens values with the master keys of one server. Its methods may be called concurrently.
type Vault struct {
	path string

	mu      sync.Mutex
	masters []master               // the oldest first, at least one
	keys    map[string]cipher.AEAD // data keys, by the wrapped form
}

// String keeps the keys out of accidental output.
func (v *Vault) String() string { return "secrets keys " + strings.Join(v.IDs(), ", ") }

// GoString is String.
func (v *Vault) GoString() string { return v.String() }

// IDs returns the ids of the server's master keys, the oldest first. They do not reveal the keys.
func (v *Vault) IDs() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return idsOf(v.masters)
}

// Text returns one master key in the form of the file, the first for ""; it is empty if the server lacks the key. It
// must be sent to other servers only, over a secured connection.
func (v *Vault) Text(id string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m, ok := v.master(id); ok {
		return m.text()
	}
	return ""
}

// All is all of them, as the file holds them, for the same.
func (v *Vault) All() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return textOf(v.masters)
}

// master returns the key of an id, the first with "". v.mu is held.
func (v *Vault) master(id string) (master, bool) {
	if id == "" {
		return v.masters[0], true
	}
	if i := slices.IndexFunc(v.masters, func(m master) bool { return m.id == id }); i >= 0 {
		return v.masters[i], true
	}
	return master{}, false
}

// lacks is the error of a server that does not hold a master key. v.mu is held.
func (v *Vault) lacks(id string) error {
	return fmt.Errorf("%w: %s is needed, and %s holds %s. Bring the file of another server, or the copy of it "+
		"that was kept, and add its line of that key to this one; the server reads it every few seconds",
		ErrMaster, id, v.path, strings.Join(idsOf(v.masters), ", "))
}

// Lacks returns an error that wraps ErrMaster and says what to do if the server does not hold a master key.
func (v *Vault) Lacks(id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.master(id); ok {
		return nil
	}
	return v.lacks(id)
}

// NewKey makes a data key with a number, wrapped with a master key; "" means the first, for a store that names none
// yet. It returns ErrMaster if the server lacks the key.
func (v *Vault) NewKey(masterID string, number uint64, now time.Time) (*cluster.SecretKey, error) {
	v.mu.Lock()
	m, ok := v.master(masterID)
	if !ok {
		defer v.mu.Unlock()
		return nil, v.lacks(masterID)
	}
	v.mu.Unlock()
	data := make([]byte, keySize)
	_, _ = rand.Read(data) // never fails
	k := &cluster.SecretKey{ID: strconv.FormatUint(number, 10), Number: number, Master: m.id, Created: now}
	aead, err := aeadOf(m.key)
	if err != nil {
		return nil, err
	}
	k.Wrapped = aead.Seal(nil, nil, data, wrapping(k)) //nolint:gosec // the cipher chooses a random nonce
	return k, nil
}

// wrapping binds a data key to its record.
func wrapping(k *cluster.SecretKey) []byte { return []byte("secretkey/" + k.ID) }

// binding binds a value to its record.
func binding(s *cluster.Secret) []byte { return []byte("secret/" + s.Cluster + "/" + s.Name) }

// Seal seals a value for the secret, whose Cluster and Name it is bound to, and notes the key that it used.
func (v *Vault) Seal(k *cluster.SecretKey, s *cluster.Secret, value []byte) error {
	aead, err := v.unwrap(k)
	if err != nil {
		return err
	}
	s.Key, s.Sealed = k.ID, aead.Seal(nil, nil, value, binding(s)) //nolint:gosec // the same
	return nil
}

// Open opens the value of a secret that was sealed with the key. Its errors are ErrMaster and ErrSealed.
func (v *Vault) Open(k *cluster.SecretKey, s *cluster.Secret) ([]byte, error) {
	aead, err := v.unwrap(k)
	if err != nil {
		return nil, err
	}
	value, err := aead.Open(nil, nil, s.Sealed, binding(s))
	if err != nil {
		return nil, fmt.Errorf("secret %s of cluster %s: %w", s.Name, s.Cluster, ErrSealed)
	}
	return value, nil
}

// unwrap returns the cipher of a data key. It caches ciphers, because there are few.
func (v *Vault) unwrap(k *cluster.SecretKey) (cipher.AEAD, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if aead := v.keys[string(k.Wrapped)]; aead != nil {
		return aead, nil
	}
	m, ok := v.master(k.Master)
	if !ok {
		return nil, v.lacks(k.Master)
	}
	outer, err := aeadOf(m.key)
	if err != nil {
		return nil, err
	}
	data, err := outer.Open(nil, nil, k.Wrapped, wrapping(k))
	if err != nil {
		return nil, fmt.Errorf("data key %s: %w", k.ID, ErrSealed)
	}
	aead, err := aeadOf(data)
	if err != nil {
		return nil, err
	}
	const most = 16
	if len(v.keys) >= most {
		clear(v.keys)
	}
	v.keys[string(k.Wrapped)] = aead
	return aead, nil
}

func aeadOf(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

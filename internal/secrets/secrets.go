// Package secrets seals the values of secrets, so that neither the store, nor its snapshots, nor the disks below it show them.
//
// Each value is sealed with a data key (AES-256-GCM, a random nonce, the key of the record as additional data: a value that is copied
// under another name cannot be opened). The data key stands in the store as well, wrapped in the same way by the master key, which does
// not: it is a file in the data directory of every server, made by `berth server init` or by the first start of a server of its own
// machine, and handed to servers that join together with the authority's key. Who has the file and a copy of the store has the values;
// who has one of the two has nothing.
package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// File is the name of the master key in the data directory of a server.
const File = "secrets.key"

// prefix begins the text of a master key.
const prefix = "berth-secrets-key-1:"

// keySize is that of all keys, in bytes.
const keySize = 32

// Errors that callers tell apart, with errors.Is.
var (
	// ErrMaster says that this server's master key is not the one that the data key was wrapped with.
	ErrMaster = errors.New("the secrets key of this server is not the one that the secrets of the store are sealed with")
	// ErrSealed says that a value cannot be opened: it was changed, or copied from elsewhere.
	ErrSealed = errors.New("the sealed value was changed, or is that of another secret")
)

// Vault seals and opens. Its methods may be called concurrently.
type Vault struct {
	master []byte
	id     string

	mu   sync.Mutex
	keys map[string]cipher.AEAD // by the wrapped form
}

func newVault(master []byte) *Vault {
	sum := sha256.Sum256(append([]byte("berth secrets key: "), master...))
	return &Vault{master: master, id: hex.EncodeToString(sum[:8]), keys: map[string]cipher.AEAD{}}
}

// ID names the master key, and tells nothing of it.
func (v *Vault) ID() string { return v.id }

// Text is the master key as the file holds it. It is for joining servers, over a connection that is secured, and for nobody else.
func (v *Vault) Text() string { return prefix + base64.StdEncoding.EncodeToString(v.master) + "\n" }

// String keeps the key out of what is printed by mistake.
func (v *Vault) String() string { return "secrets key " + v.id }

// GoString is String.
func (v *Vault) GoString() string { return v.String() }

// Open returns the vault of a server's data directory, and makes its key where there is none: a random one, or, where the authority's key is
// given, one that follows from that. So all servers of a control plane that was made by an earlier build, and share that key alone, come to
// the same. A file that others may read is refused.
func Open(dataDir string, authorityKey []byte) (*Vault, error) {
	path := filepath.Join(dataDir, File)
	v, err := read(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	master := make([]byte, keySize)
	if len(authorityKey) > 0 {
		master, err = hkdf.Key(sha256.New, authorityKey, nil, "berth secrets key", keySize)
	} else {
		_, err = rand.Read(master)
	}
	if err != nil {
		return nil, fmt.Errorf("make the secrets key: %w", err)
	}
	v = newVault(master)
	return v, v.write(path)
}

// Create makes a random key in a data directory unless there is one.
func Create(dataDir string) (*Vault, error) { return Open(dataDir, nil) }

// Write writes a key that another server handed over. Another key that stands in the directory is not replaced.
func Write(dataDir, text string) error {
	v, err := parse(text)
	if err != nil {
		return fmt.Errorf("write the secrets key: %w", err)
	}
	path := filepath.Join(dataDir, File)
	switch old, err := read(path); {
	case err == nil && old.id == v.id:
		return nil
	case err == nil:
		return fmt.Errorf("%s is another key than that of the servers that are joined: move it away if nothing needs it any more", path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return v.write(path)
}

func read(path string) (*Vault, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the secrets key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read the secrets key: %s may be read by others; make its mode 0600", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the secrets key: %w", err)
	}
	v, err := parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("read the secrets key: %s: %w", path, err)
	}
	return v, nil
}

// parse reads the text of a key; its errors hold nothing of it.
func parse(text string) (*Vault, error) {
	body, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	master, err := base64.StdEncoding.DecodeString(body)
	if !ok || err != nil || len(master) != keySize {
		return nil, errors.New("it is not a secrets key: put back the copy of the file that was kept")
	}
	return newVault(master), nil
}

// write makes the file, whole and durable.
func (v *Vault) write(path string) error {
	err := func() error {
		f, err := os.CreateTemp(filepath.Dir(path), "."+File+"-") // of mode 0600
		if err != nil {
			return err
		}
		_, err = f.WriteString(v.Text())
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
		d, err := os.Open(filepath.Dir(path))
		if err != nil {
			return err
		}
		return errors.Join(d.Sync(), d.Close())
	}()
	if err != nil {
		return fmt.Errorf("write the secrets key: %w", err)
	}
	return nil
}

// NewKey makes a data key of the number, wrapped.
func (v *Vault) NewKey(number uint64, now time.Time) (*cluster.SecretKey, error) {
	data := make([]byte, keySize)
	_, _ = rand.Read(data) // never fails
	k := &cluster.SecretKey{ID: strconv.FormatUint(number, 10), Number: number, Master: v.id, Created: now}
	aead, err := aeadOf(v.master)
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

// Open opens the value of a secret that was sealed with the key. It returns ErrMaster or ErrSealed where it cannot.
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

// unwrap returns the cipher of a data key. It is kept: there are few of them.
func (v *Vault) unwrap(k *cluster.SecretKey) (cipher.AEAD, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if aead := v.keys[string(k.Wrapped)]; aead != nil {
		return aead, nil
	}
	if k.Master != v.id {
		return nil, fmt.Errorf("%w: it is %s, and %s is needed: copy the file %s from another server, or from the copy that was kept, and start this one anew",
			ErrMaster, v.id, k.Master, File)
	}
	outer, err := aeadOf(v.master)
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

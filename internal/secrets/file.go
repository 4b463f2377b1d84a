package secrets

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/privatefile"
)

// prefix begins the text of a master key.
const prefix = "berth-secrets-key-1:"

// maxMasters bounds the keys of a file.
const maxMasters = 64

// master is a master key.
type master struct {
	id  string
	key []byte
}

func masterOf(key []byte) master {
	sum := sha256.Sum256(append([]byte("berth secrets key: "), key...))
	return master{hex.EncodeToString(sum[:8]), key}
}

func randomMaster() master {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return masterOf(key)
}

func (m master) text() string { return prefix + base64.StdEncoding.EncodeToString(m.key) + "\n" }

// String keeps the key out of accidental output.
func (m master) String() string { return m.id }

// GoString is String.
func (m master) GoString() string { return m.id }

func idsOf(masters []master) []string {
	ids := make([]string, len(masters))
	for i, m := range masters {
		ids[i] = m.id
	}
	return ids
}

func textOf(masters []master) string {
	var b strings.Builder
	for _, m := range masters {
		b.WriteString(m.text())
	}
	return b.String()
}

// with returns the keys of both, the first ones first, each once.
func with(first, more []master) []master {
	out := slices.Clone(first)
	for _, m := range more {
		if !slices.ContainsFunc(out, func(has master) bool { return has.id == m.id }) {
			out = append(out, m)
		}
	}
	return out
}

// Open returns the vault of a server's data directory. It makes a random key if the directory has none. A file that
// others may read is refused.
func Open(dataDir string) (*Vault, error) {
	v := &Vault{path: filepath.Join(dataDir, File), keys: map[string]cipher.AEAD{}}
	var err error
	v.masters, err = read(v.path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	v.masters = []master{randomMaster()}
	return v, write(v.path, v.masters)
}

// Make makes another key and keeps it in the file, behind the older ones: it is durable when its id is returned.
func (v *Vault) Make() (id string, err error) {
	m := randomMaster()
	return m.id, v.change(func(have []master) []master { return with(have, []master{m}) })
}

// Take keeps the keys of a text that another server handed over, behind its own, and makes them durable.
func (v *Vault) Take(text string) error {
	more, err := parse(text)
	if err != nil {
		return fmt.Errorf("take a secrets key: %w", err)
	}
	return v.change(func(have []master) []master { return with(have, more) })
}

// Drop takes a key out of the file. The last one stays.
func (v *Vault) Drop(id string) error {
	return v.change(func(have []master) []master {
		left := slices.DeleteFunc(slices.Clone(have), func(m master) bool { return m.id == id })
		if len(left) == 0 {
			return have
		}
		return left
	})
}

// Reload reads the file again, which may have new keys. Keys that disappeared from it stay in use until the next start.
func (v *Vault) Reload() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, err := read(v.path)
	if err == nil {
		v.masters = with(now, v.masters)
	}
	return err
}

// change applies a change to the keys that the file holds now, which may be more than those in memory.
func (v *Vault) change(change func(have []master) []master) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, err := read(v.path)
	if errors.Is(err, fs.ErrNotExist) {
		now, err = nil, nil
	}
	if err != nil {
		return err
	}
	have := with(now, v.masters)
	next := change(have)
	if len(next) > maxMasters {
		return fmt.Errorf("%s would hold more than %d keys: drop those that nothing needs, with `berth "+
			"operator secrets drop-key`", v.path, maxMasters)
	}
	if !slices.Equal(idsOf(next), idsOf(now)) {
		if err := write(v.path, next); err != nil {
			return err
		}
	}
	v.masters = next
	clear(v.keys) // those of a key that was dropped, too
	return nil
}

// Write writes the keys that another server sent to a data directory. It does not replace other keys there.
func Write(dataDir, text string) error {
	next, err := parse(text)
	if err != nil {
		return fmt.Errorf("write the secrets key: %w", err)
	}
	path := filepath.Join(dataDir, File)
	old, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return write(path, next)
	}
	if err != nil {
		return err
	}
	switch both := with(next, old); {
	case len(both) == len(old):
		return nil
	case len(both) == len(next)+len(old):
		return fmt.Errorf("%s holds another key than those of the servers that are joined: move it away if "+
			"nothing needs it any more", path)
	default: // a join that is done again, after a key was replaced
		return write(path, both)
	}
}

// FileIDs names the keys in the file of a data directory, which need not be a running server's.
func FileIDs(dataDir string) ([]string, error) {
	masters, err := read(filepath.Join(dataDir, File))
	return idsOf(masters), err
}

func read(path string) ([]master, error) {
	b, err := privatefile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read the secrets key: %w", err)
	}
	masters, err := parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("read the secrets key: %s: %w", path, err)
	}
	return masters, nil
}

// parse reads the text of keys, one a line; its errors hold nothing of it.
func parse(text string) (masters []master, err error) {
	number := 0
	for line := range strings.Lines(strings.TrimSpace(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		body, ok := strings.CutPrefix(line, prefix)
		key, err := base64.StdEncoding.DecodeString(body)
		if !ok || err != nil || len(key) != keySize || len(masters) == maxMasters {
			return nil, fmt.Errorf("line %d is not a secrets key, or one too many: put back the copy of the "+
				"file that was kept", number)
		}
		masters = with(masters, []master{masterOf(key)})
	}
	if len(masters) == 0 {
		return nil, errors.New("it is not a secrets key: put back the copy of the file that was kept")
	}
	return masters, nil
}

// write makes the file, whole and durable.
func write(path string, masters []master) error {
	err := func() error {
		f, err := os.CreateTemp(filepath.Dir(path), "."+File+"-") // of mode 0600
		if err != nil {
			return err
		}
		_, err = f.WriteString(textOf(masters))
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

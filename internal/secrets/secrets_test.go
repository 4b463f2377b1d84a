package secrets_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/secrets"
)

func vault(t *testing.T, dir string, authority string) *secrets.Vault {
	t.Helper()
	v, err := secrets.Open(dir, []byte(authority))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSealedValuesComeBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := vault(t, dir, "")
	k, err := v.NewKey(7, time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	value := []byte("correct horse")
	s := &cluster.Secret{Cluster: "default", Name: "db"}
	if err := v.Seal(k, s, value); err != nil {
		t.Fatal(err)
	}
	if s.Key != "7" || bytes.Contains(s.Sealed, value) || bytes.Contains(k.Wrapped, value) {
		t.Errorf("sealed with key %q: %q", s.Key, s.Sealed)
	}
	// Another life of the server, with the same file.
	again := vault(t, dir, "")
	if got, err := again.Open(k, s); err != nil || !bytes.Equal(got, value) {
		t.Errorf("opened: got %q, %v", got, err)
	}
	twice := *s
	if err := v.Seal(k, &twice, value); err != nil || bytes.Equal(twice.Sealed, s.Sealed) {
		t.Errorf("two seals of a value are the same, or: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, secrets.File)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the key: %v %v", info.Mode(), err)
	}
}

func TestWhatWasMovedOrChangedIsRefused(t *testing.T) {
	t.Parallel()
	v := vault(t, t.TempDir(), "")
	k, err := v.NewKey(1, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	sealed := func() *cluster.Secret {
		s := &cluster.Secret{Cluster: "default", Name: "db"}
		if err := v.Seal(k, s, []byte("value")); err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, change := range map[string]func(s *cluster.Secret){
		"under another name":    func(s *cluster.Secret) { s.Name = "web" },
		"in another cluster":    func(s *cluster.Secret) { s.Cluster = "other" },
		"a bit of it":           func(s *cluster.Secret) { s.Sealed[len(s.Sealed)/2] ^= 1 },
		"cut short":             func(s *cluster.Secret) { s.Sealed = s.Sealed[:5] },
		"nothing is left of it": func(s *cluster.Secret) { s.Sealed = nil },
	} {
		s := sealed()
		change(s)
		if got, err := v.Open(k, s); !errors.Is(err, secrets.ErrSealed) {
			t.Errorf("%s: got %q, %v; want ErrSealed", name, got, err)
		}
	}
	moved := *k
	moved.ID = "2"
	if _, err := vault(t, t.TempDir(), "").Open(k, sealed()); !errors.Is(err, secrets.ErrMaster) {
		t.Errorf("with another master: got %v, want ErrMaster", err)
	}
	moved.Wrapped = append(bytes.Clone(k.Wrapped[:len(k.Wrapped)-1]), k.Wrapped[len(k.Wrapped)-1]^1)
	if _, err := v.Open(&moved, sealed()); !errors.Is(err, secrets.ErrSealed) {
		t.Errorf("with a data key that was changed: got %v, want ErrSealed", err)
	}
}

// Servers of a control plane from before there were secrets share the authority's key, and so come to the same.
func TestServersOfOneAuthorityHaveOneKey(t *testing.T) {
	t.Parallel()
	a, b, c := vault(t, t.TempDir(), "authority"), vault(t, t.TempDir(), "authority"), vault(t, t.TempDir(), "another")
	if a.ID() != b.ID() || a.ID() == c.ID() {
		t.Errorf("got %s, %s and of another authority %s", a.ID(), b.ID(), c.ID())
	}
}

func TestKeysThatAreHandedOver(t *testing.T) {
	t.Parallel()
	from, to := vault(t, t.TempDir(), ""), t.TempDir()
	for range 2 { // a join may be done again
		if err := secrets.Write(to, from.Text()); err != nil {
			t.Fatal(err)
		}
	}
	if got := vault(t, to, "authority"); got.ID() != from.ID() {
		t.Errorf("got %s, want %s", got.ID(), from.ID())
	}
	if err := secrets.Write(to, vault(t, t.TempDir(), "").Text()); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("over another key: got %v", err)
	}
	if err := secrets.Write(t.TempDir(), "nonsense"); err == nil {
		t.Error("a text that is no key was taken")
	}
	open := filepath.Join(to, secrets.File)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Open(to, nil); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("a file that others may read: got %v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v", from, from, from); strings.Contains(text, strings.TrimPrefix(strings.TrimSpace(from.Text()), "berth-secrets-key-1:")) {
		t.Errorf("the key is printed: %s", text)
	}
}

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

func vault(t *testing.T, dir string) *secrets.Vault {
	t.Helper()
	v, err := secrets.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSealedValuesComeBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := vault(t, dir)
	k, err := v.NewKey("", 7, time.Unix(1, 0))
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
	again := vault(t, dir)
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

func TestMovedOrChangedValuesAreRefused(t *testing.T) {
	t.Parallel()
	v := vault(t, t.TempDir())
	k, err := v.NewKey("", 1, time.Time{})
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
	if _, err := vault(t, t.TempDir()).Open(k, sealed()); !errors.Is(err, secrets.ErrMaster) {
		t.Errorf("with another master: got %v, want ErrMaster", err)
	}
	moved.Wrapped = append(bytes.Clone(k.Wrapped[:len(k.Wrapped)-1]), k.Wrapped[len(k.Wrapped)-1]^1)
	if _, err := v.Open(&moved, sealed()); !errors.Is(err, secrets.ErrSealed) {
		t.Errorf("with a data key that was changed: got %v, want ErrSealed", err)
	}
}

func TestKeysThatAreHandedOver(t *testing.T) {
	t.Parallel()
	from, to := vault(t, t.TempDir()), t.TempDir()
	for range 2 { // a join may be done again
		if err := secrets.Write(to, from.All()); err != nil {
			t.Fatal(err)
		}
	}
	if got := vault(t, to); got.Text("") != from.Text("") {
		t.Errorf("got %s, want %s", got, from)
	}
	if err := secrets.Write(to, vault(t, t.TempDir()).All()); err == nil ||
		!strings.Contains(err.Error(), "another key") {
		t.Errorf("over another key: got %v", err)
	}
	if err := secrets.Write(t.TempDir(), "nonsense"); err == nil {
		t.Error("a text that is no key was taken")
	}
	open := filepath.Join(to, secrets.File)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := secrets.Open(to); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: got %v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v", from, from, from); strings.Contains(text,
		strings.TrimPrefix(strings.TrimSpace(from.All()), "berth-secrets-key-1:")) {
		t.Errorf("the key is printed: %s", text)
	}
}

// A file with several keys opens what each of them wrapped; one that was handed over or made is durable, one that was
// dropped is gone, and the file of a server that runs may be added to by hand.
func TestSeveralMasterKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v := vault(t, dir)
	first := v.IDs()[0]
	old, err := v.NewKey("", 1, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	before := &cluster.Secret{Cluster: "default", Name: "db"}
	if err := v.Seal(old, before, []byte("value")); err != nil {
		t.Fatal(err)
	}
	stale, err := os.ReadFile(filepath.Join(dir, secrets.File))
	if err != nil {
		t.Fatal(err)
	}
	next, err := v.Make()
	if err != nil {
		t.Fatal(err)
	}
	again := vault(t, dir)
	if got := fmt.Sprint(again.IDs()); got != fmt.Sprintf("[%s %s]", first, next) {
		t.Errorf("after another start: got %s", got)
	}
	k, err := again.NewKey(next, 2, time.Time{})
	if err != nil || k.Master != next {
		t.Fatalf("a key wrapped with the newer one: %+v, %v", k, err)
	}
	after := &cluster.Secret{Cluster: "default", Name: "db"}
	if err := again.Seal(k, after, []byte("value")); err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{"old": {old, before}, "new": {k, after}} {
		sealed, _ := pair[1].(*cluster.Secret)
		key, _ := pair[0].(*cluster.SecretKey)
		if got, err := v.Open(key, sealed); err != nil || string(got) != "value" {
			t.Errorf("%s: got %q, %v", what, got, err)
		}
	}
	// The older one goes; what it wrapped is refused with the name of what is missing, and where to put it.
	if err := v.Drop(first); err != nil {
		t.Fatal(err)
	}
	_, err = v.Open(old, before)
	for _, word := range []string{first, next, filepath.Join(dir, secrets.File), "copy of it that was kept"} {
		if !errors.Is(err, secrets.ErrMaster) || !strings.Contains(err.Error(), word) {
			t.Errorf("without the older key: got %v, want ErrMaster with %q", err, word)
		}
	}
	if err := v.Drop(next); err != nil || len(v.IDs()) != 1 {
		t.Errorf("the last key went: %v, %v", v.IDs(), err)
	}
	// An operator adds the line of the kept copy.
	f, err := os.OpenFile(filepath.Join(dir, secrets.File), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(stale)
	if err = errors.Join(err, f.Close(), v.Reload()); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Open(old, before); err != nil || string(got) != "value" {
		t.Errorf("with the line of the copy: got %q, %v", got, err)
	}
	// A server that lacks the newest takes it from another, once.
	other := vault(t, t.TempDir())
	for range 2 {
		if err := other.Take(v.Text(next)); err != nil || len(other.IDs()) != 2 {
			t.Fatalf("taken: %v, %v", other.IDs(), err)
		}
	}
	if err := other.Take("berth-secrets-key-1:c2hvcnQ="); err == nil || strings.Contains(err.Error(), "c2hvcnQ") {
		t.Errorf("a text that is no key: %v", err)
	}
}

// A file of the previous build, with one line, is read, and so is that of a control plane that derived its key.
func TestFileOfTheBuildBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "berth-secrets-key-1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n"
	if err := os.WriteFile(filepath.Join(dir, secrets.File), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	v := vault(t, dir)
	if v.All() != text || v.IDs()[0] != "a46e580137007219" {
		t.Errorf("read as %v", v.IDs())
	}
}

package contexts

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func load(t *testing.T, path string) File {
	t.Helper()
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestUpdate checks that concurrent changes are all kept, and that only the user can read the file.
func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "berth", "contexts.json")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := Update(path, func(f *File) error {
				f.Set(Context{Name: fmt.Sprintf("c%02d", i), Addresses: []string{"https://s1:7070"}, Token: "sesame"})
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	f := load(t, path)
	if names := f.Names(); len(names) != 20 || !slices.IsSorted(names) {
		t.Errorf("the contexts are %q", names)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	left, err := filepath.Glob(path + ".*")
	if err != nil || len(left) != 1 { // the lock
		t.Errorf("files are left: %q, %v", left, err)
	}
}

// TestUpdateThatFails checks that a change that fails writes nothing.
func TestUpdateThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.json")
	refused := errors.New("no")
	err := Update(path, func(f *File) error {
		f.Set(Context{Name: "a"})
		return refused
	})
	if !errors.Is(err, refused) || len(load(t, path).Contexts) != 0 {
		t.Errorf("%v, %+v", err, load(t, path))
	}
}

// TestBrokenFile checks that a file that is no JSON is neither used nor overwritten, and that the error names it.
func TestBrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.json")
	if err := os.WriteFile(path, []byte(`{"current": "a", "token": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Update(path, func(*File) error { return nil })
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the error is %v", err)
	}
	if raw, _ := os.ReadFile(path); !strings.Contains(string(raw), `"token": 1`) {
		t.Errorf("the file was overwritten: %s", raw)
	}
}

// TestRemoveCurrent checks that a removed context is no longer the current one.
func TestRemoveCurrent(t *testing.T) {
	f := File{Current: "a", Contexts: []Context{{Name: "a"}, {Name: "b"}}}
	f.Remove("a")
	if _, ok := f.Find("a"); ok || f.Current != "" || len(f.Contexts) != 1 {
		t.Errorf("%+v", f)
	}
}

// TestDev checks that each `berth dev` has a context of its own: none takes that of another one that runs, nor makes
// itself the current one in the place of another.
func TestDev(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "contexts.json")
	set := func(data, wantName, wantCurrent string) {
		t.Helper()
		name, current, err := SetDev(t.Context(), path, data, "unix://"+filepath.Join(dir, data))
		if err != nil || name != wantName || current != wantCurrent {
			t.Errorf("%s: context %q, current %q, %v; want %q, %q", data, name, current, err, wantName, wantCurrent)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	set("one", "dev", "dev")
	set("two", "dev-2", "dev")
	set("one", "dev", "dev") // the same one again, after a crash
	if err := RemoveDev(path, "dev-2", "two"); err != nil {
		t.Fatal(err)
	}
	if f := load(t, path); f.Current != "dev" || len(f.Contexts) != 1 {
		t.Errorf("after the second ended: %+v", f)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	set("three", "dev", "dev") // the first was killed, and nothing listens at its socket
	if err := RemoveDev(path, "dev", "one"); err != nil {
		t.Fatal(err)
	}
	if f := load(t, path); f.Contexts[0].Dev != "three" {
		t.Errorf("the end of an earlier one removed the context of a later one: %+v", f)
	}
	if err := RemoveDev(path, "dev", "three"); err != nil {
		t.Fatal(err)
	}
	if f := load(t, path); f.Current != "" || len(f.Contexts) != 0 {
		t.Errorf("after the last ended: %+v", f)
	}
}

// TestDevBesideAnotherContext checks that `berth dev` leaves the current context as it is.
func TestDevBesideAnotherContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.json")
	if err := Update(path, func(f *File) error {
		f.Set(Context{Name: "prod", Addresses: []string{"https://s1:7070"}})
		f.Current = "prod"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	name, current, err := SetDev(t.Context(), path, "data", "unix:///nowhere")
	if err != nil || name != "dev" || current != "prod" {
		t.Errorf("%q, %q, %v", name, current, err)
	}
}

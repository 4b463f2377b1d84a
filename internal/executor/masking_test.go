package executor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/internal/executor"
)

// The output of a program is masked with its present and former values, from files and variables.
func TestMasker(t *testing.T) {
	t.Parallel()
	if m := executor.NewMasker(nil, ""); m != nil {
		t.Errorf("a container without secrets has a masker: %+v", m)
	}
	dir := t.TempDir()
	folder, env := filepath.Join(dir, "0"), filepath.Join(dir, "env")
	put := func(name, value string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(folder, "db"), "correct-horse\n")
	put(filepath.Join(folder, "short"), "abc")
	put(filepath.Join(folder, "key"), "-----BEGIN KEY-----\nMIIEvQIBADANBg\nxyz\n-----END KEY-----\n")
	put(env, string(executor.EncodeEnv([]string{"PASSWORD=correct", "EMPTY="})))
	m := executor.NewMasker([]executor.Mount{{Source: folder}}, env)
	check := func(text, want string) {
		t.Helper()
		if got := string(m.Mask([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	check("the horse is correct", "the horse is [secret]")
	check("postgres://db:correct-horse@db/x", "postgres://db:[secret]@db/x")
	check("abc xyz", "abc xyz")
	check("a MIIEvQIBADANBg b", "a [secret] b")
	// The caller that replaces a value first adds it to the list. The next writer of the log reads the list, too.
	former := filepath.Join(dir, executor.FormerFolder)
	if err := os.Mkdir(former, 0o700); err != nil {
		t.Fatal(err)
	}
	keep := func(was, number string) {
		t.Helper()
		if err := os.Link(was, filepath.Join(former, number)); err != nil {
			t.Fatal(err)
		}
	}
	keep(filepath.Join(folder, "db"), "1")
	put(filepath.Join(folder, "db"), "battery-staple")
	keep(env, "2")
	put(env, string(executor.EncodeEnv([]string{"PASSWORD=other-one", "EMPTY="})))
	check("battery-staple after correct-horse, other-one after correct",
		"[secret] after [secret], [secret] after [secret]")
	m = executor.NewMasker([]executor.Mount{{Source: folder}}, env)
	check("battery-staple after correct-horse, other-one after correct",
		"[secret] after [secret], [secret] after [secret]")
	check("in the life before: correct-horse", "in the life before: [secret]")
	// Two changes of one tick of the clock: the folder has the same time after both.
	keep(filepath.Join(folder, "db"), "3")
	put(filepath.Join(folder, "db"), "paper-clips")
	info, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	check("paper-clips", "[secret]")
	put(filepath.Join(folder, "db"), "rubber-bands")
	if err := os.Chtimes(folder, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	check("rubber-bands", "[secret]")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	check("battery-staple after correct-horse", "[secret] after [secret]")
}

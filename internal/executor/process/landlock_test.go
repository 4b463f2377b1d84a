package process

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/testkit"
)

// Each version of the kernel's interface gets a request for the rights that it knows and for no others, which it would
// refuse.
func TestLandRights(t *testing.T) {
	t.Parallel()
	got := map[int]uint64{}
	for abi := 1; abi <= 7; abi++ {
		all, write := landRights(abi)
		if all&^write != landRead || all&landRead != landRead {
			t.Errorf("version %d: writing and reading are %#x and %#x", abi, write, all)
		}
		got[abi] = all
	}
	want := map[int]uint64{
		1: 1<<13 - 1, 2: 1<<14 - 1, 3: 1<<15 - 1, 4: 1<<15 - 1, 5: 1<<16 - 1, 6: 1<<16 - 1,
		7: 1<<16 - 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

// A program's rights follow from its container: it reads the system and its own files, and writes only to its own
// folders.
func TestIsolationRules(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	e := &Executor{cfg: Config{Hidden: []string{"/var/lib/berth"}}}
	p, err := e.newPlan(executor.Spec{
		ID: "a", Dir: "/var/lib/berth/a", Container: cluster.Container{
			Command: []string{"/srv/app/run"}, Isolation: cluster.IsolationRequired,
			Tmpfs: []cluster.Tmpfs{{Path: "/scratch"}},
			Files: []cluster.File{{Path: "/etc/app.conf"}},
		},
		Mounts: []executor.Mount{
			{Source: "/data/a", Path: "/data"},
			{Source: "/data/b", Path: "/more", ReadOnly: true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	all, _ := landRights(3)
	rights := map[string]uint64{}
	for _, r := range p.Isolation.landRules(3) {
		rights[r.path] |= r.rights
	}
	for path, want := range map[string]uint64{
		"/usr": landRead, "/etc": landRead, "/srv/app": landRead, "/more": landRead, "/etc/app.conf": landRead,
		"/data": all, "/scratch": all, "/tmp": all,
		"/var/lib/berth/a/work": all, "/": 0, "/srv": 0, "/home": 0, "/var": 0, "/var/lib/berth": 0, "/root": 0,
	} {
		if rights[path] != want {
			t.Errorf("%s: rights %#x, want %#x", path, rights[path], want)
		}
	}
	if p.User.UID != 65534 || !p.ReadOnlyRoot || !slices.Contains(p.Isolation.Hidden, "/var/lib/berth") {
		t.Errorf("the plan is %+v", p)
	}
	if e.cfg.User = "12:13"; e.userText(&cluster.Container{Isolation: cluster.IsolationRequired}) != "12:13" ||
		e.userText(&cluster.Container{User: "7"}) != "7" {
		t.Error("who names no user is not the agent's for such")
	}
}

// Programs are isolated and run as the user nobody, unless the operator or their container sets another user. No other
// name stands for root.
func TestStrictByDefault(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	strict, open := &Executor{}, &Executor{cfg: Config{Isolation: cluster.IsolationNone}}
	bare, none, required := &cluster.Container{}, &cluster.Container{Isolation: cluster.IsolationNone},
		&cluster.Container{Isolation: cluster.IsolationRequired}
	for _, c := range []struct {
		name      string
		executor  *Executor
		container *cluster.Container
		apart     bool
		user      string
	}{
		{"strict, nothing named", strict, bare, true, nobody},
		{"strict, none", strict, none, false, nobody},
		{"strict, required", strict, required, true, nobody},
		{"open, nothing named", open, bare, false, ""},
		{"open, none", open, none, false, ""},
		{"open, required", open, required, true, nobody},
		{"root by name", strict, &cluster.Container{User: "root"}, true, "root"},
	} {
		if apart, user := c.executor.isApart(c.container), c.executor.userText(c.container); apart != c.apart ||
			user != c.user {
			t.Errorf("%s: apart %v as %q, want %v as %q", c.name, apart, user, c.apart, c.user)
		}
		p, err := c.executor.newPlan(executor.Spec{ID: "a", Dir: "/var/lib/berth/a", Container: cluster.Container{
			Command: []string{"true"}, User: c.container.User, Isolation: c.container.Isolation,
		}})
		if err != nil || (p.Isolation != nil) != c.apart {
			t.Errorf("%s: the plan is %+v, %v", c.name, p, err)
		}
	}
	for _, user := range []string{"root", "0", "0:0", "1000:root"} { // what the servers let in with a permission
		if _, err := strict.userOf(&cluster.Container{User: user}); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	for _, id := range []identity{{UID: 0, GID: 7}, {UID: 7, GID: 0}, {UID: 7, GID: 7, Groups: []int{7, 0}}} {
		if _, err := notRoot("toor", id); !errors.Is(err, executor.ErrUnsupported) ||
			!strings.Contains(err.Error(), "by another name") {
			t.Errorf("toor, who is %+v: %v", id, err)
		}
		if _, err := notRoot("root", id); err != nil {
			t.Errorf("root, who is %+v: %v", id, err)
		}
	}
	if _, err := notRoot("www-data", identity{UID: 33, GID: 33, Groups: []int{33}}); err != nil {
		t.Error(err)
	}
}

// Landlock alone enforces the rules of a thread, without any mounts.
func TestLandlockIsEnforced(t *testing.T) {
	t.Parallel()
	if landlockABI() == 0 {
		testkit.Skip(t, "the kernel has no Landlock, or does not use it (lsm=landlock,…)")
	}
	mine, other := t.TempDir(), t.TempDir()
	i := &isolation{Read: readable(), Write: []string{mine}}
	errs := make(chan [3]error)
	go func() {
		runtime.LockOSThread() // it ends with the rules
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		rules := noRules
		if err == nil {
			rules, err = i.openRules()
		}
		if err == nil {
			err = restrict(rules)
		}
		create := func(dir string) error {
			fd, err := unix.Open(filepath.Join(dir, "x"), unix.O_CREAT|unix.O_WRONLY, 0o600)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		}
		errs <- [3]error{err, create(mine), create(other)}
	}()
	got := <-errs
	if got[0] != nil || got[1] != nil || !os.IsPermission(got[2]) {
		t.Errorf("rules: %v, its own: %v, another's: %v; want none, none and a refusal", got[0], got[1], got[2])
	}
}

package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// TestProgramBehindAFault searches a program in a PATH with a folder that cannot be read. That folder may have the
// program at another time, so the search has not found that there is none.
func TestProgramBehindAFault(t *testing.T) {
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	_, err := findProgram("work", []string{"PATH=" + loop + ":" + dir}, "")
	if err == nil || errors.Is(err, executor.ErrNoProgram) {
		t.Errorf("the search gives %v, want the fault of the folder", err)
	}
	program := filepath.Join(dir, "work")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := findProgram("work", []string{"PATH=" + loop + ":" + dir}, ""); got != program || err != nil {
		t.Errorf("the search gives %q, %v, want %s", got, err, program)
	}
}

func TestExitOf(t *testing.T) {
	for name, tc := range map[string]struct {
		status unix.WaitStatus
		kills  int
		want   cluster.Exit
	}{
		"success":                   {0, 0, cluster.Exit{}},
		"code":                      {3 << 8, 0, cluster.Exit{Code: 3}},
		"signal":                    {15, 0, cluster.Exit{Code: 143, Signal: 15}},
		"core":                      {11 | 0x80, 0, cluster.Exit{Code: 139, Signal: 11}},
		"memory":                    {9, 1, cluster.Exit{Code: 137, Signal: 9, OOM: true}},
		"a child's memory":          {1 << 8, 2, cluster.Exit{Code: 1, OOM: true}},
		"success without the child": {0, 1, cluster.Exit{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, exitOf(tc.status, tc.kills)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOOMKills(t *testing.T) {
	for in, want := range map[string]int{
		"": 0,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n": 3,
		"low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n":     1,
		"oom_kill many\n": 0,
	} {
		if got := parseOOMKills(in); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	command := []string{"true"}
	for name, tc := range map[string]struct {
		c     cluster.Container
		field string
	}{
		"image without command": {cluster.Container{Image: "redis:7"}, "command"},
		"unknown capability":    {cluster.Container{Command: command, Capabilities: []string{"FLY"}}, "capabilities"},
		"relative file":         {cluster.Container{Command: command, Files: []cluster.File{{Path: "etc/x"}}}, "files"},
		"tmpfs over all":        {cluster.Container{Command: command, Tmpfs: []cluster.Tmpfs{{Path: "/"}}}, "tmpfs"},
		"file over all":         {cluster.Container{Command: command, Files: []cluster.File{{Path: "/x/.."}}}, "files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := new(Executor).newPlan(executor.Spec{ID: "a", Container: tc.c, Dir: t.TempDir()})
			if !errors.Is(err, executor.ErrUnsupported) || len(err.Error()) < len(tc.field) ||
				err.Error()[:len(tc.field)] != tc.field {
				t.Errorf("got %v, want one about %s", err, tc.field)
			}
		})
	}
	for _, id := range []executor.ID{"", ".", "..", "a/b", "/", "a\x00", ".hidden", executor.ID(make([]byte, 77))} {
		if _, err := new(Executor).newPlan(
			executor.Spec{ID: id, Container: cluster.Container{Command: command}}); err == nil {
			t.Errorf("took the id %q", id)
		}
	}
	if _, err := new(Executor).newPlan(
		executor.Spec{ID: "a", Container: cluster.Container{Image: "redis:7", Command: command}}); err != nil {
		t.Errorf("refused an image with a command: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"A=1", "HOME=/x"}, "HOME=/root", "PATH=/bin", "A=2")
	if diff := cmp.Diff([]string{"A=1", "HOME=/x", "PATH=/bin"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// When the order to run cannot reach the launcher, the start was written down already. The error does not promise that
// the program never ran, on either end of the socket, and there is no second start.
func TestStartThatCannotBeReleased(t *testing.T) {
	read, order, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close() // the launcher's end: a write fails
	status, written, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	s := &supervisor{dir: stateDir(t.TempDir()), main: &child{order: order, status: status}}
	_, err = s.start()
	if !errors.Is(err, unix.EPIPE) {
		t.Fatalf("start: %v, want a broken pipe", err)
	}
	for side, err := range map[string]error{"supervisor": err, "agent": failed(err).err()} {
		if errors.Is(err, executor.ErrNotStarted) || errors.Is(err, executor.ErrUnavailable) {
			t.Errorf("%s: %v promises what is not known", side, err)
		}
	}
	if _, err := os.Stat(s.dir.path(intentFile)); err != nil {
		t.Errorf("the intent to start: %v", err)
	}
	if _, err := s.start(); !errors.Is(err, executor.ErrStarted) {
		t.Errorf("second start: %v, want %v", err, executor.ErrStarted)
	}
}

// A reply of any kind converts to an error, and that error to an equal reply.
func FuzzReply(f *testing.F) {
	f.Add("started", "the container was started before")
	f.Add("unsupported", "files: no")
	f.Add("", "")
	f.Add("new", "x")
	f.Fuzz(func(t *testing.T, kind, message string) {
		r := reply{Fault: fault(kind), Message: message}
		err := r.err()
		if (err == nil) != (kind == "") {
			t.Fatalf("%+v gives %v", r, err)
		}
		if err != nil {
			if again := failed(err); again.Message != message && again.Fault != r.Fault {
				t.Fatalf("%+v becomes %+v", r, again)
			}
		}
	})
}

// Any input on the supervisor's socket is refused, or is a complete request.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"op":"start"}`))
	f.Add([]byte(`{"op":"signal","signal":15}`))
	f.Add([]byte(`{"op":"exec","args":["sh"],"env":["A=1"],"dir":"/"}`))
	f.Add([]byte(`{"op":"exec"}`))
	f.Add([]byte(`{"op":"fly"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := decodeRequest(b)
		if err != nil {
			if !cmp.Equal(req, request{}) {
				t.Errorf("%q is refused (%v) and yet gives %+v", b, err, req)
			}
			return
		}
		if req.Op == "" || req.Op == opExec && len(req.Args) == 0 {
			t.Errorf("%q gives %+v", b, req)
		}
		again, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeRequest(again)
		if err != nil || !slices.Equal(back.Args, req.Args) || !slices.Equal(back.Env, req.Env) ||
			back.Signal != req.Signal || back.Dir != req.Dir {
			t.Errorf("%+v became %+v: %v", req, back, err)
		}
	})
}

// The pipe to the launcher changes nothing in an order with any content.
func FuzzOrder(f *testing.F) {
	f.Add("sh", "A=1", "/tmp", 0, 7)
	f.Add("", "\n", "", -1, 1<<20)
	f.Fuzz(func(t *testing.T, arg, env, dir string, uid, capability int) {
		if !utf8.ValidString(arg) || !utf8.ValidString(env) || !utf8.ValidString(dir) {
			return // manifests are JSON, and hold nothing else
		}
		order := launchOrder{
			Args: []string{arg}, Env: []string{env}, Dir: dir, User: identity{UID: uid},
			Capabilities: []int{capability},
		}
		b, err := json.Marshal(order)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(b, '\n') >= 0 {
			t.Errorf("%q is more than a line", b)
		}
		var back launchOrder
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(order, back, cmp.AllowUnexported(identity{})); diff != "" {
			t.Errorf("(-sent +got):\n%s", diff)
		}
	})
}

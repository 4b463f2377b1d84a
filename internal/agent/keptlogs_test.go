package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// The logs of an attempt can be read after all else of it is gone.
func TestOutputIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.batch("b1", definition("work", "app"))
		w.write("b1", "app", 3, "app")
		w.stopTask(d, true)
		w.server.say(transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: "b1"}})
		w.pass(time.Second)
		for name, test := range map[string]struct {
			request transport.StreamRequest
			want    []string
		}{
			"all": {transport.StreamRequest{UUID: "b1"}, []string{"app 0", "app 1", "app 2"}},
			"tail": {
				transport.StreamRequest{UUID: "b1", Logs: &transport.LogsRequest{Tail: 1, Follow: true}},
				[]string{"app 2"},
			},
			"container":    {transport.StreamRequest{UUID: "b1", Container: "other"}, nil},
			"outside":      {transport.StreamRequest{UUID: "../logs/b1"}, nil},
			"no container": {transport.StreamRequest{UUID: "b2"}, nil},
			"none at all":  {transport.StreamRequest{}, nil},
		} {
			r := test.request
			r.Kind, r.Task = transport.StreamLogs, d.Task
			conn := w.carry(name, r)
			if diff := cmp.Diff(test.want, readTexts(t, conn, 100)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestOldOutputIsDeleted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("live", definition("web", "app"))
		now := time.Now()
		for name, age := range map[string]time.Duration{
			"live": 48 * time.Hour, "old": 25 * time.Hour,
			"new": time.Hour,
		} {
			w.write(name, "app", 1, name)
			err := filepath.Walk(filepath.Join(w.agent.node.LogRoot(), name),
				func(path string, _ os.FileInfo, err error) error {
					if err != nil {
						return err
					}
					return os.Chtimes(path, now.Add(-age), now.Add(-age))
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.agent.logs.deleteOld(now); err != nil {
			t.Fatal(err)
		}
		got, err := filepath.Glob(filepath.Join(w.agent.node.LogRoot(), "*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i] = filepath.Base(got[i])
		}
		if diff := cmp.Diff([]string{"live", "new"}, got); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
	})
}

// Beyond a number of attempts the oldest logs are removed first: a node that ends many short tasks would otherwise run
// out of files.
func TestOutputIsKeptOfSoManyAttempts(t *testing.T) {
	inWorld(t, func(w *world) {
		now := time.Now()
		root := w.agent.node.LogRoot()
		for i, name := range []string{"a", "b", "c", "d"} {
			dir := filepath.Join(root, name, "app")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			at := now.Add(time.Duration(i-10) * time.Minute)
			for _, path := range []string{dir, filepath.Dir(dir)} {
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.agent.logs.attempts = 2
		if err := w.agent.logs.deleteOld(now); err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(root, "*"))
		if want := []string{filepath.Join(root, "c"), filepath.Join(root, "d")}; err != nil || !cmp.Equal(want, left) {
			t.Errorf("left are %v, %v; want %v", left, err, want)
		}
	})
}

// Beyond a size limit the oldest logs are removed first.
func TestOutputIsKeptWithinASize(t *testing.T) {
	inWorld(t, func(w *world) {
		now := time.Now()
		for i, name := range []string{"a", "b", "c"} {
			w.write(name, "app", 1, name)
			dir := filepath.Join(w.agent.node.LogRoot(), name)
			big, err := os.Create(filepath.Join(dir, "app", "sparse"))
			if err != nil {
				t.Fatal(err)
			}
			if err := big.Truncate(int64(400 * cluster.MiB)); err != nil {
				t.Fatal(err)
			}
			if err := big.Close(); err != nil {
				t.Fatal(err)
			}
			at := now.Add(time.Duration(i-10) * time.Minute)
			if err := filepath.Walk(dir, func(path string, _ os.FileInfo, _ error) error {
				return os.Chtimes(path, at, at)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.agent.logs.deleteOld(now); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(w.agent.node.LogRoot(), "a")); err == nil {
			t.Error("the oldest output was kept beyond the size")
		}
		if _, err := os.Stat(filepath.Join(w.agent.node.LogRoot(), "b")); err != nil {
			t.Errorf("more than needed was deleted: %v", err)
		}
	})
}

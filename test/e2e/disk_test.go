package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/test/harness"
)

// smallDisk is large enough for a store and leaves room above its low-water mark.
const smallDisk = 512 << 20

func TestFullDiskOfTheServer(t *testing.T) {
	disk := harness.NewDisk(t, smallDisk)
	s := harness.New(t, harness.Process)
	s.ServerDir = filepath.Join(disk.Dir, "data")
	server := s.Server()
	s.Agent()
	manifest := s.Write("v1.yaml", fmt.Sprintf(hello, 1, 3))
	s.Berth("run", manifest).Want(t, 0)
	before := running(t, s, "hello", 3)
	c := s.Client()
	put := func(name string) error {
		_, err := c.PutCluster(t.Context(), api.Cluster{Name: name}, client.Condition{})
		return err
	}

	disk.Fill()
	refused := ""
	s.Eventually(soon, func() error { // the agent reads the free space twice a second
		refused = fmt.Sprintf("refused-%d", time.Now().UnixNano()) // the same again would be no write
		if err := put(refused); client.StatusOf(err) != http.StatusInsufficientStorage {
			return fmt.Errorf("a write to a full disk gives %w", orNothing(err))
		}
		return nil
	})
	// The refusal names the remedy. Reads continue, and no refused write exists.
	s.Berth("scale", "--detach", "service/hello", "2").Want(t, 2, "out of space", "Free space on the disk")
	s.Berth("status").Want(t, 0, "hello", "3/3")
	if _, err := c.Cluster(t.Context(), refused); client.StatusOf(err) != http.StatusNotFound {
		t.Errorf("the refused object: %v", err)
	}
	if !server.Alive() {
		t.Fatalf("the server has ended:\n%s", server.Output())
	}
	samePids(t, before, alive(s, "hello"))

	// On a full disk, a killed server starts again, or names the missing space.
	server.Kill()
	again := s.Start("server", "--data-dir", s.ServerDir, "--listen", "unix://"+s.Socket)
	s.Eventually(soon, func() error {
		if again.Alive() && !strings.Contains(again.Output(), "berth: ready at ") {
			return fmt.Errorf("neither ready nor ended:\n%s", again.Output())
		}
		return nil
	})
	if !again.Alive() && !strings.Contains(again.Output(), "space") {
		t.Errorf("started on a full disk the server ends with:\n%s", again.Output())
	}

	disk.Free()
	if !again.Alive() {
		s.Server()
	}
	s.Eventually(soon, func() error { return put("accepted") })
	s.Eventually(soon, func() error {
		if r := s.Berth("scale", "--detach", "service/hello", "4"); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	samePids(t, before, running(t, s, "hello", 4))
}

func orNothing(err error) error {
	if err == nil {
		return fmt.Errorf("no error")
	}
	return err
}

func TestFullDiskOfTheAgent(t *testing.T) {
	disk := harness.NewDisk(t, 64<<20)
	s := harness.New(t, harness.Process)
	s.AgentDir = filepath.Join(disk.Dir, "node")
	s.Server()
	agent := s.Agent()
	s.Berth("run", s.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0)
	before := running(t, s, "hello", 2)

	disk.Fill()
	// The tasks write their logs to the full disk and continue. New tasks wait or fail with a reason.
	s.Berth("scale", "--detach", "service/hello", "3").Want(t, 0)
	s.Eventually(soon, func() error {
		r := s.Berth("status", "service/hello")
		if !strings.Contains(r.Stdout, "no space left") {
			return fmt.Errorf("the status does not show the full disk:\n%v", r)
		}
		return nil
	})
	if !agent.Alive() {
		t.Errorf("the agent has ended:\n%s", agent.Output())
	}
	samePids(t, before, firstOf(alive(s, "hello"), before))

	disk.Free()
	samePids(t, before, firstOf(running(t, s, "hello", 3), before))
}

func TestFullDiskOfEverything(t *testing.T) {
	disk := harness.NewDisk(t, smallDisk)
	s := harness.New(t, harness.Process)
	s.ServerDir = filepath.Join(disk.Dir, "data")
	dev := s.Dev()
	s.Berth("run", s.Write("v1.yaml", fmt.Sprintf(hello, 1, 3))).Want(t, 0)
	before := running(t, s, "hello", 3)

	disk.Fill()
	s.Eventually(soon, func() error {
		name := fmt.Sprintf("refused-%d", time.Now().UnixNano())
		if _, err := s.Client().PutCluster(t.Context(), api.Cluster{Name: name},
			client.Condition{}); client.StatusOf(err) != http.StatusInsufficientStorage {
			return fmt.Errorf("a write to a full disk gives %w", orNothing(err))
		}
		return nil
	})
	s.Berth("restart", "service/hello").Want(t, 2, "out of space", "Free space on the disk")
	s.Berth("status").Want(t, 0, "hello", "3/3")
	s.Berth("exec", "hello.1.0", "--", "sh", "-c", "exit 4").Want(t, 4)
	samePids(t, before, firstOf(alive(s, "hello"), before))
	// The end of berth dev is no loss either.
	dev.Kill()
	disk.Free()
	s.Dev()
	s.Berth("scale", "--detach", "service/hello", "4").Want(t, 0)
	samePids(t, before, running(t, s, "hello", 4))
	s.Prints("v1 line", "logs", "hello.1.3", "--tail", "2")
}

// firstOf returns those tasks that were there before.
func firstOf(tasks, before []api.TaskView) []api.TaskView {
	known := map[string]bool{}
	for _, task := range before {
		known[task.UUID] = true
	}
	var same []api.TaskView
	for _, task := range tasks {
		if known[task.UUID] {
			same = append(same, task)
		}
	}
	return same
}

func TestReadOnlyDataDirectory(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	dev := s.Dev()
	s.Berth("run", s.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0)
	before := running(t, s, "hello", 2)
	dev.Kill()

	// Only the store becomes read-only: the tasks have their logs open for writing.
	writable := harness.ReadOnly(t, filepath.Join(s.ServerDir, "etcd"))
	again := s.StartDev()
	code := again.Exit(soon)
	if out := again.Output(); code != 2 || !strings.Contains(out, "read-only file system") ||
		!strings.Contains(out, s.ServerDir) || strings.Count(out, "\n") > 4 {
		t.Errorf("on a read-only store dev ends with exit code %d and says:\n%s", code, out)
	}
	writable()
	s.Dev()
	samePids(t, before, running(t, s, "hello", 2))
	s.Berth("scale", "--detach", "service/hello", "3").Want(t, 0)
	running(t, s, "hello", 3)
}

func TestReadOnlyFolderThatIsNew(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.ServerDir = filepath.Join(t.TempDir(), "empty")
	mkdir(t, s.ServerDir)
	writable := harness.ReadOnly(t, s.ServerDir)
	defer writable()
	for _, args := range [][]string{
		{"dev", "--data-dir", s.ServerDir, "--socket", s.Socket, "--http", "127.0.0.1:0", "--executor", "process"},
		{"server", "--data-dir", s.ServerDir, "--listen", "unix://" + s.Socket},
		{"agent", "--data-dir", s.ServerDir, "--server", "unix://" + s.Socket, "--executor", "process"},
	} {
		r := s.Berth(args...)
		r.Want(t, 2, "read-only file system", s.ServerDir)
		if bytes.Count([]byte(r.Stderr), []byte("\n")) > 3 {
			t.Errorf("want a short message:\n%v", r)
		}
	}
}

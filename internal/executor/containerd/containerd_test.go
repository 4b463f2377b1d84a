package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
	"github.com/berthd/berth/internal/executor/containerd/collector"
	"github.com/berthd/berth/internal/executor/containerd/daemon"
	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/suite/suitetest"
	"github.com/berthd/berth/internal/testkit"
)

// TestMain makes the test binary the log collector, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == collector.Subcommand {
		os.Exit(collector.Run(os.Args[2:]))
	}
	if len(os.Args) == 4 && os.Args[1] == "agent" {
		ex, err := containerd.New(containerd.Config{
			Address: os.Args[2], Dir: filepath.Join(filepath.Dir(filepath.Dir(os.Args[2])), "collector"),
			CgroupParent: "/berth-test-containerd",
		})
		if err == nil {
			err = executortest.Agent(context.Background(), ex, os.Args[3], shell)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) == 6 && os.Args[1] == "pull" {
		if err := puller(context.Background(), os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if builds, err = os.MkdirTemp("", "berth-launcher-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(builds)
	os.Exit(code)
}

func TestCrashedAgents(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	executortest.Crash(t, n.machine(t), dir, func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, os.Args[0], "agent", n.daemon.Address, dir)
	})
}

const busyboxImage = "berth.example/busybox:1"

// need skips the test without containerd.
func need(t testing.TB) {
	t.Helper()
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "containerd", "runc", "busybox")
}

// node is a private containerd with an image of busybox.
type node struct {
	dir    string
	daemon *daemon.Daemon
	lives  []*containerd.Executor
}

func newNode(t testing.TB) *node {
	t.Helper()
	need(t)
	dir, err := os.MkdirTemp("", "berth-containerd-") //nolint:usetesting // removed after the daemon is stopped
	if err != nil {
		t.Fatal(err)
	}
	n := &node{dir: dir}
	if n.daemon, err = daemon.Launch(t.Context(),
		daemon.Config{Dir: filepath.Join(dir, "daemon")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := testkit.WithLimit(context.WithoutCancel(t.Context()), executortest.Limit)
		defer cancel()
		ex := n.life(t)
		all, err := ex.List(ctx)
		if err != nil || len(all) > 0 {
			t.Errorf("left at the end: %+v %v", all, err)
		}
		for _, s := range all {
			_ = ex.Remove(ctx, s.ID)
		}
		defer func() {
			for _, life := range n.lives {
				_ = life.Close()
			}
		}()
		var shims []int
		ending, stop := testkit.WithLimit(ctx, 2*time.Second)
		defer stop()
		err = testkit.Poll(ending, func() error {
			if shims = pids(n.daemon.Address); len(shims) > 0 {
				return fmt.Errorf("%d shims are left: %v", len(shims), shims)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			for _, pid := range shims {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Log(strings.ReplaceAll(string(b), "\x00", " "))
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		for _, err := range []error{ex.StopCollector(ctx), n.daemon.Stop(ctx), os.RemoveAll(dir)} {
			if err != nil {
				t.Error(err)
			}
		}
		left, _ := filepath.Glob("/sys/fs/cgroup/*/berth-test-containerd/*/cgroup.procs")
		for _, procs := range left {
			if filepath.Base(filepath.Dir(procs)) != "collector" {
				t.Errorf("a cgroup is left: %s", procs)
			}
			_ = os.Remove(filepath.Dir(procs))
		}
	})
	images, err := n.life(t).LoadImages(t.Context(), bytes.NewReader(archive(t, busyboxImage, busybox(t))))
	if err != nil || len(images) != 1 || images[0].Name != busyboxImage || images[0].Size == 0 {
		t.Fatalf("load busybox: %+v %v", images, err)
	}
	return n
}

// life begins a life of an agent.
func (n *node) life(t testing.TB, change ...func(*containerd.Config)) *containerd.Executor {
	t.Helper()
	cfg := containerd.Config{
		Address: n.daemon.Address, Dir: filepath.Join(n.dir, "collector"),
		CgroupParent: "/berth-test-containerd",
	}
	cfg.Launcher = launcher(t)
	for _, c := range change {
		c(&cfg)
	}
	ex, err := containerd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.lives = append(n.lives, ex) // closed with the node: a test removes its containers at its end
	return ex
}

// builds is the folder of programs that tests build. TestMain makes and removes it.
var builds string

// built is the launcher once it was built.
var built = sync.OnceValues(func() (string, error) {
	name := filepath.Join(builds, "launcher")
	cmd := exec.Command("go", "build", "-o", name, "./testdata/launcher")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the launcher: %w: %s", err, out)
	}
	return name, nil
})

// launcher returns a program without libraries that begins others with secrets: this binary may need some.
func launcher(t testing.TB) string {
	t.Helper()
	name, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// busybox makes an image of the node's static busybox.
func busybox(t testing.TB) v1.Image {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "etc", "usr", "proc", "sys", "dev"} {
		add(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, program)
	for applet := range strings.FieldsSeq(
		"sh cat echo sleep id stat dd touch grep tr yes head tail test pwd setsid printf true kill") {
		add(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644},
		[]byte("root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"))
	add(tar.Header{Name: "etc/hostname", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("image\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.ConfigFile(empty.Image,
		&v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{
			Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"echo from the image"},
			Env: []string{"PATH=/bin", "FROM=image"}, WorkingDir: "/tmp",
		}})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// archive saves an image under a name.
func archive(t testing.TB, as string, img v1.Image) []byte {
	t.Helper()
	tag, err := name.NewTag(as)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := tarball.Write(tag, img, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func shell(script string) cluster.Container {
	return cluster.Container{
		Name: "main", Image: busyboxImage, Pull: cluster.PullNever,
		Command: []string{"/bin/busybox", "sh", "-c", script},
	}
}

// named returns containerd's name of a container of the suite, whose ids are not valid names there.
func named(id executor.ID) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(id))) }

func cgroup(id executor.ID, file string) string {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/" + strings.SplitN(file, ".", 2)[0]} {
		if b, err := os.ReadFile(filepath.Join(root, "berth-test-containerd", named(id), file)); err == nil {
			return string(b)
		}
	}
	return ""
}

// pids returns the processes that have a word among their arguments.
func pids(word string) (found []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		args, err := os.ReadFile(f)
		if err != nil || !strings.Contains("\x00"+string(args), "\x00"+word+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// killOne kills the one process with the argument, and waits for it if it is about to start.
func killOne(t *testing.T, word string) {
	t.Helper()
	var found []int
	testkit.Eventually(t, executortest.Limit, func() error {
		if found = pids(word); len(found) != 1 {
			return fmt.Errorf("%d processes have the argument %q", len(found), word)
		}
		return nil
	})
	if err := syscall.Kill(found[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func (n *node) machine(t *testing.T) executortest.Machine {
	return executortest.Machine{
		New:       func() executor.Executor { return n.life(t) },
		Container: func(p executortest.Program) cluster.Container { return shell(p.Script()) },
		Shell:     shell,
		Lines:     testkit.Setting(t, "BERTH_TEST_LINES", 0),
		Cgroup:    cgroup,
		Orphan:    func(id executor.ID) { killOne(t, named(id)) }, // the shim has the id for an argument
	}
}

func TestContract(t *testing.T) {
	n := newNode(t)
	suitetest.Run(t, executortest.Cases(), n.machine)
}

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// workerJob is a job for nodes of examples/worker/worker.py. Its program is a script.
const workerJob = `
kind: Job
name: %s
steps:
  - name: main
    count: %d
    retries: 0
    time_limit: 10m
    placement:
      constraints: [{attribute: label.worker, op: "=", value: python}]
    template:
      grace: 1s
      containers:
        - name: main
          command: [sh, -c, %s]
          env: {WHERE: %s}
          resources: {cpu: 10m, memory: 16MiB}
`

// worker is a process of examples/worker/worker.py.
type worker struct {
	t     *testing.T
	state string
	args  []string
	out   harness.Output
	cmd   *exec.Cmd // of its last start
}

// newWorker starts a worker for a node, and ends it with the test.
func newWorker(t *testing.T, s *harness.Site, node, state string, args ...string) *worker {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{t: t, state: filepath.Join(s.Dir, state)}
	w.args = slices.Concat([]string{
		filepath.Join(root, "examples/worker/worker.py"), "--node", node, "--state", w.state,
	}, args)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("worker %s:\n%s", node, w.out.String())
		}
		w.kill()
		w.killPrograms() // of a test that failed
	})
	w.start()
	return w
}

func (w *worker) start() {
	w.t.Helper()
	w.cmd = exec.Command(testkit.NeedPython(w.t), w.args...) // kill ends it
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	w.cmd.WaitDelay = time.Second // its programs outlive it
	if err := w.cmd.Start(); err != nil {
		w.t.Fatalf("start the worker: %v", err)
	}
}

// kill ends the worker as kill -9 does. Its programs run on.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill() // it may have ended
	_ = w.cmd.Wait()         // as above
}

// workerSite is a site whose jobs run on workers, with a relay between the workers and the server.
type workerSite struct {
	*harness.Site
	t      *testing.T
	server *harness.Daemon
	relay  *relay
	where  string // a folder of the programs
}

func newWorkerSite(t *testing.T) *workerSite {
	t.Helper()
	s := &workerSite{Site: harness.New(t, harness.Process), t: t, relay: newRelay(t)}
	s.where = filepath.Join(s.Dir, "where")
	if err := os.Mkdir(s.where, 0o700); err != nil {
		t.Fatal(err)
	}
	s.startServer()
	return s
}

// startServer starts the server of the site, to which the relay leads from then on.
func (s *workerSite) startServer() {
	s.t.Helper()
	s.server = s.Dev()
	s.relay.aim(s.server.URL())
}

// worker starts a worker that reaches the server through the relay. When the test ends, the worker ends its jobs first.
func (s *workerSite) worker(state string, args ...string) *worker {
	s.t.Helper()
	w := newWorker(s.t, s.Site, "py1", state, slices.Concat([]string{
		"--server", s.relay.url, "--token-file", filepath.Join(s.ServerDir, "token"),
	}, args)...)
	s.t.Cleanup(s.deleteJobs)
	return w
}

// deleteJobs deletes all jobs while a worker can still end their tasks.
func (s *workerSite) deleteJobs() {
	s.relay.join()
	ctx, cancel := testkit.WithLimit(context.Background(), soon)
	defer cancel()
	c := s.Client()
	err := testkit.Poll(ctx, func() error {
		page, err := c.Jobs(ctx, "", client.ListOptions{})
		if err != nil || len(page.Items) == 0 {
			return err
		}
		for i := range page.Items {
			err = errors.Join(err, c.DeleteJob(ctx, page.Items[i].Cluster, page.Items[i].Name, client.Condition{}))
		}
		return errors.Join(err, fmt.Errorf("%d jobs are there", len(page.Items)))
	})
	if err != nil {
		s.t.Errorf("delete the jobs: %v", err)
	}
}

// run submits a job with that many tasks of a script. Each task appends a line to the file ran-<index> and begins with
// the script then.
func (s *workerSite) run(name string, count int, script string) {
	s.t.Helper()
	script = `echo x >>"$WHERE/ran-$BERTH_INDEX"; ` + script
	s.Berth("run", "--detach", s.Write(name+".yaml", fmt.Sprintf(workerJob, name, count, strconv.Quote(script),
		s.where))).Want(s.t, 0)
}

// want waits until each task of a job is as check wants it, and returns the newest attempts.
func (s *workerSite) want(job string, check func(api.TaskView) bool) []api.TaskView {
	s.t.Helper()
	var tasks []api.TaskView
	s.Eventually(soon, func() error {
		tasks = s.Tasks(client.TaskFilter{Job: job})
		for i := range tasks {
			if v := &tasks[i]; !check(*v) {
				return fmt.Errorf("%s is %s, %s: %s (exit %+v)", v.ID, v.State, v.Reason, v.Message, v.Exit)
			}
		}
		if len(tasks) == 0 {
			return fmt.Errorf("job %s has no tasks", job)
		}
		return nil
	})
	return tasks
}

// wantState waits for a state with a reason.
func (s *workerSite) wantState(job string, state cluster.State, reason cluster.ReasonCode) []api.TaskView {
	s.t.Helper()
	return s.want(job, func(v api.TaskView) bool { return v.State == state && v.Reason == reason })
}

// wantExit waits until each task of a job has failed with an exit code.
func (s *workerSite) wantExit(job string, code int) []api.TaskView {
	s.t.Helper()
	return s.want(job, func(v api.TaskView) bool { // the outcome has the exit code, a moment after the state
		return v.State == cluster.StateFailed && v.Reason == cluster.ReasonExit && v.Exit != nil && v.Exit.Code == code
	})
}

// wantRuns fails the test unless each task of a job began once.
func (s *workerSite) wantRuns(count int) {
	s.t.Helper()
	for i := range count {
		b, err := os.ReadFile(filepath.Join(s.where, fmt.Sprintf("ran-%d", i)))
		if err != nil || string(b) != "x\n" {
			s.t.Errorf("task %d began %d times, want once (%v)", i, len(b)/2, err)
		}
	}
}

// permit lets the scripts of waitScript end.
func (s *workerSite) permit() {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.where, "go"), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// waitScript runs until permit, and ends with code 7. The file tick-<index> shows that it runs.
const waitScript = `while ! [ -e "$WHERE/go" ]; do echo x >>"$WHERE/tick-$BERTH_INDEX"; sleep 0.1; done; ` +
	`echo "end of $BERTH_INDEX"; exit 7`

// ticks returns how much a program of waitScript has written.
func (s *workerSite) ticks(index int) int64 {
	info, err := os.Stat(filepath.Join(s.where, fmt.Sprintf("tick-%d", index)))
	if err != nil {
		return 0
	}
	return info.Size()
}

// runsOn waits until a program of waitScript has written more.
func (s *workerSite) runsOn(index int) {
	s.t.Helper()
	before := s.ticks(index)
	s.Eventually(soon, func() error {
		if s.ticks(index) <= before {
			return fmt.Errorf("the program of task %d does not run", index)
		}
		return nil
	})
}

// attemptFiles returns the files of a name in the folders of a worker's attempts.
func (w *worker) attemptFiles(name string) []string {
	w.t.Helper()
	all, err := filepath.Glob(filepath.Join(w.state+".tasks", "*", name))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// wantClean waits until the worker has removed all of its attempts.
func (s *workerSite) wantClean(w *worker) {
	s.t.Helper()
	s.Eventually(soon, func() error {
		if left := w.attemptFiles("*"); len(left) > 0 {
			return fmt.Errorf("the worker keeps %v", left)
		}
		return nil
	})
}

// TestWorkerRunsTasks follows examples/worker/worker.py from the assignment to the end of its records.
func TestWorkerRunsTasks(t *testing.T) {
	t.Parallel()
	s := newWorkerSite(t)
	w := s.worker("state")
	s.run("codes", 3, `echo "part $BERTH_INDEX of $BERTH_COUNT of $BERTH_JOB on $BERTH_NODE"; exit $BERTH_INDEX`)
	tasks := s.want("codes", func(v api.TaskView) bool { return v.Exit != nil })
	for _, v := range tasks {
		state := cluster.StateFailed
		if v.Index == 0 {
			state = cluster.StateSucceeded
		}
		if v.State != state || v.Exit == nil || v.Exit.Code != v.Index || v.Node != "py1" {
			t.Errorf("%s is %s on %s with exit %+v, want %s with code %d", v.ID, v.State, v.Node, v.Exit, state,
				v.Index)
		}
		if want := fmt.Sprintf("part %d of 3 of codes on py1\n", v.Index); v.LogTail != want {
			t.Errorf("%s wrote %q, want %q", v.ID, v.LogTail, want)
		}
	}
	s.wantRuns(3)
	s.wantClean(w)

	s.run("deleted", 1, "exec sleep 1000")
	s.wantState("deleted", cluster.StateRunning, "")
	s.Berth("delete", "job/deleted").Want(t, 0)
	s.wantClean(w)
}

// TestWorkerLosesItsConnection cuts the connection of a worker, and then ends its server, while a task runs.
func TestWorkerLosesItsConnection(t *testing.T) {
	t.Parallel()
	s := newWorkerSite(t)
	w := s.worker("state")
	s.run("long", 2, waitScript)
	before := s.wantState("long", cluster.StateRunning, "")
	s.relay.cut()
	s.runsOn(0)
	s.relay.join()
	s.runsOn(1)

	s.server.Kill()
	s.runsOn(0)
	s.permit()
	s.Eventually(soon, func() error {
		if n := len(w.attemptFiles("exit")); n != 2 {
			return fmt.Errorf("%d tasks have ended, want 2", n)
		}
		return nil
	})
	s.startServer()
	for i, v := range s.wantExit("long", 7) {
		if v.UUID != before[i].UUID || !strings.Contains(v.LogTail, "end of ") {
			t.Errorf("got %+v, want the end of attempt %s with code 7 and its output", v, before[i].UUID)
		}
	}
	s.wantRuns(2)
	s.wantClean(w)
}

// TestWorkerRestarts kills a worker. Its next run knows the program that still runs, and reports the end of a program
// that nobody saw as unknown (P4.4).
func TestWorkerRestarts(t *testing.T) {
	t.Parallel()
	s := newWorkerSite(t)
	w := s.worker("state")
	s.run("seen", 1, waitScript)
	s.wantState("seen", cluster.StateRunning, "")
	w.kill()
	s.runsOn(0)
	w.start()
	s.runsOn(0)
	w.kill()
	s.permit()
	s.Eventually(soon, func() error {
		if len(w.attemptFiles("exit")) == 0 {
			return errors.New("the program runs")
		}
		return nil
	})
	w.start()
	if v := s.wantExit("seen", 7); v[0].Attempt != 1 {
		t.Errorf("got %+v, want attempt 1", v[0])
	}
	s.wantRuns(1)
	s.wantClean(w)

	for _, name := range []string{"go", "ran-0"} {
		if err := os.Remove(filepath.Join(s.where, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.run("unseen", 1, waitScript)
	s.wantState("unseen", cluster.StateRunning, "")
	s.runsOn(0)
	w.kill()
	w.killPrograms()
	w.start()
	s.wantState("unseen", cluster.StateFailed, cluster.ReasonUnknownExit)
	s.wantRuns(1)
	s.wantClean(w)
}

// killPrograms ends the programs of a worker, and the shells that would note their ends.
func (w *worker) killPrograms() {
	w.t.Helper()
	for _, file := range w.attemptFiles("pid") {
		b, err := os.ReadFile(file)
		if err != nil {
			w.t.Errorf("find a program: %v", err)
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		stat, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err = errors.Join(err, err2); err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if shell, err := strconv.Atoi(strings.Fields(rest)[1]); err == nil && shell > 1 {
			_ = syscall.Kill(shell, syscall.SIGKILL) // it may just have ended
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL) // as above
	}
}

// TestWorkerIsFenced shows the three ways in which a worker loses its tasks: its node is drained, another worker takes
// its name, or it reaches no server for a time that its operator chose.
func TestWorkerIsFenced(t *testing.T) {
	t.Parallel()
	s := newWorkerSite(t)
	first := s.worker("first")

	s.run("drained", 1, waitScript)
	s.wantState("drained", cluster.StateRunning, "")
	s.Berth("node", "drain", "--now", "py1").Want(t, 0)
	s.wantClean(first)
	s.Berth("delete", "job/drained").Want(t, 0)
	s.Berth("node", "uncordon", "py1").Want(t, 0)

	s.run("displaced", 1, waitScript)
	s.wantState("displaced", cluster.StateRunning, "")
	s.runsOn(0)
	second := s.worker("second")
	s.wantState("displaced", cluster.StateLost, cluster.ReasonUnknownExit)
	s.wantClean(first)
	second.kill()
	s.Berth("delete", "job/displaced").Want(t, 0)
	first.kill()

	third := s.worker("first", "--fence", "2s")
	s.run("fenced", 1, waitScript)
	s.wantState("fenced", cluster.StateRunning, "")
	s.relay.cut()
	s.Eventually(soon, func() error {
		if len(third.attemptFiles("exit")) == 0 {
			return errors.New("the program runs")
		}
		return nil
	})
	s.relay.join()
	s.wantState("fenced", cluster.StateFailed, cluster.ReasonNodeDown)
	s.wantClean(third)
}

// relay passes connections on to a server whose address may change.
type relay struct {
	url string

	mu    sync.Mutex
	to    string // empty while the relay is cut
	last  string // the server's address
	conns map[net.Conn]bool
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "http://" + l.Addr().String(), conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // ends the loop
		r.cut()
		all.Wait()
	})
	return r
}

// carry copies both directions of a connection until one of them ends.
func (r *relay) carry(from net.Conn) {
	defer from.Close()
	r.mu.Lock()
	address := r.to
	r.mu.Unlock()
	to, err := net.Dial("tcp", address)
	if address == "" || err != nil {
		return
	}
	defer to.Close()
	r.mu.Lock()
	r.conns[from], r.conns[to] = true, true
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(to, from) // the end of either direction ends both
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// aim sends further connections to a server.
func (r *relay) aim(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = strings.TrimPrefix(url, "http://")
	r.to = r.last
}

// cut ends all connections and refuses new ones.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = ""
	for c := range r.conns { // order-free: each is closed
		_ = c.Close() // it may have ended
	}
	clear(r.conns)
}

// join ends a cut.
func (r *relay) join() { r.aim(r.last) }

// TestWorkerOverTLS runs the worker with the certificate of a node, which an agent got with a join token.
func TestWorkerOverTLS(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(2)
	f.Start(hosts[0])
	a := f.Agent(hosts[1])
	a.Stop()
	identity := func(name string) (path string, content []byte) {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(a.Dir, "agent", "*", name))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: found %v, want one (%v)", name, found, err)
		}
		b, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		return found[0], b
	}
	ca, _ := identity("ca.crt")
	_, cert := identity("self.crt")
	_, key := identity("self.key")
	both := f.Write("self.pem", string(cert)+string(key))
	w := newWorker(t, f.Site, a.Name, "state", "--server", f.URLs()[0], "--ca-file", ca, "--cert-file", both)
	f.Berth("run", f.Write("tls.yaml", fmt.Sprintf(workerJob, "tls", 1, `"echo over TLS"`, "/"))).Want(t, 0)
	f.Berth("delete", "job/tls").Want(t, 0)
	w.kill()
	stranger := newWorker(t, f.Site, "other", "stranger", "--server", f.URLs()[0], "--ca-file", ca, "--cert-file", both)
	f.Eventually(soon, func() error {
		if !strings.Contains(stranger.out.String(), "cannot speak for") {
			return errors.New("the server does not refuse another node's name")
		}
		return nil
	})
}

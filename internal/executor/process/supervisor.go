package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/logs"
)

// Modes of the hidden subcommand.
const (
	modeRun    = "run"    // the supervisor of the container in a folder
	modeLaunch = "launch" // the process that becomes the program
)

// drainLimit is how long a supervisor waits for further output after all processes are gone. It only matters if the
// program passed its output to a foreign process.
const drainLimit = 2 * time.Second

// Supervise is the hidden subcommand: a supervisor, or the launcher that it starts. args follow the subcommand; the
// result is the exit code of the process. It must be called before the process does anything else, and nothing may be
// done after it.
func Supervise(args []string) int {
	switch {
	case len(args) == 2 && args[0] == modeRun:
		return supervise(stateDir(args[1]))
	case len(args) == 1 && args[0] == modeLaunch:
		return launch()
	}
	fmt.Fprintln(os.Stderr, "this subcommand is berth's own, for the process executor")
	return exitUsage
}

// exitUsage is the exit code after wrong arguments.
const exitUsage = 2

func aLongTimeAgo() time.Time { return time.Unix(1, 0) }

// supervisor is the parent process of one container's program.
type supervisor struct {
	dir    stateDir
	plan   plan
	env    []string // the program's: that of the plan and the variables of secrets, which are in this memory only
	group  *cgroup  // nil without one
	reaper *reaper
	log    *logs.Writer
	output sync.WaitGroup // copies of the program's output
	pipes  []*os.File     // their ends here

	main   *child
	done   chan struct{} // closed once exit is durable, or the container removed
	listen *net.UnixListener
	calls  sync.WaitGroup

	process  executor.Process // but for its start
	starting sync.Mutex

	mu      sync.Mutex
	started bool
	over    bool // the program has ended
	removed bool
	exit    cluster.Exit
}

// supervise prepares the container, reports to its starter over file 3, serves its socket, and returns once the program
// is over.
func supervise(dir stateDir) int {
	// A program in memory has no name for those who list processes. Without the name it works as well.
	_ = os.WriteFile("/proc/self/comm", []byte("berth"), 0)
	// Signals of a terminal or an agent do not end it. A handler, unlike ignoring, is not passed on to the program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGPIPE)
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	starter := os.NewFile(3, "starter")
	unix.CloseOnExec(3)

	s := &supervisor{dir: dir, reaper: newReaper(), done: make(chan struct{})}
	lock, err := s.prepare()
	if err != nil {
		s.killAll()
		s.group.remove()
		_ = json.NewEncoder(starter).Encode(failed(err))
		return 1
	}
	_ = json.NewEncoder(starter).Encode(reply{})
	_ = starter.Close()
	go s.serve()
	trim := time.AfterFunc(trimDelay, trimMemory)
	defer trim.Stop()

	s.end(<-s.main.ended)
	close(s.done)
	_ = s.listen.Close()
	waitAtMost(&s.calls, time.Second)
	_ = lock.Close()
	return 0
}

// trimDelay is how long a supervisor runs before it gives back memory. Most programs that end sooner never need it.
const trimDelay = 2 * time.Second

// trimMemory gives back memory that only the preparation needed, and keeps the rest small rather than quick.
func trimMemory() {
	debug.SetGCPercent(20)
	debug.FreeOSMemory()
}

// prepare does everything up to the program's first instruction.
func (s *supervisor) prepare() (lock *os.File, err error) {
	// The starter of the supervisor took the lock for it.
	lock = os.NewFile(4, "lock")
	unix.CloseOnExec(4)
	if err := outlive.Lock(lock); err != nil {
		return nil, fmt.Errorf("lock container: %w", err)
	}
	if err := s.dir.read(planFile, &s.plan); err != nil {
		return nil, err
	}
	if _, err := os.Stat(s.dir.path(intentFile)); err == nil {
		return nil, executor.ErrStarted
	}
	secret, err := executor.ReadEnv(s.plan.SecretEnv)
	if err != nil {
		return nil, err
	}
	s.env = executor.WithEnv(s.plan.Env, secret)
	if s.plan.CgroupParent != "" {
		outlive.LeaveCgroup(filepath.Join(s.plan.CgroupParent, "supervisors"))
		if s.group, err = makeCgroup(s.plan.CgroupParent, s.plan.ID, s.plan.Resources); err != nil {
			return nil, err
		}
	}
	stdout, stderr, err := s.openLog()
	if err != nil {
		return nil, err
	}
	s.main, err = s.reaper.launch(launchOrder{
		Args: s.plan.Args, Env: s.env, Dir: s.plan.Dir, User: s.plan.User,
		Capabilities: s.plan.Capabilities, Cgroups: s.group.join(), CPUs: s.plan.CPUs, Attach: s.plan.Attach,
		OpenFiles:    s.plan.Resources.OpenFiles,
		ReadOnlyRoot: s.plan.ReadOnlyRoot, Scratch: s.plan.Scratch, Network: s.plan.Network,
		Isolation: s.plan.Isolation,
	}, s.plan.Subcommand, [3]*os.File{nil, stdout, stderr})
	_, _ = stdout.Close(), stderr.Close()
	if err != nil {
		return nil, err
	}
	s.process = executor.Process{Pid: s.main.pid, PidStart: outlive.StartOf(s.main.pid)}
	addr, folder, err := outlive.Address(string(s.dir), controlFile)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	defer folder.Close()
	_ = os.Remove(s.dir.path(controlFile))
	if s.listen, err = net.ListenUnix("unixpacket", addr); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.listen.SetUnlinkOnClose(false)
	return lock, nil
}

// openLog returns the ends of two pipes that the program writes to.
func (s *supervisor) openLog() (stdout, stderr *os.File, err error) {
	s.log = logs.NewWriter(logs.Config{
		Dir:  s.plan.LogDir,
		Mask: executor.NewMasker(s.plan.SecretFolders, s.plan.SecretEnv).Func(),
	})
	open := func(name logs.Stream) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		_ = w.Chown(s.plan.User.UID, s.plan.User.GID) // so that the program may open /dev/stdout
		s.pipes = append(s.pipes, r)
		s.output.Go(func() {
			_, _ = io.CopyBuffer(struct{ io.Writer }{s.log.Stream(name)}, struct{ io.Reader }{r}, make([]byte, 16<<10))
		})
		return w, nil
	}
	if stdout, err = open(logs.Stdout); err != nil {
		return nil, nil, err
	}
	stderr, err = open(logs.Stderr)
	return stdout, stderr, err
}

// end completes the end of the program: it ends the rest of the container, then the log, makes the exit durable, and
// removes the cgroup.
func (s *supervisor) end(status unix.WaitStatus) {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	at := time.Now()
	s.killAll()
	if !waitAtMost(&s.output, drainLimit) {
		for _, p := range s.pipes {
			_ = p.Close()
		}
	}
	_ = s.log.Close()
	exit := exitOf(status, s.group.oomKills())
	exit.At = at
	s.starting.Lock() // an intent that was written is followed by an exit
	defer s.starting.Unlock()
	s.mu.Lock()
	s.exit = exit
	started := s.started
	s.mu.Unlock()
	for started && !s.isRemoved() {
		if err := s.dir.write(exitFile, exit); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond) // a full disk: the lock and the status stay until there is room
	}
	s.group.remove()
}

func (s *supervisor) isRemoved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removed
}

// exitOf translates a wait status. A memory kill anywhere in the container counts unless the program
// ended well in spite of it.
func exitOf(status unix.WaitStatus, oomKills int) cluster.Exit {
	exit := cluster.Exit{Code: status.ExitStatus()}
	if status.Signaled() {
		exit.Signal = int(status.Signal())
		exit.Code = 128 + exit.Signal
	}
	exit.OOM = oomKills > 0 && exit.Code != 0
	return exit
}

// killAll kills every process of the container and returns when none is left.
func (s *supervisor) killAll() {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if s.group.kill()+killDescendants() == 0 {
			return
		}
		time.Sleep(wait)
	}
}

// waitAtMost waits for the group and reports whether it was done in time.
func waitAtMost(wg *sync.WaitGroup, limit time.Duration) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// serve answers requests until the socket is closed.
func (s *supervisor) serve() {
	for {
		conn, err := s.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of files, say
			continue
		}
		s.calls.Go(func() { s.answer(conn) })
	}
}

// answer serves one connection.
func (s *supervisor) answer(conn *net.UnixConn) {
	defer conn.Close()
	buf, oob := make([]byte, maxPacket), make([]byte, syscall.CmsgSpace(3*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil || n == 0 {
		return
	}
	files := receivedFiles(oob[:oobn])
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	req, err := decodeRequest(buf[:n])
	if err != nil {
		b, _ := json.Marshal(failed(err)) // of strings
		_, _ = conn.Write(b)
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1))
	}()
	rep, err := s.handle(req, files, gone)
	if err != nil {
		rep = failed(err)
	}
	if b, err := json.Marshal(rep); err == nil {
		_, _ = conn.Write(b)
	}
}

func receivedFiles(oob []byte) (files []*os.File) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files
}

func (s *supervisor) handle(req request, files []*os.File, gone <-chan struct{}) (reply, error) {
	switch req.Op {
	case opStart:
		process, err := s.start()
		return reply{Process: process}, err
	case opWait:
		select {
		case <-gone:
			return reply{}, errNoSupervisor
		case <-s.done:
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.started {
			return reply{}, executor.ErrNotFound
		}
		return reply{Exit: &s.exit}, nil
	case opWhich:
		return reply{Process: s.process}, nil
	case opSignal:
		return reply{}, s.signal(syscall.Signal(req.Signal))
	case opExec, opTerminal:
		return s.exec(req, files, gone)
	case opRemove:
		s.mu.Lock()
		s.removed = true
		s.mu.Unlock()
		s.killAll()
		select {
		case <-gone:
		case <-s.done:
		}
		return reply{}, nil
	}
	return reply{}, fmt.Errorf("%q is not a request", req.Op)
}

// start lets the program run. The intent is durable before that.
func (s *supervisor) start() (executor.Process, error) {
	s.starting.Lock() // a slow start, from a hanging disk say, must not keep others from killing it
	defer s.starting.Unlock()
	s.mu.Lock()
	started, dead := s.started, s.over || s.removed
	s.mu.Unlock()
	if started {
		return executor.Process{}, executor.ErrStarted
	}
	if dead {
		return executor.Process{}, executor.NotStarted(errors.New("the prepared process has died"))
	}
	process := s.process
	process.Started = time.Now()
	if err := s.dir.write(intentFile, process); err != nil {
		return executor.Process{}, executor.NotStarted(err)
	}
	s.mu.Lock()
	s.started = true
	s.mu.Unlock()
	if err := s.main.release(); err != nil {
		return executor.Process{}, err
	}
	return process, nil
}

func (s *supervisor) signal(sig syscall.Signal) error {
	s.mu.Lock()
	running := s.started && !s.over
	s.mu.Unlock()
	if !running {
		return executor.ErrNotRunning
	}
	if sig == syscall.SIGKILL {
		s.killAll()
		return nil
	}
	return s.main.signal(sig)
}

// exec runs a command beside the program. The end of the caller's connection kills it.
func (s *supervisor) exec(req request, files []*os.File, gone <-chan struct{}) (reply, error) {
	s.mu.Lock()
	running := s.started && !s.over
	s.mu.Unlock()
	if !running {
		return reply{}, executor.ErrNotRunning
	}
	stdio, err := s.stdio(req.Op, files)
	if err != nil {
		return reply{}, err
	}
	order := launchOrder{
		Args: req.Args, Env: environment(req.Env, s.env...), Dir: req.Dir, User: s.plan.User,
		Capabilities: s.plan.Capabilities, Cgroups: s.group.join(), CPUs: s.plan.CPUs, Scratch: s.plan.Scratch,
		Network: s.plan.Network, OpenFiles: s.plan.Resources.OpenFiles,
		Terminal: req.Op == opTerminal, Isolation: s.plan.Isolation,
	}
	if order.Dir == "" {
		order.Dir = s.plan.Dir
	}
	if s.plan.privateMounts() {
		order.Join = s.main.pid
	}
	c, err := s.reaper.launch(order, s.plan.Subcommand, stdio)
	for _, f := range files {
		_ = f.Close()
	}
	if err != nil {
		return reply{}, err
	}
	if err := c.release(); err != nil {
		return reply{}, err
	}
	select {
	case status := <-c.ended:
		return reply{Code: exitOf(status, 0).Code}, nil
	case <-gone:
		_ = c.signal(syscall.SIGKILL)
		<-c.ended
		return reply{}, errNoSupervisor
	}
}

// stdio returns a command's input and outputs: three files, or one terminal, which becomes the user's own.
func (s *supervisor) stdio(op string, files []*os.File) (stdio [3]*os.File, err error) {
	switch {
	case op == opTerminal && len(files) == 1:
		_ = files[0].Chown(s.plan.User.UID, -1) // so that the command may open /dev/pts/N; without it /dev/tty is left
		return [3]*os.File{files[0], files[0], files[0]}, nil
	case op == opExec && len(files) == 3:
		return [3]*os.File(files), nil
	}
	return stdio, fmt.Errorf("a request of %q does not come with %d files", op, len(files))
}

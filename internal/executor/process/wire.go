package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
)

// Requests to a supervisor. A connection carries one request and one reply, a packet each; its end takes the
// request back.
const (
	opStart  = "start"
	opWait   = "wait"
	opSignal = "signal"
	opExec   = "exec"
	opRemove = "remove"
	opWhich  = "which" // the process that is, or will become, the program
	// opTerminal is opExec on a terminal, the only file.
	opTerminal = "terminal"
)

// maxPacket bounds a request or a reply.
const maxPacket = 128 << 10

type request struct {
	Op     string   `json:"op"`
	Signal int      `json:"signal,omitempty"`
	Args   []string `json:"args,omitempty"`
	Env    []string `json:"env,omitempty"`
	Dir    string   `json:"dir,omitempty"`
}

type reply struct {
	Fault   fault            `json:"fault,omitempty"`
	Message string           `json:"message,omitempty"`
	Process executor.Process `json:"process,omitzero"`
	Exit    *cluster.Exit    `json:"exit,omitempty"`
	Code    int              `json:"code,omitempty"`
}

// decodeRequest reads a request, of an operation that there is, with all that it needs.
func decodeRequest(b []byte) (request, error) {
	var req request
	if err := json.Unmarshal(b, &req); err != nil {
		return request{}, fmt.Errorf("understand request: %w", err)
	}
	switch {
	case !slices.Contains([]string{opStart, opWait, opSignal, opExec, opTerminal, opRemove, opWhich}, req.Op):
		return request{}, fmt.Errorf("%q is not a request", req.Op)
	case (req.Op == opExec || req.Op == opTerminal) && len(req.Args) == 0:
		return request{}, errors.New("command: there is none")
	}
	return req, nil
}

// fault names an error of the contract on its way through a socket.
type fault string

const (
	faultStarted     fault = "started"
	faultNotStarted  fault = "not started"
	faultNoProgram   fault = "no program"
	faultNotRunning  fault = "not running"
	faultUnsupported fault = "unsupported"
	faultOther       fault = "other"
)

// failed turns an error into a reply.
func failed(err error) reply {
	r := reply{Fault: faultOther, Message: err.Error()}
	switch {
	case errors.Is(err, executor.ErrStarted):
		r.Fault = faultStarted
	case errors.Is(err, executor.ErrNotStarted):
		r.Fault = faultNotStarted
	case errors.Is(err, executor.ErrNoProgram):
		r.Fault = faultNoProgram
	case errors.Is(err, executor.ErrNotRunning):
		r.Fault = faultNotRunning
	case errors.Is(err, executor.ErrUnsupported):
		r.Fault = faultUnsupported
	}
	return r
}

// err turns a reply back into an error.
func (r reply) err() error {
	kind := map[fault]error{
		faultStarted: executor.ErrStarted, faultNotStarted: executor.ErrNotStarted,
		faultNoProgram: executor.ErrNoProgram, faultNotRunning: executor.ErrNotRunning,
		faultUnsupported: executor.ErrUnsupported,
	}[r.Fault]
	switch {
	case r.Fault == "":
		return nil
	case kind == nil:
		return errors.New(r.Message)
	case r.Message == kind.Error():
		return kind
	}
	return remote{kind, r.Message}
}

// remote is an error of a supervisor.
type remote struct {
	kind    error
	message string
}

func (e remote) Error() string { return e.message }
func (e remote) Unwrap() error { return e.kind }

// errNoSupervisor says that nothing listens: the supervisor is not there yet, or no longer.
var errNoSupervisor = errors.New("no supervisor")

// call sends a request, with files, and waits for the reply. It returns errNoSupervisor without a reply.
func (d stateDir) call(ctx context.Context, req request, files ...*os.File) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	addr, folder, err := outlive.Address(string(d), controlFile)
	if err != nil {
		return reply{}, errNoSupervisor
	}
	conn, err := net.DialUnix("unixpacket", nil, addr)
	_ = folder.Close()
	if err != nil {
		return reply{}, errNoSupervisor
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = syscall.UnixRights(fds...)
	}
	b, err := json.Marshal(req)
	if err != nil {
		return reply{}, fmt.Errorf("ask supervisor: %w", err)
	}
	if len(b) > maxPacket {
		return reply{}, fmt.Errorf("the command has %d bytes, more than %d", len(b), maxPacket)
	}
	if _, _, err = conn.WriteMsgUnix(b, rights, nil); err == nil {
		b, err = receive(conn)
	}
	if ctx.Err() != nil {
		return reply{}, ctx.Err()
	}
	if err != nil || len(b) == 0 {
		return reply{}, errNoSupervisor
	}
	var rep reply
	if err := json.Unmarshal(b, &rep); err != nil {
		return reply{}, fmt.Errorf("understand supervisor: %w", err)
	}
	return rep, rep.err()
}

// spawn starts a supervisor and waits until the program is ready before its first instruction.
func (e *Executor) spawn(ctx context.Context, dir stateDir, lock *os.File) error {
	out, err := os.OpenFile(dir.path(outputFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	defer out.Close()
	ready, readyEnd, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	defer ready.Close()
	//nolint:noctx // it outlives the call and the agent
	cmd := exec.Command(e.supervisorPath(), e.cfg.Subcommand, modeRun, string(dir))
	cmd.Args[0] = e.cfg.Executable // for those who list processes
	cmd.Dir, cmd.Env = "/", []string{defaultPath, "GOMAXPROCS=1", "GOTRACEBACK=single"}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{readyEnd, lock}
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}
	err = cmd.Start()
	_ = readyEnd.Close()
	if err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	ended := make(chan struct{})
	go func() { await(cmd, pidfd); close(ended) }() // it ends with the container, and its files hold the rest

	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(aLongTimeAgo()) })
	defer stop()
	var rep reply
	err = json.NewDecoder(ready).Decode(&rep)
	switch {
	case ctx.Err() != nil:
		// Nothing was started: the launcher ends without its supervisor.
		_ = cmd.Process.Kill()
		<-ended
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("start supervisor: it died: %s", dir.lastWords())
	case errors.Is(rep.err(), executor.ErrNoProgram):
		return rep.err()
	case rep.err() != nil:
		return fmt.Errorf("prepare: %w", rep.err())
	}
	return nil
}

// lastWords returns the first line of a dead supervisor's output.
func (d stateDir) lastWords() string {
	b, _ := os.ReadFile(d.path(outputFile))
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

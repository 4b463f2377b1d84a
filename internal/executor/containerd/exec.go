package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd/runspec"
)

// cleanupLimit is how long a killed command may take to disappear.
const cleanupLimit = 10 * time.Second

// outputLimit is how long Exec waits for a command's output after its exit.
const outputLimit = 2 * time.Second

// Exec implements executor.Executor.
func (e *Executor) Exec(ctx context.Context, id executor.ID, cmd executor.Command) (int, error) {
	if len(cmd.Args) == 0 {
		return 0, errors.New("exec: no command")
	}
	ctx = e.in(ctx)
	r, err := e.load(ctx, id)
	if err != nil {
		return 0, err
	}
	_, started := r.intent()
	if _, ended := r.exit(); !started || ended {
		return 0, executor.ErrNotRunning
	}
	c, err := e.client.LoadContainer(ctx, nameOf(id))
	if err != nil {
		return 0, failed(ctx, "exec", err)
	}
	spec, err := c.Spec(ctx)
	if err != nil {
		return 0, failed(ctx, "exec", err)
	}
	task, err := c.Task(ctx, nil)
	if err != nil {
		if isA(err, errdefs.IsNotFound) {
			return 0, executor.ErrNotRunning
		}
		return 0, failed(ctx, "exec", err)
	}
	process := *spec.Process
	process.Args, process.Terminal = cmd.Args, cmd.Terminal != nil
	if runspec.IsLaunched(spec.Process) {
		process.Args = runspec.Launched(cmd.Args)
	}
	process.Env = runspec.Override(process.Env, cmd.Env)
	if cmd.Dir != "" {
		process.Cwd = cmd.Dir
	}
	in := &endReader{r: cmd.Stdin, ended: make(chan struct{})}
	streams := []cio.Opt{
		cio.WithStreams(in, orDiscard(cmd.Stdout), orDiscard(cmd.Stderr)),
		cio.WithFIFODir(r.pipesOf()),
	}
	if cmd.Terminal != nil {
		over := make(chan struct{})
		defer close(over)
		in.held = over
		process.ConsoleSize = &specs.Box{Height: uint(cmd.Terminal.Size.Rows), Width: uint(cmd.Terminal.Size.Columns)}
		streams = append(streams, cio.WithTerminal)
	}
	name := "x" + strings.ReplaceAll(uuid.NewString(), "-", "")
	p, err := task.Exec(ctx, name, &process, cio.NewCreator(streams...))
	if err != nil {
		return 0, execFailed(ctx, err)
	}
	return attend(ctx, p, in.ended, cmd.Terminal)
}

// resize passes a terminal's sizes on, its first one too, which not every runtime takes from the process's description.
func resize(life context.Context, p client.Process, t *executor.Terminal) {
	for s := t.Size; ; {
		_ = p.Resize(life, uint32(s.Columns), uint32(s.Rows)) // a command that has just ended has none
		select {
		case s = <-t.Resized:
		case <-life.Done():
			return
		}
	}
}

// attend starts a command, on a terminal unless that is nil, and sees to its end. The end of the context kills it.
func attend(ctx context.Context, p client.Process, stdinEnded <-chan struct{}, terminal *executor.Terminal) (int,

	error,
) {
	// The cleanup after the end of the context has a time limit.
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	defer endLife()
	context.AfterFunc(ctx, func() { time.AfterFunc(cleanupLimit, endLife) })
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer cancel()
		_, _ = p.Delete(clean, client.WithProcessKill)
	}()
	ended, err := p.Wait(life)
	if err != nil {
		return 0, execFailed(ctx, err)
	}
	// Not with ctx: the shim does not know a process whose start was cancelled, so it could not kill it.
	if err := p.Start(life); err != nil {
		return 0, execFailed(ctx, err)
	}
	if terminal != nil {
		go resize(life, p, terminal)
	}
	go func() {
		select {
		case <-stdinEnded:
			_ = p.CloseIO(life, client.WithStdinCloser)
		case <-life.Done():
		}
	}()
	var status client.ExitStatus
	select {
	case status = <-ended:
	case <-ctx.Done():
		clean, cancel := context.WithTimeout(life, cleanupLimit)
		defer cancel()
		_ = p.Kill(clean, syscall.SIGKILL)
		select {
		case <-ended:
		case <-clean.Done():
		}
		return 0, ctx.Err()
	}
	if err := status.Error(); err != nil {
		return 0, execFailed(ctx, err)
	}
	// The output may be held open by a child of the command.
	flushed := make(chan struct{})
	go func() { p.IO().Wait(); close(flushed) }()
	timer := time.NewTimer(outputLimit)
	defer timer.Stop()
	select {
	case <-flushed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return int(status.ExitCode()), nil
}

func execFailed(ctx context.Context, err error) error {
	if ctx.Err() == nil && (isA(err, errdefs.IsNotFound) || isA(err, errdefs.IsFailedPrecondition)) {
		return fmt.Errorf("%w: %w", executor.ErrNotRunning, err)
	}
	return failed(ctx, "exec", err)
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// endReader reports the end of its reader. A nil reader is at its end.
type endReader struct {
	r     io.Reader
	once  sync.Once
	ended chan struct{}
	// held, unless nil, delays the end until it is closed, because the shim closes the terminal at the end of the
	// input.
	held <-chan struct{}
}

func (e *endReader) Read(p []byte) (n int, err error) {
	err = io.EOF
	if e.r != nil {
		n, err = e.r.Read(p)
	}
	if err != nil && e.held != nil {
		if n > 0 {
			return n, nil
		}
		<-e.held
	}
	if err != nil {
		e.once.Do(func() { close(e.ended) })
	}
	return n, err
}

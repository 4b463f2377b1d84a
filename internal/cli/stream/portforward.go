package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/wording"
)

// maxForwarded bounds the open connections of all ports. Further connections wait to be accepted.
const maxForwarded = 64

// NewPortForwardCommand returns the command `berth port-forward`.
func NewPortForwardCommand(sess *session.Session) *cobra.Command {
	f := &forwarding{Session: sess}
	cmd := &cobra.Command{
		Use:   "port-forward [-c CONTAINER] [--address ADDRESS] TASK|SERVICE [LOCAL:]PORT...",
		Short: "Forward ports of this machine to a task or service",
		Long: "Listen on ports of this machine and forward each connection to a port of a task, through the servers\n" +
			"and the node's agent. The node needs no open port. PORT is the name of a port of the task, or the\n" +
			"number of any port on which the container listens, even on its loopback address. LOCAL is the port\n" +
			"on this machine: the default is the same number; 0 or an empty LOCAL selects a free port. The\n" +
			"command prints the addresses when it listens.\n\n" +
			"Connections to a service go to its healthy tasks in turn. If you name a task, the command ends with\n" +
			"the task. The command forwards at most 64 connections at a time; others wait.",
		Args:              session.Arguments(2, -1, "a task or service and a port, such as web 8080:http"),
		ValidArgsFunction: sess.CompleteNames(wording.KindTask, wording.KindService),
		RunE:              f.run,
	}
	addContainerFlag(cmd, &f.container)
	cmd.Flags().StringVar(&f.address, "address", "127.0.0.1", "the `address` of this machine to listen on")
	return cmd
}

// forwarding is `berth port-forward`.
type forwarding struct {
	*session.Session
	client             *client.Client
	container, address string
	task               cluster.TaskID // if set, service is not
	service            session.Name

	mu        sync.Mutex
	nextTask  int    // index for the next connection among the service's tasks
	lastFault string // the last printed fault
	faultAt   time.Time
	slots     chan struct{}
}

func (f *forwarding) String() string {
	if f.task != "" {
		return "task " + string(f.task)
	}
	return f.service.String()
}

func (f *forwarding) run(cmd *cobra.Command, args []string) error {
	c, err := f.Connect()
	if err != nil {
		return err
	}
	f.client = c
	if err := f.findTarget(cmd, args[0]); err != nil {
		return err
	}
	return f.forwardPorts(cmd, args[1:])
}

// findTarget reads the target: service/NAME, a task, or the name of a service.
func (f *forwarding) findTarget(cmd *cobra.Command, text string) error {
	ctx := cmd.Context()
	n, err := f.FindObject(cmd, f.client, text, wording.KindService, wording.KindTask)
	if err != nil {
		return err
	}
	if n.Kind == wording.KindTask {
		t, err := f.FindTask(ctx, f.client, n.Name)
		f.task = t.ID
		return err
	}
	f.service, err = n.Resolve(ctx, f.client)
	return err
}

// portMapping maps a local port to a port of the task.
type portMapping struct {
	local  int
	remote string
}

// parseMappings parses "PORT" and "LOCAL:PORT".
func (f *forwarding) parseMappings(cmd *cobra.Command, args []string, there map[string]int) ([]portMapping, error) {
	var all []portMapping
	for _, arg := range args {
		local, remote, two := strings.Cut(arg, ":")
		if !two {
			local, remote = "", arg
		}
		wrong := func(format string, more ...any) error {
			return &session.UsageError{
				Command: cmd.CommandPath(),
				Message: fmt.Sprintf("%q: ", arg) + fmt.Sprintf(format, more...) +
					": want [LOCAL:]PORT such as 8080:http",
			}
		}
		number, err := strconv.Atoi(remote)
		named, known := there[remote]
		switch {
		case known:
			number = named
		case err != nil && len(there) == 0:
			return nil, wrong("%q is not a number, and %s has no named ports", remote, f)
		case err != nil:
			return nil, wrong("%q is neither a number nor a port of %s, which has %s", remote, f,
				strings.Join(sortedPorts(there), ", "))
		case number < 1 || number > 65535:
			return nil, wrong("%d is not the number of a port", number)
		}
		m := portMapping{number, remote}
		if two {
			if m.local, err = strconv.Atoi(cmp.Or(local, "0")); err != nil || m.local < 0 || m.local > 65535 {
				return nil, wrong("%q is not the number of a port", local)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

func sortedPorts(ports map[string]int) []string {
	var all []string
	for name := range ports { // order-free: sorted below
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// forwardPorts listens on the ports and forwards connections until the context or the task ends.
func (f *forwarding) forwardPorts(cmd *cobra.Command, args []string) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	t, err := f.chooseTask(ctx)
	if err != nil {
		return err
	}
	all, err := f.parseMappings(cmd, args, t.Ports)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	f.slots = make(chan struct{}, maxForwarded)
	listeners := make([]net.Listener, len(all))
	defer func() {
		cancel(nil)
		for _, l := range listeners {
			if l != nil {
				_ = l.Close()
			}
		}
	}()
	for i, m := range all {
		var config net.ListenConfig
		listeners[i], err = config.Listen(ctx, "tcp", net.JoinHostPort(f.address, strconv.Itoa(m.local)))
		if err != nil {
			return &hinted.Error{
				Err: fmt.Errorf("listen for %s: %w", args[i], err),
				Hint: "Choose another port of this machine, as in 8081:" + m.remote + ", or any free one with 0:" +
					m.remote +
					".",
			}
		}
	}
	for i, m := range all {
		f.Printf("%s -> %s port %s", listeners[i].Addr(), f, m.remote)
		work.Go(func() { f.listen(ctx, listeners[i], m.remote, &work) })
	}
	work.Go(func() { cancel(f.watchTarget(ctx)) })
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return &session.ExitError{Code: session.ExitNo, Err: err}
	}
	return session.EndOfStream(ctx.Err())
}

// chooseTask returns the task for the next connection.
func (f *forwarding) chooseTask(ctx context.Context) (api.TaskView, error) {
	if f.task != "" {
		t, err := f.client.Task(ctx, f.task)
		if err == nil && t.State.Terminal() {
			err = fmt.Errorf("task %s has ended: it %s", string(t.ID), t.State)
		}
		return t, err
	}
	tasks, err := session.ListTasks(ctx, f.client,
		client.TaskFilter{Cluster: f.service.Cluster, Service: f.service.Name})
	if err != nil {
		return api.TaskView{}, err
	}
	tasks = slices.DeleteFunc(session.KeepNewest(tasks), func(t api.TaskView) bool {
		return t.State != cluster.StateRunning
	})
	well := slices.DeleteFunc(slices.Clone(tasks), func(t api.TaskView) bool {
		return t.Health == cluster.HealthFailing || t.Health == cluster.HealthUnknown
	})
	if len(well) > 0 { // otherwise any running task, so that a user can examine an unhealthy one
		tasks = well
	}
	if len(tasks) == 0 {
		return api.TaskView{}, fmt.Errorf("no task of %s runs", f.service)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextTask++
	return tasks[f.nextTask%len(tasks)], nil
}

// watchTarget returns once the target is permanently gone, or when ctx ends.
func (f *forwarding) watchTarget(ctx context.Context) error {
	n := f.service
	if f.task != "" {
		n = session.Name{Kind: wording.KindTask, Name: string(f.task)}
	}
	loop := wait.Loop{
		Session: f.Session, Changes: wait.ChangesOf(f.client, []session.Name{n}), MinInterval: readInterval,
		Read: func(ctx context.Context) (bool, error) { return true, f.checkTarget(ctx) },
	}
	return loop.Run(ctx)
}

// checkTarget returns an error if the target is gone for good. The connections report other errors.
func (f *forwarding) checkTarget(ctx context.Context) error {
	if f.task == "" {
		if _, err := f.service.Service(ctx, f.client); errors.Is(err, session.ErrUnknown) {
			return err // the service was deleted
		}
		return nil
	}
	t, err := f.client.Task(ctx, f.task)
	switch {
	case client.StatusOf(err) == http.StatusNotFound:
		return fmt.Errorf("task %s is gone", string(f.task))
	case err == nil && t.State.Terminal():
		return fmt.Errorf("task %s has ended: it %s", string(f.task), t.State)
	}
	return nil
}

// listen accepts and forwards the connections of one port.
func (f *forwarding) listen(ctx context.Context, l net.Listener, port string, work *sync.WaitGroup) {
	for {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		local, err := l.Accept()
		if err != nil {
			<-f.slots
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(100 * time.Millisecond) // for example, too many open files
			continue
		}
		work.Go(func() {
			defer func() { <-f.slots }()
			defer local.Close()
			if err := f.forward(ctx, local, port); err != nil && ctx.Err() == nil {
				f.printFault(err)
			}
		})
	}
}

// faultInterval is the minimum interval between two lines with the same fault.
const faultInterval = 2 * time.Second

// printFault prints a fault unless it equals one that was printed less than faultInterval ago.
func (f *forwarding) printFault(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.Now(); err.Error() != f.lastFault || now.Sub(f.faultAt) >= faultInterval {
		f.lastFault, f.faultAt = err.Error(), now
		f.Messagef("berth: a connection to %s: %v", f, err)
	}
}

// forward copies one connection until both directions end, or either end breaks.
func (f *forwarding) forward(ctx context.Context, local net.Conn, port string) error {
	t, err := f.chooseTask(ctx)
	if err != nil {
		return err
	}
	remote, err := f.client.Forward(ctx, t.ID, client.ForwardOptions{Container: f.container, Port: port})
	if err != nil {
		return err
	}
	defer remote.Close()
	defer context.AfterFunc(ctx, func() { _ = local.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		from := &localReader{Reader: local}
		_, err := io.Copy(struct{ io.Writer }{remote}, from)
		switch {
		case from.err != nil:
			_ = remote.Close() // the local program closed the connection
		case err == nil:
			_ = remote.CloseWrite()
		} // the reading side reports a broken connection, with its cause
	}()
	near := &localWriter{Writer: local}
	_, err = io.Copy(near, struct{ io.Reader }{remote})
	if err == nil {
		if half, ok := local.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		err = remote.Wait()
	}
	if errors.Is(err, context.Canceled) || near.err != nil {
		err = nil // the local program closed the connection
	}
	if tcp, ok := local.(*net.TCPConn); ok && err != nil {
		_ = tcp.SetLinger(0) // the local program sees a reset
	}
	_ = local.Close()
	<-sent
	return err
}

// localReader records errors of the local connection other than its end, to distinguish them from errors of the remote
// one.
type localReader struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (l *localReader) Read(b []byte) (n int, err error) {
	n, err = l.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

// localWriter records errors of the local connection, to distinguish them from errors of the remote one.
type localWriter struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (l *localWriter) Write(b []byte) (n int, err error) {
	n, err = l.Writer.Write(b)
	l.err = err
	return n, err
}

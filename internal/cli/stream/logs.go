package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// readInterval is the minimum interval between two reads of an object or a list while a command runs.
const readInterval = time.Second

// logsCommand is `berth logs`.
type logsCommand struct {
	*session.Session
	options  client.LogOptions
	previous bool
	client   *client.Client // of the run
	printer  logPrinter
}

// NewLogsCommand returns the command `berth logs`.
func NewLogsCommand(sess *session.Session) *cobra.Command {
	l := &logsCommand{Session: sess, printer: logPrinter{sess: sess}}
	cmd := &cobra.Command{
		Use:   "logs TASK|SERVICE|JOB",
		Short: "Show the output of a task, or of all tasks of a service or job",
		Long: "Show the output of a task, or of all tasks of a service or job, sorted by time. TASK is an ID from\n" +
			"'berth ps', or its beginning. With several tasks, each line begins with the name of its task.\n\n" +
			"--tail N shows the newest N lines; -n is the cluster, as everywhere. --previous shows the output\n" +
			"before the last restart of a container, or that of the previous attempt of the task.",
		Args:              session.Arguments(1, 1, "a task, a service or a job, such as web.1.0 or web"),
		ValidArgsFunction: sess.CompleteNames(wording.KindTask, wording.KindService, wording.KindJob),
		RunE:              l.run,
	}
	cmd.Flags().BoolVarP(&l.options.Follow, "follow", "f", false, "wait for new lines until interrupted")
	cmd.Flags().IntVar(&l.options.Tail, "tail", -1, "number of newest `lines` of each task to begin with; -1 for all "+
		"kept lines")
	cmd.Flags().BoolVarP(&l.previous, "previous", "p", false,
		"the output before the last restart, or of the previous attempt")
	cmd.Flags().DurationVar(&l.options.Since, "since", 0, "only lines of the last `duration`, such as 10m")
	cmd.Flags().StringVarP(&l.options.Container, "container", "c", "", "only this `container`")
	cmd.Flags().StringVar((*string)(&l.options.Stream), "stream", "", "only this `stream`: stdout or stderr")
	cmd.Flags().BoolVarP(&l.printer.withTime, "timestamps", "t", false, "begin each line with its time")
	return cmd
}

func (l *logsCommand) run(cmd *cobra.Command, args []string) (err error) {
	if l.previous && l.options.Follow {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: "--previous and --follow exclude each other: earlier output does not grow",
		}
	}
	if l.client, err = l.Connect(); err != nil {
		return err
	}
	n, err := l.FindObject(cmd, l.client, args[0], wording.KindService, wording.KindJob, wording.KindTask)
	if err != nil {
		return err
	}
	if n.Kind == wording.KindTask {
		return l.printTask(cmd.Context(), n.Name)
	}
	if n, err = n.Resolve(cmd.Context(), l.client); err != nil {
		return err
	}
	return l.printOwner(cmd.Context(), n)
}

// printTask prints the output of one task.
func (l *logsCommand) printTask(ctx context.Context, text string) error {
	t, err := l.FindTask(ctx, l.client, text)
	if err != nil {
		return err
	}
	if err := l.checkContainer(ctx, t); err != nil {
		return err
	}
	if l.previous {
		return l.printPrevious(ctx, t)
	}
	if t.State == cluster.StatePending && !l.options.Follow {
		return l.printer.printKeptOutput(ctx, l.client, t)
	}
	none := true
	for line, err := range l.streamLines(ctx, t.ID, l.options) {
		if err != nil {
			return session.EndOfStream(err)
		}
		none = false
		if err := l.printer.write(t.ID, line); err != nil {
			return err
		}
	}
	if none {
		return l.printer.printKeptOutput(ctx, l.client, t)
	}
	return nil
}

// checkContainer returns an error if the task has no such container. If its definition cannot be read it returns nil.
func (l *logsCommand) checkContainer(ctx context.Context, t api.TaskView) error {
	if l.options.Container == "" {
		return nil
	}
	def, err := l.client.Definition(ctx, t.Definition)
	if err != nil {
		return nil //nolint:nilerr // it is there to help
	}
	known := make([]string, len(def.Containers))
	for i := range known {
		known[i] = def.Containers[i].Name
	}
	if len(known) == 0 || slices.Contains(known, l.options.Container) {
		return nil
	}
	return fmt.Errorf("task %s: %w", string(t.ID),
		session.UnknownError("container", l.options.Container, known))
}

// streamLines streams the output of a task. With follow it reconnects after a restart of the server or of the agent.
func (l *logsCommand) streamLines(ctx context.Context, id cluster.TaskID,
	o client.LogOptions,
) iter.Seq2[api.LogLine, error] {
	if !o.Follow {
		return l.client.Logs(ctx, id, o)
	}
	reported := false
	return l.client.FollowLogs(ctx, id, o, func(err error) {
		if !reported && err != nil {
			l.Messagef("berth: %s: %s; trying again", string(id), session.ErrorText(err))
		}
		reported = err != nil
	})
}

// printOwner prints the output of all tasks of a service or job.
func (l *logsCommand) printOwner(ctx context.Context, n session.Name) error {
	l.printer.withTask = true
	if l.options.Follow {
		return l.follow(ctx, n)
	}
	tasks, err := fetch.ListTasks(ctx, l.client, n, n.Kind == wording.KindJob)
	if err != nil {
		return err
	}
	tasks = session.KeepNewest(tasks)
	if len(tasks) == 0 {
		l.Messagef("%s has no tasks.", n)
		return nil
	}
	if err := l.checkContainer(ctx, tasks[0]); err != nil {
		return err
	}
	if l.previous {
		return l.printPreviousOf(ctx, n, tasks)
	}
	var failed []error
	for some := range slices.Chunk(tasks, maxMergedLogs) {
		failed = append(failed, l.merge(ctx, some))
	}
	return errors.Join(failed...)
}

// maxMergedLogs is how many logs are merged by time. More logs are printed one after the other.
const maxMergedLogs = 64

// logSource is the log of a task, read line by line.
type logSource struct {
	task api.TaskView
	next func() (api.LogLine, error, bool)
	line api.LogLine
}

// merge prints the lines of several tasks by time. It holds one line of each task.
func (l *logsCommand) merge(ctx context.Context, tasks []api.TaskView) error {
	var failed []error
	var open []*logSource
	// advance reads the next line of a source, and reports whether there is one.
	advance := func(s *logSource) bool {
		line, err, more := s.next()
		if more && err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", string(s.task.ID), err))
			return false
		}
		s.line = line
		return more
	}
	for _, t := range tasks {
		if t.State == cluster.StatePending {
			failed = append(failed, l.printer.printKeptOutput(ctx, l.client, t))
			continue
		}
		next, stop := iter.Pull2(l.client.Logs(ctx, t.ID, l.options))
		defer stop()
		s := &logSource{task: t, next: next}
		before := len(failed)
		if advance(s) {
			open = append(open, s)
		} else if len(failed) == before {
			failed = append(failed, l.printer.printKeptOutput(ctx, l.client, t))
		}
	}
	for len(open) > 0 {
		s := slices.MinFunc(open, func(x, y *logSource) int { return x.line.Time.Compare(y.line.Time) })
		if err := l.printer.write(s.task.ID, s.line); err != nil {
			return err
		}
		if !advance(s) {
			open = slices.DeleteFunc(open, func(x *logSource) bool { return x == s })
		}
	}
	return errors.Join(failed...)
}

// follow prints the output of an owner's tasks as it comes, including tasks that start later. It ends with ctx, or when
// a job is done and all its output is printed.
func (l *logsCommand) follow(ctx context.Context, n session.Name) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	seen, o := map[string]bool{}, l.options
	loop := wait.Loop{
		Session: l.Session, MinInterval: readInterval,
		Changes: append(wait.ChangesOf(l.client, []session.Name{n}), func(ctx context.Context) client.Changes {
			return l.client.TaskChanges(ctx, fetch.TasksOf(n, n.Kind == wording.KindJob))
		}),
		Read: func(ctx context.Context) (bool, error) {
			// read before the list of tasks, so that no task is missed
			done := n.Kind == wording.KindJob && isJobDone(ctx, l.client, n)
			tasks, err := fetch.ListTasks(ctx, l.client, n, n.Kind == wording.KindJob)
			if err != nil {
				return true, err
			}
			for _, t := range session.KeepNewest(tasks) {
				if t.Node == "" || seen[t.UUID] {
					continue
				}
				seen[t.UUID] = true
				from := o
				running.Go(func() { l.followTask(ctx, t.ID, from) })
			}
			o.Tail = -1 // a new task is shown from its beginning
			return !done, nil
		},
	}
	if err := loop.Run(ctx); err != nil {
		return session.EndOfStream(err)
	}
	running.Wait()
	return nil
}

// followTask prints the output of one task until the task or ctx ends. An error is printed and does not stop other
// tasks.
func (l *logsCommand) followTask(ctx context.Context, id cluster.TaskID, o client.LogOptions) {
	for line, err := range l.streamLines(ctx, id, o) {
		if err == nil {
			err = l.printer.write(id, line)
		}
		if err != nil {
			if ctx.Err() == nil {
				l.Messagef("berth: %s: %s", string(id), session.ErrorText(err))
			}
			return
		}
	}
}

func isJobDone(ctx context.Context, c *client.Client, n session.Name) bool {
	v, err := c.Job(ctx, n.Cluster, n.Name)
	return err == nil && v.Status.Done()
}

// logPrinter prints lines of several tasks without mixing them. It is safe for concurrent use.
type logPrinter struct {
	sess               *session.Session
	withTime, withTask bool

	mu sync.Mutex
}

// printKeptOutput prints the output that the server keeps if the node has none: the last lines of the newest failed
// attempt.
func (p *logPrinter) printKeptOutput(ctx context.Context, c *client.Client, t api.TaskView) error {
	if !t.State.Terminal() && t.State != cluster.StatePending {
		if taskview.NeverRan(t) {
			p.explainNoOutput(t, "it is "+string(t.State))
		}
		return nil
	}
	attempts, err := fetch.ListAttempts(ctx, c, t)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(attempts, func(v api.TaskView) bool { return v.LogTail != "" })
	ran := slices.ContainsFunc(attempts, func(v api.TaskView) bool { return !taskview.NeverRan(v) })
	if i < 0 && t.State == cluster.StatePending && !ran {
		p.explainNoOutput(t, "it waits to be placed")
		return nil
	}
	if i < 0 && !ran {
		p.sess.Messagef("berth: %s never ran, so it has no output: %s", string(t.ID),
			cmp.Or(wording.OneLine(taskview.Reason(t)), string(t.State)))
		p.sess.Messagef("See 'berth status %s'.", session.OwnerName(t.Owner))
		return nil
	}
	if i < 0 {
		p.sess.Messagef("berth: no output of %s is kept", string(t.ID))
		return nil
	}
	p.sess.Messagef("berth: attempt %d of %s has ended; only the end of its output is kept", attempts[i].Attempt,
		string(t.ID))
	for text := range strings.SplitSeq(strings.TrimRight(attempts[i].LogTail, "\n"), "\n") {
		if err := p.write(t.ID, api.LogLine{Time: attempts[i].Finished, Text: text}); err != nil {
			return err
		}
	}
	return nil
}

// explainNoOutput prints why a task has no output yet.
func (p *logPrinter) explainNoOutput(t api.TaskView, usual string) {
	p.sess.Messagef("berth: %s has not begun: %s", string(t.ID),
		cmp.Or(wording.OneLine(taskview.Reason(t)), usual))
	p.sess.Messagef("See 'berth status %s'.", session.OwnerName(t.Owner))
}

func (p *logPrinter) write(task cluster.TaskID, line api.LogLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sess.WantsData() {
		line.Task = task
		return p.sess.PrintItem(line)
	}
	if line.Lost > 0 {
		p.sess.Messagef("berth: %s of %s left out, because the client reads too slowly",
			wording.Count(line.Lost, "line"), string(task))
		return nil
	}
	var b strings.Builder
	if p.withTime {
		b.WriteString(line.Time.UTC().Format("2006-01-02T15:04:05.000Z "))
	}
	if p.withTask {
		who := p.sess.Shorten(string(task))
		if line.Container != "" {
			who += "/" + line.Container
		}
		b.WriteString(who + " | ")
	}
	b.WriteString(strings.TrimRight(line.Text, "\r\n") + "\n")
	_, err := io.WriteString(p.sess.Stdout, b.String())
	return err
}

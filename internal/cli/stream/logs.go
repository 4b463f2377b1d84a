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
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// taskListInterval is the minimum interval between two lists of the owner's tasks.
const taskListInterval = time.Second

// NewLogsCommand returns the command `berth logs`.
func NewLogsCommand(sess *session.Session) *cobra.Command {
	var o client.LogOptions
	var stamps bool
	cmd := &cobra.Command{
		Use:   "logs TASK|service/NAME|job/NAME",
		Short: "Show the output of a task, or of all tasks of a service or job",
		Long: "Show the output of a task, or of all tasks of a service or job, sorted by time. TASK is an ID from\n" +
			"'berth ps', or its beginning. With several tasks, each line begins with the name of its task.",
		Args:              session.Arguments(1, 1, "a task, or a service or job such as service/web"),
		ValidArgsFunction: sess.CompleteNames(wording.KindTask, wording.KindService, wording.KindJob),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := sess.Connect()
			if err != nil {
				return err
			}
			p := &logPrinter{sess: sess, withTime: stamps}
			if !strings.Contains(args[0], "/") {
				return printTaskLogs(cmd.Context(), sess, c, p, args[0], o)
			}
			n, err := session.ParseName(cmd, args[0], wording.KindTask, wording.KindService, wording.KindJob)
			if err != nil {
				return err
			}
			if n.Kind == wording.KindTask {
				return printTaskLogs(cmd.Context(), sess, c, p, n.Name, o)
			}
			if n, err = n.Resolve(cmd.Context(), c); err != nil {
				return err
			}
			return printOwnerLogs(cmd.Context(), sess, c, p, n, o)
		},
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "wait for new lines until interrupted")
	cmd.Flags().IntVar(&o.Tail, "tail", -1, "number of newest `lines` of each task to begin with; -1 for all "+
		"kept lines")
	cmd.Flags().DurationVar(&o.Since, "since", 0, "only lines of the last `duration`, such as 10m")
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "only this `container`")
	cmd.Flags().StringVar(&o.Stream, "stream", "", "only this `stream`: stdout or stderr")
	cmd.Flags().BoolVarP(&stamps, "timestamps", "t", false, "begin each line with its time")
	return cmd
}

// printTaskLogs prints the output of one task.
func printTaskLogs(ctx context.Context, sess *session.Session, c *client.Client, p *logPrinter, text string,
	o client.LogOptions,
) error {
	t, err := session.FindTask(ctx, c, text)
	if err != nil {
		return err
	}
	if err := checkContainer(ctx, c, t, o.Container); err != nil {
		return err
	}
	if t.State == cluster.StatePending && !o.Follow {
		return p.printKeptOutput(ctx, c, t)
	}
	none := true
	for line, err := range streamLines(ctx, sess, c, t.ID, o) {
		if err != nil {
			return fetch.IgnoreCanceled(err)
		}
		none = false
		if err := p.print(t.ID, line); err != nil {
			return err
		}
	}
	if none {
		return p.printKeptOutput(ctx, c, t)
	}
	return nil
}

// checkContainer returns an error if the task has no such container. If its definition cannot be read it returns nil.
func checkContainer(ctx context.Context, c *client.Client, t api.TaskView, container string) error {
	if container == "" {
		return nil
	}
	def, err := c.Definition(ctx, t.Definition)
	if err != nil {
		return nil //nolint:nilerr // it is there to help
	}
	known := make([]string, len(def.Containers))
	for i := range known {
		known[i] = def.Containers[i].Name
	}
	if len(known) == 0 || slices.Contains(known, container) {
		return nil
	}
	return fmt.Errorf("task %s: %w", wording.ShortTask(t.ID), session.UnknownError("container", container, known))
}

// streamLines streams the output of a task. With follow it reconnects after a restart of the server or of the agent.
func streamLines(ctx context.Context, sess *session.Session, c *client.Client, id cluster.TaskID,
	o client.LogOptions,
) iter.Seq2[api.LogLine, error] {
	if !o.Follow {
		return c.Logs(ctx, id, o)
	}
	reported := false
	return c.FollowLogs(ctx, id, o, func(err error) {
		if !reported && err != nil {
			sess.Messagef("berth: %s: %s; trying again", wording.ShortTask(id), session.ErrorText(err))
		}
		reported = err != nil
	})
}

// printOwnerLogs prints the output of all tasks of a service or job.
func printOwnerLogs(ctx context.Context, sess *session.Session, c *client.Client, p *logPrinter, n session.Name,
	o client.LogOptions,
) error {
	tasks, err := fetch.ListTasks(ctx, c, n, n.Kind == wording.KindJob)
	if err != nil {
		return err
	}
	tasks = session.KeepNewest(tasks)
	p.withTask = true
	if o.Follow {
		return followLogs(ctx, sess, c, p, n, o)
	}
	if len(tasks) == 0 {
		sess.Messagef("%s has no tasks.", n)
		return nil
	}
	if err := checkContainer(ctx, c, tasks[0], o.Container); err != nil {
		return err
	}
	var failed []error
	for some := range slices.Chunk(tasks, maxMergedLogs) {
		failed = append(failed, mergeLogs(ctx, c, p, some, o))
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

// mergeLogs prints the lines of several tasks by time. It holds one line of each task.
func mergeLogs(ctx context.Context, c *client.Client, p *logPrinter, tasks []api.TaskView,
	o client.LogOptions,
) error {
	var failed []error
	var open []*logSource
	// advance reads the next line of a source, and reports whether there is one.
	advance := func(s *logSource) bool {
		line, err, more := s.next()
		if more && err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", wording.ShortTask(s.task.ID), err))
			return false
		}
		s.line = line
		return more
	}
	for _, t := range tasks {
		if t.State == cluster.StatePending {
			failed = append(failed, p.printKeptOutput(ctx, c, t))
			continue
		}
		next, stop := iter.Pull2(c.Logs(ctx, t.ID, o))
		defer stop()
		s := &logSource{task: t, next: next}
		before := len(failed)
		if advance(s) {
			open = append(open, s)
		} else if len(failed) == before {
			failed = append(failed, p.printKeptOutput(ctx, c, t))
		}
	}
	for len(open) > 0 {
		s := slices.MinFunc(open, func(x, y *logSource) int { return x.line.Time.Compare(y.line.Time) })
		if err := p.print(s.task.ID, s.line); err != nil {
			return err
		}
		if !advance(s) {
			open = slices.DeleteFunc(open, func(x *logSource) bool { return x == s })
		}
	}
	return errors.Join(failed...)
}

// followLogs prints the output of an owner's tasks as it comes, including tasks that start later. It ends with ctx, or
// when a job is done and all its output is printed.
func followLogs(ctx context.Context, sess *session.Session, c *client.Client, p *logPrinter, n session.Name,
	o client.LogOptions,
) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	seen := map[string]bool{}
	for {
		// read before the list of tasks, so that no task is missed
		done := n.Kind == wording.KindJob && isJobDone(ctx, c, n)
		tasks, err := fetch.ListTasks(ctx, c, n, n.Kind == wording.KindJob)
		if err != nil {
			return fetch.IgnoreCanceled(err)
		}
		for _, t := range session.KeepNewest(tasks) {
			if t.Node == "" || seen[t.UUID] {
				continue
			}
			seen[t.UUID] = true
			from := o
			running.Go(func() { followTask(ctx, sess, c, p, t.ID, from) })
		}
		if done {
			running.Wait()
			return nil
		}
		o.Tail = -1 // a new task is shown from its beginning
		if pause.For(ctx, taskListInterval) != nil {
			return nil
		}
	}
}

// followTask prints the output of one task until the task or ctx ends. An error is printed and does not stop other
// tasks.
func followTask(ctx context.Context, sess *session.Session, c *client.Client, p *logPrinter, id cluster.TaskID,
	o client.LogOptions,
) {
	for line, err := range streamLines(ctx, sess, c, id, o) {
		if err == nil {
			err = p.print(id, line)
		}
		if err != nil {
			if ctx.Err() == nil {
				sess.Messagef("berth: %s: %s", wording.ShortTask(id), session.ErrorText(err))
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
		p.sess.Messagef("berth: %s never ran, so it has no output: %s", wording.ShortTask(t.ID),
			cmp.Or(wording.OneLine(taskview.Reason(t)), string(t.State)))
		p.sess.Messagef("See 'berth status %s'.", session.OwnerName(t.Owner))
		return nil
	}
	if i < 0 {
		p.sess.Messagef("berth: no output of %s is kept", wording.ShortTask(t.ID))
		return nil
	}
	p.sess.Messagef("berth: attempt %d of %s has ended; only the end of its output is kept", attempts[i].Attempt,
		wording.ShortTask(t.ID))
	for text := range strings.SplitSeq(strings.TrimRight(attempts[i].LogTail, "\n"), "\n") {
		if err := p.print(t.ID, api.LogLine{Time: attempts[i].Finished, Text: text}); err != nil {
			return err
		}
	}
	return nil
}

// explainNoOutput prints why a task has no output yet.
func (p *logPrinter) explainNoOutput(t api.TaskView, usual string) {
	p.sess.Messagef("berth: %s has not begun: %s", wording.ShortTask(t.ID),
		cmp.Or(wording.OneLine(taskview.Reason(t)), usual))
	p.sess.Messagef("See 'berth status %s'.", session.OwnerName(t.Owner))
}

func (p *logPrinter) print(task cluster.TaskID, line api.LogLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sess.WantsData() {
		line.Task = task
		return p.sess.PrintItem(line)
	}
	if line.Lost > 0 {
		p.sess.Messagef("berth: %s of %s left out, because the client reads too slowly",
			wording.Count(line.Lost, "line"), wording.ShortTask(task))
		return nil
	}
	var b strings.Builder
	if p.withTime {
		b.WriteString(line.Time.UTC().Format("2006-01-02T15:04:05.000Z "))
	}
	if p.withTask {
		who := wording.ShortTask(task)
		if line.Container != "" {
			who += "/" + line.Container
		}
		b.WriteString(who + " | ")
	}
	b.WriteString(strings.TrimRight(line.Text, "\r\n") + "\n")
	_, err := io.WriteString(p.sess.Stdout, b.String())
	return err
}

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
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

// lookForTasks is how often following an owner's logs looks for new tasks, at most.
const taskListInterval = time.Second

// NewLogsCommand returns the command `berth logs`.
func NewLogsCommand(sess *session.Session) *cobra.Command {
	var o client.LogOptions
	var stamps bool
	cmd := &cobra.Command{
		Use:   "logs TASK|service/NAME|job/NAME",
		Short: "Show the output of a task, or of all tasks of a service or job",
		Long: `Show the output of a task, or of all tasks of a service or job, joined by time. TASK is an id as
'berth ps' shows it, or the beginning of one. Each line of several tasks begins with its task.`,
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
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on with new lines until interrupted")
	cmd.Flags().IntVar(&o.Tail, "tail", -1, "how many `lines` of each task to begin with; -1 for all that are kept")
	cmd.Flags().DurationVar(&o.Since, "since", 0, "only lines that are not older than this `duration`, such as 10m")
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "only this `container`")
	cmd.Flags().StringVar(&o.Stream, "stream", "", "only this `stream`: stdout or stderr")
	cmd.Flags().BoolVarP(&stamps, "timestamps", "t", false, "begin each line with its time")
	return cmd
}

// taskLogs prints one task's output.
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

// hasContainer demands that a task has the container that its output is asked of. Where its definition is not to be
// had, nothing is said.
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

// lines streams a task's output. One that is followed goes on across restarts of the server and of the node's agent.
func streamLines(ctx context.Context, sess *session.Session, c *client.Client, id cluster.TaskID,
	o client.LogOptions,
) iter.Seq2[api.LogLine, error] {
	if !o.Follow {
		return c.Logs(ctx, id, o)
	}
	told := false
	return c.FollowLogs(ctx, id, o, func(err error) {
		if !told && err != nil {
			sess.Messagef("berth: %s: %s; trying again", wording.ShortTask(id), session.ErrorText(err))
		}
		told = err != nil
	})
}

// ownerLogs prints the output of all tasks of a service or job.
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

// mostSources is how many logs are read at a time; those of more tasks stand after one another.
const maxMergedLogs = 64

// source is the log of a task, read line by line.
type logSource struct {
	task api.TaskView
	next func() (api.LogLine, error, bool)
	line api.LogLine
}

// mergeLogs prints the lines of several tasks in the order of their times, holding one line of each.
func mergeLogs(ctx context.Context, c *client.Client, p *logPrinter, tasks []api.TaskView,
	o client.LogOptions,
) error {
	var failed []error
	var open []*logSource
	// advance reads a source's next line and reports whether there is one.
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

// followLogs prints the output of an owner's tasks as it comes, of tasks that begin later too. It ends
// with ctx, or when a job is done and all of its output is printed.
func followLogs(ctx context.Context, sess *session.Session, c *client.Client, p *logPrinter, n session.Name,
	o client.LogOptions,
) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	seen := map[string]bool{}
	for {
		done := n.Kind == wording.KindJob && isJobDone(ctx, c, n) // asked first, so that no task is missed
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
		o.Tail = -1 // a task that begins later is shown from its beginning
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(taskListInterval):
		}
	}
}

// followTask prints one task's output until it or ctx ends; what is wrong with one hides no other.
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

// logPrinter prints lines of several tasks, each whole. It is safe for concurrent use.
type logPrinter struct {
	sess               *session.Session
	withTime, withTask bool

	mu sync.Mutex
}

// kept prints what the server itself has of the output of a task whose node has none any more: the end of
// that of its newest attempt that failed.
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
	p.sess.Messagef("berth: attempt %d of %s has ended, only the end of its output is kept", attempts[i].Attempt,
		wording.ShortTask(t.ID))
	for text := range strings.SplitSeq(strings.TrimRight(attempts[i].LogTail, "\n"), "\n") {
		if err := p.print(t.ID, api.LogLine{Time: attempts[i].Finished, Text: text}); err != nil {
			return err
		}
	}
	return nil
}

// notBegun tells why there is no output of a task yet.
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
		p.sess.Messagef("berth: %s of %s left out: too slow to read", wording.Count(line.Lost, "line"),
			wording.ShortTask(task))
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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// lookForTasks is how often following an owner's logs looks for new tasks, at most.
const lookForTasks = time.Second

func (a *app) newLogsCommand() *cobra.Command {
	var o client.LogOptions
	var stamps bool
	cmd := &cobra.Command{
		Use:   "logs TASK|service/NAME|job/NAME",
		Short: "Show the output of a task, or of all tasks of a service or job",
		Long: `Show the output of a task, or of all tasks of a service or job, joined by time. TASK is an id as
'berth ps' shows it, or the beginning of one. Each line of several tasks begins with its task.`,
		Args:              arguments(1, 1, "a task, or a service or job such as service/web"),
		ValidArgsFunction: a.completeNames(wordTask, wordService, wordJob),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			p := &logPrinter{app: a, stamps: stamps}
			if !strings.Contains(args[0], "/") {
				return a.taskLogs(cmd.Context(), c, p, args[0], o)
			}
			n, err := parseName(cmd, args[0], wordTask, wordService, wordJob)
			if err != nil {
				return err
			}
			if n.kind == wordTask {
				return a.taskLogs(cmd.Context(), c, p, n.name, o)
			}
			if n, err = n.resolve(cmd.Context(), c); err != nil {
				return err
			}
			return a.ownerLogs(cmd.Context(), c, p, n, o)
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
func (a *app) taskLogs(ctx context.Context, c *client.Client, p *logPrinter, text string, o client.LogOptions) error {
	t, err := findTask(ctx, c, text)
	if err != nil {
		return err
	}
	for line, err := range c.Logs(ctx, t.ID, o) {
		if err != nil {
			return endOfStream(ctx, err)
		}
		if err := p.print(t.ID, line); err != nil {
			return err
		}
	}
	return nil
}

// ownerLogs prints the output of all tasks of a service or job.
func (a *app) ownerLogs(ctx context.Context, c *client.Client, p *logPrinter, n name, o client.LogOptions) error {
	tasks, err := tasksOf(ctx, c, n, n.kind == wordJob)
	if err != nil {
		return err
	}
	tasks = slices.DeleteFunc(newest(tasks), func(t api.TaskView) bool { return t.Node == "" })
	p.prefix = true
	if o.Follow {
		return a.followLogs(ctx, c, p, n, o)
	}
	if len(tasks) == 0 {
		a.tell("%s has no tasks that have begun.", n)
		return nil
	}
	var lines []taskLine
	var failed []error
	for _, t := range tasks {
		for line, err := range c.Logs(ctx, t.ID, o) {
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", shortTask(t.ID), err))
				break
			}
			lines = append(lines, taskLine{t.ID, line})
		}
	}
	slices.SortStableFunc(lines, func(x, y taskLine) int { return x.line.Time.Compare(y.line.Time) })
	for _, l := range lines {
		if err := p.print(l.task, l.line); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

type taskLine struct {
	task cluster.TaskID
	line api.LogLine
}

// followLogs prints the output of an owner's tasks as it comes, of tasks that begin later too. It ends
// with ctx, or when a job is done and all of its output is printed.
func (a *app) followLogs(ctx context.Context, c *client.Client, p *logPrinter, n name, o client.LogOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	seen := map[string]bool{}
	for {
		tasks, err := tasksOf(ctx, c, n, n.kind == wordJob)
		if err != nil {
			return endOfStream(ctx, err)
		}
		for _, t := range newest(tasks) {
			if t.Node == "" || seen[t.UUID] {
				continue
			}
			seen[t.UUID] = true
			running.Go(func() {
				for line, err := range c.Logs(ctx, t.ID, o) {
					if err != nil || p.print(t.ID, line) != nil {
						if ctx.Err() == nil && err != nil {
							a.tell("berth: %s: %v", shortTask(t.ID), err)
						}
						return
					}
				}
			})
		}
		o.Tail = -1 // a task that begins later is shown from its beginning
		if n.kind == wordJob {
			v, err := c.Job(ctx, n.cluster, n.name)
			if err == nil && v.Status.Done() {
				running.Wait()
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookForTasks):
		}
	}
}

// logPrinter prints lines of several tasks, each whole. It is safe for concurrent use.
type logPrinter struct {
	app            *app
	stamps, prefix bool

	mu sync.Mutex
}

func (p *logPrinter) print(task cluster.TaskID, line api.LogLine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.app.data() {
		line.Task = task
		return p.app.printLine(line)
	}
	if line.Lost > 0 {
		p.app.tell("berth: %s of %s left out: too slow to read", count(line.Lost, "line"), shortTask(task))
		return nil
	}
	var b strings.Builder
	if p.stamps {
		b.WriteString(line.Time.UTC().Format("2006-01-02T15:04:05.000Z "))
	}
	if p.prefix {
		who := shortTask(task)
		if line.Container != "" {
			who += "/" + line.Container
		}
		b.WriteString(who + " | ")
	}
	b.WriteString(strings.TrimRight(line.Text, "\r\n") + "\n")
	_, err := io.WriteString(p.app.stdout, b.String())
	return err
}

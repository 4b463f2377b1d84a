package simulate

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/traces"
	"github.com/berthd/berth/internal/whatif"
	"github.com/berthd/berth/internal/wording"
)

// traceFlag returns the flag that names a trace.
func (s *simulation) traceFlag() *changeFlag {
	return &changeFlag{name: "trace", kind: "TRACE", faults: &s.faults, parse: func(text string) error {
		if s.trace != nil {
			return errors.New("only one trace can be replayed at a time")
		}
		t, err := readTrace(text)
		s.trace = t
		if s.trace == nil {
			s.trace = &whatif.Replay{} // marks that the flag was given
		}
		if all, ok := errors.AsType[*traces.Faults](err); ok {
			for _, f := range all.List {
				s.faults.Add("%s", f)
			}
			if all.More > 0 {
				s.faults.Add("and %s more in the files of the trace", wording.Count(all.More, "fault"))
			}
			return nil
		}
		return err
	}}
}

// traceOptions are the options after the file of a trace.
type traceOptions struct {
	nodes    string
	fill     bool
	cpu      cluster.MilliCPU
	memory   cluster.Bytes
	strategy cluster.Strategy
	queue    cluster.QueuePolicy
	tasks    int
	time     time.Duration
}

// readTrace parses "swf:FILE" and "openb:FILE,nodes=FILE,fill" and reads the files.
func readTrace(text string) (*whatif.Replay, error) {
	format, rest, _ := strings.Cut(text, ":")
	file, options, more := strings.Cut(rest, ",")
	if format != "openb" && format != "swf" || file == "" {
		return nil, errors.New("want openb:FILE or swf:FILE; options follow, separated by commas")
	}
	var o traceOptions
	var wrong []error
	if more {
		for part := range strings.SplitSeq(options, ",") {
			if err := o.parse(format, part); err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	t, err := o.open(format, file)
	if err != nil {
		return nil, err
	}
	for i := range t.Shapes {
		if shape := &t.Shapes[i]; format == "swf" {
			if o.cpu > 0 {
				shape.CPU = o.cpu
			}
			if o.memory > 0 {
				shape.Memory = o.memory
			}
		}
	}
	return &whatif.Replay{
		Name: format + ":" + file, Trace: t, Join: o.nodes != "", Fill: o.fill, Strategy: o.strategy, Queue: o.queue,
		Tasks: o.tasks, Time: o.time,
	}, nil
}

// parse parses one option.
func (o *traceOptions) parse(format, part string) (err error) {
	key, value, _ := strings.Cut(part, "=")
	switch {
	case key == "nodes" && value != "" && format == "openb":
		o.nodes = value
	case part == "fill" && format == "openb":
		o.fill = true
	case key == "cpu" && format == "swf":
		o.cpu, err = cluster.ParseMilliCPU(value)
	case key == "memory" && format == "swf":
		o.memory, err = cluster.ParseBytes(value)
	case key == "strategy":
		o.strategy = cluster.Strategy(value)
		if all := []cluster.Strategy{
			cluster.StrategyBinpack, cluster.StrategySpread,
			cluster.StrategyWhole,
		}; !slices.Contains(all, o.strategy) {
			err = fmt.Errorf("strategy is %q, want binpack, spread or whole", value)
		}
	case key == "queue":
		if o.queue = cluster.QueuePolicy(value); !slices.Contains(o.queue.Values(), o.queue) {
			err = fmt.Errorf("queue is %q, want easy, fair, fifo, greedy or sjbf", value)
		}
	case key == "tasks":
		if o.tasks, err = strconv.Atoi(value); err != nil || o.tasks < 1 || o.tasks > whatif.MaxTraceTasks {
			err = fmt.Errorf("tasks is %q, want a number from 1 to %d", value, whatif.MaxTraceTasks)
		}
	case key == "time":
		if o.time, err = time.ParseDuration(value); err != nil || o.time <= 0 || o.time > whatif.MaxTraceTime {
			err = fmt.Errorf("time is %q, want a duration of at most %s, such as 720h", value,
				cluster.Duration(whatif.MaxTraceTime))
		}
	case format == "openb":
		err = fmt.Errorf(
			"%q is not known: want nodes=FILE, fill, strategy=NAME, queue=NAME, tasks=N or time=DURATION", part)
	default:
		err = fmt.Errorf(
			"%q is not known: want cpu=N, memory=SIZE, strategy=NAME, queue=NAME, tasks=N or time=DURATION", part)
	}
	return err
}

// open reads the files of a trace.
func (o *traceOptions) open(format, file string) (*traces.Trace, error) {
	from, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	in := traces.Input{Name: file, From: from}
	if format == "swf" {
		return traces.ReadSWF(in)
	}
	var nodes traces.Input
	if o.nodes != "" {
		also, err := os.Open(o.nodes)
		if err != nil {
			return nil, err
		}
		defer also.Close()
		nodes = traces.Input{Name: o.nodes, From: also}
	}
	return traces.ReadOpenB(in, nodes)
}

// replayProgressInterval is the interval between progress messages of a replay.
const replayProgressInterval = 5 * time.Second

// replayProgress prints the progress of a replay on standard error.
func (s *simulation) replayProgress() func(whatif.Progress) {
	last := s.Now()
	return func(p whatif.Progress) {
		now := s.Now()
		if now.Sub(last) < replayProgressInterval {
			return
		}
		last = now
		waits := "wait"
		if p.Waiting == 1 {
			waits = "waits"
		}
		s.Messagef("%d of %s arrived, %s of the trace passed, %d %s", p.Jobs, wording.Count(p.Of, "job"),
			cluster.Duration(p.After.Round(time.Second)), p.Waiting, waits)
	}
}

// printReplay prints the result of a replay.
func (s *simulation) printReplay(v *whatif.Replayed) (bool, error) {
	if v == nil {
		return false, nil
	}
	t := output.Table{Titles: []string{
		"TRACE", "JOBS>", "TASKS>", "BEGUN>", "ENDED>", "RUNNING>", "WAITING>",
		"LASTED>",
	}}
	number := strconv.Itoa
	t.Add(v.Trace, number(v.Jobs), number(v.Tasks), number(v.Begun), number(v.Ended), number(v.Running),
		number(v.Waiting), v.Lasted.String())
	if err := s.PrintTable(t); err != nil {
		return true, err
	}
	s.Printf("")
	t = output.Table{Titles: []string{"JOBS STARTED", "WAITED>", "MEAN>", "HALF>", "99%>", "LONGEST>"}}
	w := &v.Waits
	row := []string{number(v.Begun), number(w.Waited)}
	for _, d := range []cluster.Duration{w.Mean, w.Median, w.P99, w.Longest} {
		row = append(row, d.String())
	}
	t.Add(row...)
	if err := s.PrintTable(t); err != nil {
		return true, err
	}
	s.Printf("")
	t = output.Table{Titles: []string{"RESERVED", "MEAN>", "PEAK>", "END>"}}
	percent := func(p float64) string { return fmt.Sprintf("%.1f%%", p) }
	for _, f := range v.Full {
		t.Add(f.What, percent(f.Mean), percent(f.Peak), percent(f.End))
	}
	if err := s.PrintTable(t); err != nil {
		return true, err
	}
	s.printReplayNotes(v)
	return true, nil
}

// printReplayNotes prints when the most tasks waited, and which part of the trace was not replayed.
func (s *simulation) printReplayNotes(v *whatif.Replayed) {
	if b := v.Busiest; b != nil {
		waits := "wait"
		if b.Tasks == 1 {
			waits = "waits"
		}
		s.Printf("")
		s.Printf("the most that %s together: %s, after %s", waits, wording.Count(b.Tasks, "task"), b.After)
		for _, why := range b.Why {
			s.Printf("  %d: %s", why.Tasks, wording.OneLine(why.Sentence))
		}
	}
	if v.Skipped > 0 {
		s.Printf("skipped: %s of the trace with impossible data", wording.Count(v.Skipped, "job"))
	}
	if v.LeftOut > 0 {
		s.Printf("left out: %s of the trace, by the limits tasks=N and time=DURATION or their defaults",
			wording.Count(v.LeftOut, "job"))
	}
	if v.Cut {
		s.Printf("ended early, by the limit time=DURATION or its default")
	}
}

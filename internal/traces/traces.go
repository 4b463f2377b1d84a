// Package traces reads traces: records of the requests to other clusters.
//
// A Trace is a list of jobs, each with a number of equal tasks that run for a time, and, if the record has them, the
// machines of that cluster. Two formats are supported: the tables of pods and nodes of the openb traces of a cluster
// with GPUs (ReadOpenB), and the Standard Workload Format 2.2 of the logs of batch queues (ReadSWF).
//
// All faults of a file are returned together, as Faults, each with file and line, and then without a Trace.
package traces

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/shorten"
)

// Limits of a trace.
const (
	// MaxJobs is the most jobs of a trace, MaxNodes the most machines.
	MaxJobs  = 1_000_000
	MaxNodes = 10_000
	// maxLine is the longest line in bytes, maxFaults the most reported faults of a trace.
	maxLine   = 64 << 10
	maxFaults = 20
	// maxSeconds bounds every time, so that no sum of two overflows: 200 years.
	maxSeconds = 200 * 365 * 24 * 3600
)

// Trace is the workload of a cluster.
type Trace struct {
	// Nodes are the cluster's machines, where the record names them.
	Nodes []Node
	// Shapes are the different tasks.
	Shapes []Shape
	// Jobs are in the order that the reader says.
	Jobs []Job
	// Procs is the number of the machine's processors, 0 if the record does not say.
	Procs int64
	// Skipped counts the jobs that the record has and that cannot have run: without processors or run time, or larger
	// than the machine.
	Skipped int
}

// Node is a machine.
type Node struct {
	Name   string
	CPU    cluster.MilliCPU
	Memory cluster.Bytes
	GPUs   int
	Model  string // of the GPUs, may be empty
}

// Shape is the request of each task of a job.
type Shape struct {
	CPU    cluster.MilliCPU
	Memory cluster.Bytes
	// GPUs is their number. Share, unless 0, is a part of a single one in thousandths.
	GPUs, Share int
	// Models are the accepted models of GPUs, separated by "|"; empty accepts any.
	Models string
}

// Job is tasks that begin together.
type Job struct {
	// ID is the job's name in the record, unchanged.
	ID string
	// Arrived counts from the begin of the record.
	Arrived time.Duration
	// Run is how long its tasks ran, 0 if no end is known. Limit is the requested limit, 0 for none. Run is not above
	// Limit.
	Run, Limit time.Duration
	// Shape is the index of the request of each of its Tasks.
	Shape, Tasks int
	User         string // may be empty
}

// Fault is a fault of one line of a file. Line is 0 for the file as a whole.
type Fault struct {
	File    string
	Line    int
	Message string
}

// String says where, and what.
func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Faults are all that is wrong with a trace, up to a limit.
type Faults struct {
	List []Fault
	// More is the number of further faults.
	More int
}

// Error is part of error: a line for each fault.
func (f *Faults) Error() string {
	var b strings.Builder
	for i, one := range f.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.String())
	}
	if f.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", f.More)
	}
	return b.String()
}

// reader collects the faults of a trace's files.
type reader struct {
	trace  Trace
	shapes map[Shape]int
	faults Faults
	file   string
	line   int
	full   bool // there were more jobs or nodes than are read
}

func newReader() *reader { return &reader{shapes: map[Shape]int{}} }

// fault records a fault of the current line.
func (r *reader) fault(format string, args ...any) { r.faultAt(r.line, format, args...) }

func (r *reader) faultAt(line int, format string, args ...any) {
	if len(r.faults.List) == maxFaults {
		r.faults.More++
		return
	}
	r.faults.List = append(r.faults.List, Fault{r.file, line, fmt.Sprintf(format, args...)})
}

// faulty reports whether anything was wrong so far.
func (r *reader) faulty() bool { return len(r.faults.List) > 0 }

// result returns the trace, or all that is wrong with it.
func (r *reader) result() (*Trace, error) {
	if r.faulty() {
		return nil, &r.faults
	}
	return &r.trace, nil
}

// shape returns the index of a shape.
func (r *reader) shape(s Shape) int {
	at, ok := r.shapes[s]
	if !ok {
		at = len(r.trace.Shapes)
		r.shapes[s] = at
		r.trace.Shapes = append(r.trace.Shapes, s)
	}
	return at
}

// Input is a file that is read.
type Input struct {
	// Name is the name of the file in faults.
	Name string
	From io.Reader
}

// counted describes the number of columns of a line.
func counted(n int) string {
	if n == 1 {
		return "1 column"
	}
	return fmt.Sprintf("%d columns", n)
}

// clip shortens a quotation from a file.
func clip(s string) string { return shorten.Marked(s, 40) }

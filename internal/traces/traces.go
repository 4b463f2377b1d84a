// Package traces reads records of what was asked of other people's clusters: traces.
//
// A Trace is jobs, each a number of equal tasks that run for a time, and, where the record tells, the machines of that
// cluster. Two formats are known: the tables of pods and nodes of the openb traces of a cluster with GPUs (ReadOpenB),
// and the Standard Workload Format 2.2 in which logs of batch queues are kept (ReadSWF).
//
// What is wrong with a file is told all at once, as Faults, each with file and line; then nothing of it is returned.
package traces

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Bounds of what is read.
const (
	// MaxJobs is how many jobs a trace may have, and MaxNodes how many machines.
	MaxJobs  = 1_000_000
	MaxNodes = 10_000
	// maxLine bounds a line, and maxFaults how many faults of a trace are told one by one.
	maxLine   = 64 << 10
	maxFaults = 20
	// maxSeconds bounds every time, so that no sum of two overflows: 200 years.
	maxSeconds = 200 * 365 * 24 * 3600
)

// Trace is what was asked of a cluster.
type Trace struct {
	// Nodes are the cluster's machines, where the record names them.
	Nodes []Node
	// Shapes are the different tasks.
	Shapes []Shape
	// Jobs are in the order that the reader says.
	Jobs []Job
	// Procs is how many processors the machine had, 0 where the record does not say.
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

// Shape is what each task of a job asks for.
type Shape struct {
	CPU    cluster.MilliCPU
	Memory cluster.Bytes
	// GPUs is how many; Share, unless 0, the part of a single one in thousandths.
	GPUs, Share int
	// Models are those of which a GPU must be one, separated by "|"; empty for any.
	Models string
}

// Job is tasks that begin together.
type Job struct {
	// ID is what the record calls it, as it stands there.
	ID string
	// Arrived counts from the begin of the record.
	Arrived time.Duration
	// Run is how long its tasks ran, 0 for one of which no end is known; Limit what its user asked for, 0 for none. Run
	// is not above Limit.
	Run, Limit time.Duration
	// Shape is the index of what each of its Tasks asks for.
	Shape, Tasks int
	User         string // may be empty
}

// Fault is what is wrong with one line of a file; Line is 0 where it is the whole.
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

// Faults are all that is wrong with a trace, as far as it is worth telling.
type Faults struct {
	List []Fault
	// More is how many there are beside those.
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

// reader gathers what is wrong with the files of a trace.
type reader struct {
	trace  Trace
	shapes map[Shape]int
	faults Faults
	file   string
	line   int
	full   bool // there were more jobs or nodes than are read
}

func newReader() *reader { return &reader{shapes: map[Shape]int{}} }

// fault notes what is wrong with the line that is read.
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
	// Name is what faults call it.
	Name string
	From io.Reader
}

// counted says how many columns a line has.
func counted(n int) string {
	if n == 1 {
		return "1 column"
	}
	return fmt.Sprintf("%d columns", n)
}

// clip shortens what is quoted of a file.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

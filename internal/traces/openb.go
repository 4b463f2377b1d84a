package traces

import (
	"encoding/csv"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/berthd/berth/internal/cluster"
)

// Limits of a pod's request and of a machine.
const (
	maxGPUs  = 256
	maxMilli = int64(cluster.MaxCPU)
	maxMiB   = int64(cluster.MaxMemory >> 20)
	maxModel = 64 // models of a pod
)

// ReadOpenB reads a list of pods of the openb traces, and a list of nodes unless its From is nil. Each is a table of
// comma-separated values with a heading. A pod is a job of one task.
//
// Pods must have cpu_milli, memory_mib, num_gpu and gpu_milli; a pod for one GPU with a gpu_milli below 1000 requests
// that share of it. gpu_spec lists the suitable models, separated by "|". A pod arrives at its creation_time and runs
// from its scheduled_time, or else its creation_time, to its deletion_time; in a list without creation_time pods arrive
// a second apart, in their order, and do not end. The jobs are in the order of the list. Nodes must have cpu_milli,
// memory_mib and gpu.
func ReadOpenB(pods, nodes Input) (*Trace, error) {
	r := newReader()
	if nodes.From != nil {
		r.table(nodes, []string{"cpu_milli", "memory_mib", "gpu"}, r.node)
	}
	r.table(pods, []string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, r.pod)
	if len(r.trace.Jobs) == 0 && !r.faulty() {
		r.faultAt(0, "holds no pods")
	}
	return r.result()
}

func (r *reader) node(c *cells) {
	n := Node{
		Name: c.text("sn"), CPU: cluster.MilliCPU(c.number("cpu_milli", maxMilli)),
		Memory: cluster.Bytes(c.number("memory_mib", maxMiB)) << 20,
		GPUs:   int(c.number("gpu", maxGPUs)), Model: c.models("model"),
	}
	if len(r.trace.Nodes) == MaxNodes {
		r.tooMany("nodes", MaxNodes)
		return
	}
	r.trace.Nodes = append(r.trace.Nodes, n)
}

func (r *reader) pod(c *cells) {
	s := Shape{
		CPU:    cluster.MilliCPU(c.number("cpu_milli", maxMilli)),
		Memory: cluster.Bytes(c.number("memory_mib", maxMiB)) << 20,
		GPUs:   int(c.number("num_gpu", maxGPUs)), Models: c.models("gpu_spec"),
	}
	if share := c.number("gpu_milli", cluster.WholeDevice); s.GPUs == 1 && share < cluster.WholeDevice {
		s.Share = int(share)
	}
	j := Job{ID: c.text("name"), Tasks: 1, Arrived: time.Duration(len(r.trace.Jobs)) * time.Second}
	if c.has("creation_time") {
		created := c.number("creation_time", maxSeconds)
		j.Arrived = seconds(created)
		if c.text("deletion_time") != "" {
			begun := created
			if c.text("scheduled_time") != "" {
				begun = c.number("scheduled_time", maxSeconds)
			}
			j.Run = seconds(max(1, c.number("deletion_time", maxSeconds)-begun))
		}
	}
	j.Shape = r.shape(s)
	r.job(j)
}

// job takes a job, unless there are too many.
func (r *reader) job(j Job) {
	if len(r.trace.Jobs) == MaxJobs {
		r.tooMany("jobs", MaxJobs)
		return
	}
	r.trace.Jobs = append(r.trace.Jobs, j)
}

// tooMany says once that there are more than are read.
func (r *reader) tooMany(what string, most int) {
	if !r.full {
		r.full = true
		r.fault("there are more than %d %s, and no more are read", most, what)
	}
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// cells are a line of a table.
type cells struct {
	reader  *reader
	columns map[string]int
	cells   []string
}

func (c *cells) has(column string) bool { _, ok := c.columns[column]; return ok }

// text returns a cell, "" where the table has no such column.
func (c *cells) text(column string) string {
	i, ok := c.columns[column]
	if !ok {
		return ""
	}
	return c.cells[i]
}

// models returns a cell with the names of models, each once, between "|".
func (c *cells) models(column string) string {
	var names []string
	for name := range strings.SplitSeq(c.text(column), "|") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	wrong := func(name string) bool { return len(name) > cluster.MaxLabel || strings.ContainsFunc(name, unprintable) }
	if len(names) > maxModel || slices.ContainsFunc(names, wrong) {
		c.reader.fault("%s is %q, want at most %d names of models between |", column, clip(c.text(column)), maxModel)
		return ""
	}
	return strings.Join(names, "|")
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// number returns a cell that is a whole number, or a fraction that is taken down to one, from 0 to most.
func (c *cells) number(column string, most int64) int64 {
	text := c.text(column)
	v, err := strconv.ParseFloat(text, 64) // some lists have fractions
	if err != nil || math.IsNaN(v) || v < 0 || v > float64(most) {
		c.reader.fault("%s is %q, want a number from 0 to %d", column, clip(text), most)
		return 0
	}
	return int64(v)
}

// table reads a file of comma-separated values and calls each for the lines below its heading, which must name the
// columns.
func (r *reader) table(in Input, want []string, each func(*cells)) {
	r.file, r.line = in.Name, 0
	table := csv.NewReader(&lines{from: in.From})
	table.ReuseRecord = true
	heading, err := table.Read()
	switch {
	case errors.Is(err, io.EOF):
		r.fault("is empty, want a heading with the names of the columns")
		return
	case err != nil:
		r.broken(err)
		return
	}
	r.line = 1
	columns := map[string]int{}
	for i, name := range heading {
		columns[name] = i
	}
	missing := false
	for _, name := range want {
		if _, ok := columns[name]; !ok {
			r.fault("there is no column %s", name)
			missing = true
		}
	}
	if missing {
		return
	}
	for {
		record, err := table.Read()
		switch {
		case errors.Is(err, io.EOF):
			return
		case errors.Is(err, csv.ErrFieldCount):
			r.line, _ = table.FieldPos(0)
			r.fault("%s, and the heading has %d", counted(len(record)), len(heading))
		case err != nil:
			if !r.broken(err) {
				return
			}
		default:
			r.line, _ = table.FieldPos(0)
			each(&cells{reader: r, columns: columns, cells: record})
		}
	}
}

// broken notes that a file cannot be read, and reports whether it can be read on.
func (r *reader) broken(err error) bool {
	wrong, ok := errors.AsType[*csv.ParseError](err)
	if !ok {
		r.fault("%v", err)
		return false
	}
	r.faultAt(wrong.StartLine, "%v", wrong.Err)
	return !errors.Is(wrong.Err, csv.ErrQuote) // behind an open quote no line is what it seems
}

// errLong says that a line is longer than any line of a trace.
var errLong = errors.New("a line is too long: is it a trace?")

// lines refuses input with a line of excessive length, which the reader of tables would keep whole.
type lines struct {
	from io.Reader
	long int // of the line that is read
}

// Read is part of io.Reader.
func (l *lines) Read(b []byte) (int, error) {
	n, err := l.from.Read(b)
	for _, c := range b[:n] {
		if c == '\n' {
			l.long = 0
		} else if l.long++; l.long > maxLine {
			return 0, errLong
		}
	}
	return n, err
}

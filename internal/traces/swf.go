package traces

import (
	"bufio"
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Columns of the Standard Workload Format 2.2, from 0.
const (
	colID      = 0
	colArrived = 1
	colRun     = 3
	colUsed    = 4
	colProcs   = 7
	colLimit   = 8
	colMemory  = 9
	colUser    = 11
	columns    = 12 // how many a line must have for us
)

// maxProcs bounds the processors of a machine and of a job.
const maxProcs = 10_000_000

// ReadSWF reads a log in the Standard Workload Format 2.2. A job has one task for each requested (or else used)
// processor, with one CPU and the requested memory. The header must name the machine's processors. A job runs at least
// one second and at most as long as its user requested; without a request its limit is its run time. The jobs are in
// the order of their arrival.
func ReadSWF(in Input) (*Trace, error) {
	r := newReader()
	r.file = in.Name
	scan := bufio.NewScanner(in.From)
	scan.Buffer(nil, maxLine)
	for scan.Scan() {
		r.line++
		line := strings.TrimSpace(scan.Text())
		if head, ok := strings.CutPrefix(line, ";"); ok {
			r.header(head)
		} else if line != "" {
			r.logged(strings.Fields(line))
		}
	}
	if err := scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		r.faultAt(r.line+1, "%v", errLong)
	} else if err != nil {
		r.faultAt(r.line+1, "%v", err)
	}
	t := &r.trace
	if t.Procs == 0 && !r.faulty() {
		r.faultAt(0, "no MaxProcs in the header")
	}
	read := len(t.Jobs)
	t.Jobs = slices.DeleteFunc(t.Jobs, func(j Job) bool {
		return j.Tasks <= 0 || j.Run < 0 || int64(j.Tasks) > t.Procs
	})
	t.Skipped = read - len(t.Jobs)
	for i := range t.Jobs {
		j := &t.Jobs[i]
		j.Run = max(j.Run, seconds(1))
		if j.Limit <= 0 {
			j.Limit = j.Run
		}
		j.Run = min(j.Run, j.Limit)
	}
	slices.SortStableFunc(t.Jobs, func(a, b Job) int { return cmp.Compare(a.Arrived, b.Arrived) })
	return r.result()
}

// header reads the useful fields of a header line.
func (r *reader) header(line string) {
	procs, ok := strings.CutPrefix(strings.TrimSpace(line), "MaxProcs:")
	if !ok {
		return
	}
	n, err := strconv.ParseInt(strings.TrimSpace(procs), 10, 64)
	if err != nil || n < 1 || n > maxProcs {
		r.fault("MaxProcs is %q, want a number from 1 to %d", clip(strings.TrimSpace(procs)), maxProcs)
		return
	}
	r.trace.Procs = n
}

// logged reads one job. Unknown values are -1.
func (r *reader) logged(fields []string) {
	if len(fields) < columns {
		r.fault("%s, want at least %d", counted(len(fields)), columns)
		return
	}
	number := func(col int, name string, most int64) int64 {
		v, err := strconv.ParseFloat(fields[col], 64) // some logs have fractions
		if err != nil || math.IsNaN(v) || v < -1 || v > float64(most) {
			r.fault("column %d, %s, is %q, want a number from 0 to %d, or -1", col+1, name, clip(fields[col]), most)
			return 0
		}
		return int64(v)
	}
	j := Job{
		ID: fields[colID], User: fields[colUser], Arrived: seconds(number(colArrived, "the submit time", maxSeconds)),
		Run:   seconds(number(colRun, "the run time", maxSeconds)),
		Limit: seconds(number(colLimit, "the requested time", maxSeconds)),
	}
	used, procs := number(colUsed, "the processors", maxProcs), number(colProcs, "the requested processors", maxProcs)
	if procs <= 0 {
		procs = used
	}
	s := Shape{CPU: 1000}
	if kib := number(colMemory, "the requested memory", maxMiB<<10); kib > 0 {
		s.Memory = cluster.Bytes(kib) << 10
	}
	j.Tasks, j.Shape = int(procs), r.shape(s)
	r.job(j)
}

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// job is one of a trace. Times are seconds, as in the format.
type job struct {
	arrived int64
	run     int64 // how long it runs, 1 at least, cut at the limit
	limit   int64 // what its user asked for
	procs   int64
	user    string
}

// trace is a machine and the jobs that came to it, in the order of their arrival.
type trace struct {
	name  string
	procs int64
	jobs  []job
	// skipped counts the jobs that cannot be run: without processors or run time, or larger than the machine.
	skipped int
}

// Columns of the Standard Workload Format 2.2, from 0.
const (
	colArrived = 1
	colRun     = 3
	colUsed    = 4
	colProcs   = 7
	colLimit   = 8
	colUser    = 11
	columns    = 12 // how many a line must have for us
)

// readTrace reads a log in the Standard Workload Format 2.2. The number of processors is taken from its header.
func readTrace(name string, r io.Reader) (*trace, error) {
	t := &trace{name: name}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if head, ok := strings.CutPrefix(line, ";"); ok {
			if procs, ok := strings.CutPrefix(strings.TrimSpace(head), "MaxProcs:"); ok {
				v, err := strconv.ParseInt(strings.TrimSpace(procs), 10, 64)
				if err != nil {
					return nil, fmt.Errorf("line %d: MaxProcs: %w", n, err)
				}
				t.procs = v
			}
			continue
		}
		if line == "" {
			continue
		}
		if err := t.add(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if t.procs <= 0 {
		return nil, errors.New("no MaxProcs in the header")
	}
	read := len(t.jobs)
	t.jobs = slices.DeleteFunc(t.jobs, func(j job) bool { return j.procs <= 0 || j.run < 0 || j.procs > t.procs })
	t.skipped = read - len(t.jobs)
	for i := range t.jobs {
		j := &t.jobs[i]
		j.run = max(j.run, 1)
		if j.limit <= 0 {
			j.limit = j.run
		}
		j.run = min(j.run, j.limit)
	}
	slices.SortStableFunc(t.jobs, func(a, b job) int { return cmp.Compare(a.arrived, b.arrived) })
	return t, nil
}

// add takes one job as it stands.
func (t *trace) add(fields []string) error {
	if len(fields) < columns {
		return fmt.Errorf("%d columns, want at least %d", len(fields), columns)
	}
	number := func(col int) (int64, error) {
		v, err := strconv.ParseFloat(fields[col], 64) // some logs have fractions
		if err != nil {
			return 0, fmt.Errorf("column %d: %w", col+1, err)
		}
		return int64(v), nil
	}
	var v [columns]int64
	for _, col := range []int{colArrived, colRun, colUsed, colProcs, colLimit} {
		n, err := number(col)
		if err != nil {
			return err
		}
		v[col] = n
	}
	procs := v[colProcs]
	if procs <= 0 {
		procs = v[colUsed]
	}
	t.jobs = append(t.jobs, job{arrived: v[colArrived], run: v[colRun], limit: v[colLimit], procs: procs, user: fields[colUser]})
	return nil
}

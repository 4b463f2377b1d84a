package main

import (
	"fmt"
	"io"
	"time"

	"github.com/berthd/berth/internal/traces"
)

// job is one of a trace. Times are seconds, as in the format.
type job struct {
	arrived int64
	run     int64 // how long it runs, 1 at least, cut at the limit
	limit   int64 // what its user requested
	procs   int64
	user    string
}

// trace is a machine and the jobs that came to it, in the order of their arrival.
type trace struct {
	name  string
	procs int64
	jobs  []job
	// skipped counts the jobs that cannot be run.
	skipped int
}

// first returns the trace with the first n jobs only; all of them for 0.
func (t *trace) first(n int) *trace {
	if n <= 0 || n >= len(t.jobs) {
		return t
	}
	return &trace{name: fmt.Sprintf("%s, the first %d jobs", t.name, n), procs: t.procs, jobs: t.jobs[:n]}
}

// readTrace reads a log in the Standard Workload Format; faults name it as its file is called.
func readTrace(name, file string, r io.Reader) (*trace, error) {
	log, err := traces.ReadSWF(traces.Input{Name: file, From: r})
	if err != nil {
		return nil, err
	}
	t := &trace{name: name, procs: log.Procs, skipped: log.Skipped}
	for _, j := range log.Jobs {
		t.jobs = append(t.jobs, job{
			arrived: int64(j.Arrived / time.Second), run: int64(j.Run / time.Second),
			limit: int64(j.Limit / time.Second),
			procs: int64(j.Tasks), user: j.User,
		})
	}
	return t, nil
}

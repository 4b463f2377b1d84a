package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/pause"
)

// figures is the resource use of a server at one time.
type figures struct {
	cpu             float64 // seconds
	rss, anonymous  int     // bytes; the rest of rss are pages of files, most of the store's
	heap            float64 // bytes in use after the last collection
	goroutines      float64
	mallocs, bytes  float64 // allocations since the start
	commits, groups float64 // transactions of the store, and groups of writes in them
	writes, written float64 // records written or deleted, and their bytes
}

// figures reads them; collect has the garbage collected first.
func (s *server) figures(ctx context.Context, api *client.Client, o options, collect bool) (f figures, err error) {
	if collect {
		if err := s.collect(ctx, o.profile); err != nil {
			return f, err
		}
	}
	var text bytes.Buffer
	if err := api.Metrics(ctx, &text); err != nil {
		return f, err
	}
	values := map[string]float64{}
	lines := bufio.NewScanner(&text)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			name, _, _ = strings.Cut(name, "{")
			values[name] += n
		}
	}
	p := process(s.cmd.Process.Pid)
	return figures{
		cpu: p.cpu(), rss: p.rss(), anonymous: p.anonymous(),
		heap: values["go_memstats_heap_alloc_bytes"], goroutines: values["go_goroutines"],
		mallocs: values["go_memstats_mallocs_total"], bytes: values["go_memstats_alloc_bytes_total"],
		commits: values["berth_store_commit_duration_seconds_count"], groups: values["berth_store_groups_total"],
		writes: values["berth_store_writes_total"], written: values["berth_store_written_bytes_total"],
	}, lines.Err()
}

// collect makes the server collect its garbage. With a profile it also writes a profile of the memory in use.
func (s *server) collect(ctx context.Context, profile string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address+"/debug/pprof/heap?gc=1", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	to := io.Discard
	if profile != "" {
		f, err := os.Create(profile + ".heap")
		if err != nil {
			return err
		}
		defer f.Close()
		to = f
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// print writes the tables.
func (r *row) print(out io.Writer, o options, l *load) {
	n := float64(l.tasks)
	fmt.Fprintf(out, "| load | agents | submitted, s | placed/s | at agents/s | running/s | server CPU, s | "+
		"µs a task | agents' CPU, s |\n")
	fmt.Fprintf(out, "|---|---|---|---|---|---|---|---|---|\n")
	fmt.Fprintf(out, "| %s %d × %d | %d | %.2f | %.0f | %.0f | %.0f | %.2f | %.0f | %.2f |\n\n", l.name, o.jobs,
		o.tasks, o.agents,
		r.submitted.Seconds(), r.rate(l.tasks, r.placed), r.rate(l.tasks, r.assigned), r.rate(l.tasks, r.running),
		r.after.cpu-r.before.cpu, (r.after.cpu-r.before.cpu)/n*1e6, r.agents)
	fmt.Fprintf(out, "| until all run, a task: allocations | bytes allocated | transactions | groups | "+
		"records written | bytes written |\n|---|---|---|---|---|---|\n")
	fmt.Fprintf(out, "| %.0f | %.0f | %.4f | %.3f | %.2f | %.0f |\n", (r.after.mallocs-r.before.mallocs)/n,
		(r.after.bytes-r.before.bytes)/n,
		(r.after.commits-r.before.commits)/n, (r.after.groups-r.before.groups)/n, (r.after.writes-r.before.writes)/n,
		(r.after.written-r.before.written)/n)
	if o.rest == 0 {
		return
	}
	fmt.Fprintf(out, "\n| memory, MB | resident | of which not files | heap in use | goroutines "+
		"|\n|---|---|---|---|---|\n")
	for _, f := range []struct {
		when string
		figures
	}{
		{fmt.Sprintf("%d agents, no task", o.agents), r.idle},
		{"all tasks run", r.after},
		{fmt.Sprintf("%s later", o.rest), r.settled},
	} {
		fmt.Fprintf(out, "| %s | %d | %d | %.0f | %.0f |\n", f.when, f.rss>>20, f.anonymous>>20, f.heap/(1<<20),
			f.goroutines)
	}
	fmt.Fprintf(out, "| what the tasks cost | %d | %d | %.0f | |\n", (r.settled.rss-r.idle.rss)>>20,
		(r.settled.anonymous-r.idle.anonymous)>>20,
		(r.settled.heap-r.idle.heap)/(1<<20))
}

// profile begins to measure the server's CPU, if requested: profiled waits for the end.
func (s *server) profile(ctx context.Context, api *client.Client, o options) error {
	if o.profile == "" {
		return nil
	}
	f, err := os.Create(o.profile)
	if err != nil {
		return err
	}
	s.measured = make(chan error, 1)
	go func() {
		err := api.Profile(ctx, "profile", o.profileFor, f)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		s.measured <- err
	}()
	return s.rest(ctx, 100*time.Millisecond) // it has begun
}

// allocated writes what was allocated since the server began, where the CPU is measured.
func (s *server) allocated(ctx context.Context, api *client.Client, o options) error {
	if o.profile == "" {
		return nil
	}
	f, err := os.Create(o.profile + ".allocs")
	if err != nil {
		return err
	}
	err = api.Profile(ctx, "allocs", 0, f)
	return errors.Join(err, f.Close())
}

// profiled waits until the profile is written.
func (s *server) profiled() error {
	if s.measured == nil {
		return nil
	}
	return <-s.measured
}

// rest waits.
func (s *server) rest(ctx context.Context, d time.Duration) error {
	_ = pause.For(ctx, d)
	return ctx.Err()
}

package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// openAudit opens a log in a folder of the test.
func openAudit(t *testing.T, cfg Config) (*Log, string) {
	t.Helper()
	cfg.Path = filepath.Join(t.TempDir(), "audit", "audit.log")
	if err := os.Mkdir(filepath.Dir(cfg.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l, cfg.Path
}

// runAudit runs a log until the returned function is called.
func runAudit(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func linesOf(t *testing.T, path string) (all []Line) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var line Line
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatalf("%s: %q: %v", path, in.Text(), err)
		}
		all = append(all, line)
	}
	return all
}

func TestAuditFile(t *testing.T) {
	l, path := openAudit(t, Config{})
	stop := runAudit(t, l)
	defer stop()
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() { <-l.Put(Line{Request: fmt.Sprint(i)}) })
	}
	group.Wait()
	// All lines that were reported as durable are in the file.
	seen := map[string]int{}
	for _, line := range linesOf(t, path) {
		seen[line.Request]++
	}
	if len(seen) != 100 {
		t.Errorf("%d different lines, want 100", len(seen))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	stop()
	<-l.Put(Line{Request: "after the end"}) // the last requests end after the log's Run
	all := linesOf(t, path)
	if last := all[len(all)-1]; last.Request != "after the end" {
		t.Errorf("the last line is %+v", last)
	}
}

func TestAuditRotates(t *testing.T) {
	l, path := openAudit(t, Config{MaxBytes: 1000, Keep: 3})
	stop := runAudit(t, l)
	for i := range 200 {
		<-l.Put(Line{Request: fmt.Sprintf("%04d", i)})
	}
	stop()
	next := 199
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 4 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, name := range []string{path, path + ".1", path + ".2", path + ".3"} {
		info, err := os.Stat(name)
		if err != nil || info.Size() > 1000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		lines := linesOf(t, name)
		for _, line := range slices.Backward(lines) {
			if line.Request != fmt.Sprintf("%04d", next) {
				t.Fatalf("%s contains %s, want %04d", name, line.Request, next)
			}
			next--
		}
	}
}

// TestAuditAfterACrash opens a file that ends in half a line.
func TestAuditAfterACrash(t *testing.T) {
	l, path := openAudit(t, Config{})
	stop := runAudit(t, l)
	<-l.Put(Line{Request: "1"})
	stop()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"time":`)
	f.Close()
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	stop = runAudit(t, again)
	<-again.Put(Line{Request: "2"})
	stop()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 || lines[1] != `{"time":` || !strings.Contains(lines[2], `"request":"2"`) {
		t.Errorf("the file contains %q", lines)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestAuditOutOfSpace removes the folder, which fails like a full disk: lines wait, then some are lost and counted, and
// no request waits.
func TestAuditOutOfSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		l, path := openAudit(t, Config{Registry: reg})
		stop := runAudit(t, l)
		defer stop()
		<-l.Put(Line{Request: "before"})
		away := filepath.Dir(path) + "-away"
		if err := os.Rename(filepath.Dir(path), away); err != nil {
			t.Fatal(err)
		}
		_ = l.writer.file.Close() // the next write fails, and the file cannot be opened again
		began := time.Now()
		for i := range maxQueuedLines + 50 {
			<-l.Put(Line{Request: fmt.Sprint(i)})
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the lines were waited for, %v", took)
		}
		synctest.Wait()
		if err := l.Health(); err == nil || !strings.Contains(err.Error(), "50 are lost") {
			t.Errorf("health %v", err)
		}
		time.Sleep(10 * retryPause) // in-bubble: virtual time, in which it is tried in vain
		if err := os.Rename(away, filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * retryPause) // in-bubble: virtual time
		synctest.Wait()
		if err := l.Health(); err != nil {
			t.Errorf("after room came back: %v", err)
		}
		all := linesOf(t, path)
		if len(all) != maxQueuedLines+2 || all[0].Request != "before" || all[1].Request != "0" ||
			all[maxQueuedLines].Request != fmt.Sprint(maxQueuedLines-1) {
			t.Fatalf("%d lines, the second %+v", len(all), all[1])
		}
		if last := all[len(all)-1]; last.Lost != 50 || last.Time.IsZero() {
			t.Errorf("the gap is recorded as %+v", last)
		}
		if got := testutil.ToFloat64(l.lost); got != 50 {
			t.Errorf("the metric says %v, want 50", got)
		}
		<-l.Put(Line{Request: "after"})
	})
}

// TestAuditAssembles checks that lines of simultaneous requests are written together. In one of 61 rounds the Go
// scheduler gives the writer its turn before any of the others, so one round of ten is enough.
func TestAuditAssembles(t *testing.T) {
	l, err := Open(Config{Path: filepath.Join(t.TempDir(), "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // else others may be late by themselves
	const n = 32
	most := 0
	for range 10 {
		if most = max(most, putTogether(l, n)); most == n+1 {
			break
		}
	}
	if most != n+1 {
		t.Errorf("the first line went with %d others at most, want %d", most-1, n)
	}
	l.assemble() // there is nothing to wait for
}

// putTogether puts n lines and one at the same time, and returns how many are written together.
func putTogether(l *Log, n int) int {
	answered := make(chan struct{})
	var others sync.WaitGroup
	for range n {
		others.Go(func() {
			<-answered
			l.Put(Line{Method: http.MethodPost})
		})
	}
	runtime.Gosched() // all wait
	l.Put(Line{Method: http.MethodPost})
	close(answered)
	l.assemble()
	together := len(l.take().entries)
	others.Wait()
	l.take()
	return together
}

package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/testkit"
)

func TestAuditOfRequests(t *testing.T) {
	s := newSecure(t)
	s.web()
	made := s.token(api.TokenRequest{Role: submitter, Name: "ci"})
	s.want(200, "PUT", "/v1/nodes/n1", map[string]any{"name": "n1"})
	s.lines.take()
	who := AuditLine{Who: "token:" + made.ID, Name: "ci", Role: "submitter"}
	line := func(base AuditLine, method, path, operation, object string, status int) AuditLine {
		base.Method, base.Path, base.Operation, base.Object, base.Status = method, path, operation, object, status
		return base
	}
	const scale = "/v1/clusters/default/services/web/scale"
	cron := cronOf("backup", "@daily")
	cron["job"].(map[string]any)["steps"].([]any)[0].(map[string]any)["definition"] = "web@1"
	tests := []struct {
		name, token, method, path string
		body                      any
		want                      []AuditLine
	}{
		{
			"a write", made.Token, "POST", scale,
			map[string]int{"count": 7},
			[]AuditLine{line(who, "POST", scale, "scaleService", "default/web", 200)},
		},
		{"a read", made.Token, "GET", "/v1/services", nil, nil},
		{
			"an apply", made.Token, "POST", "/v1/apply",
			manifestsOf("TaskDefinition", definition("web", 2), "Service", service("web", "web@2", 3)),
			[]AuditLine{line(who, "POST", "/v1/apply", "apply", "TaskDefinition web@2, Service default/web", 200)},
		},
		{
			"an apply that changes nothing", made.Token, "POST", "/v1/apply",
			manifestsOf("Service", service("web", "web@2", 3)),
			[]AuditLine{line(who, "POST", "/v1/apply", "apply", "", 200)},
		},
		{
			"a write that is wrong", made.Token, "POST", scale,
			map[string]int{"count": -7},
			[]AuditLine{line(who, "POST", scale, "scaleService", "default/web", 422)},
		},
		{
			"a write that is refused", made.Token, "PUT", "/v1/nodes/n1",
			map[string]any{"name": "n1"},
			[]AuditLine{line(who, "PUT", "/v1/nodes/n1", "writeNode", "n1", 403)},
		},
		{
			"a pause", made.Token, "POST", "/v1/clusters/default/services/web/rollout/pause", nil,
			[]AuditLine{line(who, "POST", "/v1/clusters/default/services/web/rollout/pause", "pauseRollout",
				"default/web", 200)},
		},
		{
			"an undo without a way back", made.Token, "POST", "/v1/clusters/default/services/web/rollout/undo",
			map[string]int{"generation": 9},
			[]AuditLine{line(who, "POST", "/v1/clusters/default/services/web/rollout/undo", "undoRollout",
				"default/web", 409)},
		},
		{
			"a cron", made.Token, "PUT", "/v1/clusters/default/crons/backup", cron,
			[]AuditLine{line(who, "PUT", "/v1/clusters/default/crons/backup", "writeCron", "default/backup", 201)},
		},
		{
			"a cron that goes", made.Token, "DELETE", "/v1/clusters/default/crons/backup", nil,
			[]AuditLine{line(who, "DELETE", "/v1/clusters/default/crons/backup", "deleteCron", "default/backup", 204)},
		},
		{"why", made.Token, "GET", "/v1/clusters/default/services/web/explain", nil, nil},
		{
			"a read that is refused", made.Token, "GET", "/v1/tokens", nil,
			[]AuditLine{line(who, "GET", "/v1/tokens", "listTokens", "", 403)},
		},
		{
			"a read by nobody", "", "GET", "/v1/services", nil,
			[]AuditLine{line(AuditLine{}, "GET", "/v1/services", "listAllServices", "", 401)},
		},
		{"what is not there", "", "POST", "/v9", nil, []AuditLine{line(AuditLine{}, "POST", "/v9", "", "", 401)}},
		{
			"a command in a container", made.Token, "GET", "/v1/tasks/default.web.1.0/exec?command=secret", nil,
			[]AuditLine{line(who, "GET", "/v1/tasks/default.web.1.0/exec", "exec", "default.web.1.0", 426)},
		},
		{
			"the agents' part", "", "POST", transportPath, nil,
			[]AuditLine{line(AuditLine{}, "POST", transportPath, "", "", 401)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := s.ask(s.plain, test.token, test.method, test.path, test.body)
			lines := s.lines.take()
			if diff := cmp.Diff(test.want, lines, cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(AuditLine{}, "Time", "From", "Request", "Revision")); diff != "" {
				t.Errorf("the audit log (-want +got):\n%s", diff)
			}
			for _, l := range lines {
				if l.Request != got.header.Get("X-Request-Id") || !strings.HasPrefix(l.From, "127.0.0.1:") ||
					l.Time.IsZero() {
					t.Errorf("line %+v of request %s", l, got.header.Get("X-Request-Id"))
				}
				if want := got.header.Get("ETag"); want != "" && got.status < 300 && etag(l.Revision) != want {
					t.Errorf("revision %d, the ETag is %s", l.Revision, want)
				}
				if strings.Contains(fmt.Sprintf("%+v", l), "secret") {
					t.Errorf("the line shows what was sent: %+v", l)
				}
			}
		})
	}
}

// TestAuditDoesNotStopWrites has an audit log that takes nothing and says so.
func TestAuditDoesNotStopWrites(t *testing.T) {
	s := newSecure(t)
	s.lines.fail = errors.New("the audit log takes no lines")
	s.web()
	got := s.call("GET", "/readyz", nil)
	if !strings.Contains(string(got.body), `"audit":"the audit log takes no lines"`) ||
		!strings.Contains(string(got.body), `"certificate":"ok"`) {
		t.Errorf("readyz: %s", got.body)
	}
}

// openAudit opens a log in a folder of the test.
func openAudit(t *testing.T, cfg AuditConfig) (*AuditLog, string) {
	t.Helper()
	cfg.Path = filepath.Join(t.TempDir(), "audit", "audit.log")
	if err := os.Mkdir(filepath.Dir(cfg.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := OpenAudit(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l, cfg.Path
}

// runAudit runs a log until the returned function is called.
func runAudit(t *testing.T, l *AuditLog) (stop func()) {
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

func linesOf(t *testing.T, path string) (all []AuditLine) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var line AuditLine
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatalf("%s: %q: %v", path, in.Text(), err)
		}
		all = append(all, line)
	}
	return all
}

func TestAuditFile(t *testing.T) {
	l, path := openAudit(t, AuditConfig{})
	stop := runAudit(t, l)
	defer stop()
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() { <-l.Put(AuditLine{Request: fmt.Sprint(i)}) })
	}
	group.Wait()
	// What Put's channel said is durable stands in the file now.
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
	<-l.Put(AuditLine{Request: "after the end"}) // the last requests end after the log's Run
	all := linesOf(t, path)
	if last := all[len(all)-1]; last.Request != "after the end" {
		t.Errorf("the last line is %+v", last)
	}
}

func TestAuditRotates(t *testing.T) {
	l, path := openAudit(t, AuditConfig{MaxBytes: 1000, Keep: 3})
	stop := runAudit(t, l)
	for i := range 200 {
		<-l.Put(AuditLine{Request: fmt.Sprintf("%04d", i)})
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
				t.Fatalf("%s holds %s, want %04d", name, line.Request, next)
			}
			next--
		}
	}
}

// TestAuditAfterACrash finds half a line.
func TestAuditAfterACrash(t *testing.T) {
	l, path := openAudit(t, AuditConfig{})
	stop := runAudit(t, l)
	<-l.Put(AuditLine{Request: "1"})
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
	again, err := OpenAudit(AuditConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	stop = runAudit(t, again)
	<-again.Put(AuditLine{Request: "2"})
	stop()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 || lines[1] != `{"time":` || !strings.Contains(lines[2], `"request":"2"`) {
		t.Errorf("the file holds %q", lines)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestAuditOutOfSpace takes the folder away, as a full disk takes the room: lines wait, then are lost and counted, and
// nobody waits for them.
func TestAuditOutOfSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		l, path := openAudit(t, AuditConfig{Registry: reg})
		stop := runAudit(t, l)
		defer stop()
		<-l.Put(AuditLine{Request: "before"})
		away := filepath.Dir(path) + "-away"
		if err := os.Rename(filepath.Dir(path), away); err != nil {
			t.Fatal(err)
		}
		_ = l.writer.file.Close() // the next write fails, and the file cannot be opened again
		began := time.Now()
		for i := range auditQueue + 50 {
			<-l.Put(AuditLine{Request: fmt.Sprint(i)})
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the lines were waited for, %v", took)
		}
		synctest.Wait()
		if err := l.Health(); err == nil || !strings.Contains(err.Error(), "50 are lost") {
			t.Errorf("health %v", err)
		}
		time.Sleep(10 * auditRetry) // in-bubble: virtual time, in which it is tried in vain
		if err := os.Rename(away, filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * auditRetry) // in-bubble: virtual time
		synctest.Wait()
		if err := l.Health(); err != nil {
			t.Errorf("after room came back: %v", err)
		}
		all := linesOf(t, path)
		if len(all) != auditQueue+2 || all[0].Request != "before" || all[1].Request != "0" ||
			all[auditQueue].Request != fmt.Sprint(auditQueue-1) {
			t.Fatalf("%d lines, the second %+v", len(all), all[1])
		}
		if last := all[len(all)-1]; last.Lost != 50 || last.Time.IsZero() {
			t.Errorf("the gap is told as %+v", last)
		}
		if got := testutil.ToFloat64(l.lost); got != 50 {
			t.Errorf("the metric says %v, want 50", got)
		}
		<-l.Put(AuditLine{Request: "after"})
	})
}

// slowAudit never says that a line is durable.
type slowAudit struct{ memoryAudit }

func (s *slowAudit) Put(line AuditLine) <-chan struct{} {
	s.memoryAudit.Put(line)
	return make(chan struct{})
}

func TestSlowAuditHoldsAnswersUpForALittle(t *testing.T) {
	slow := &slowAudit{}
	s := newSecure(t, func(c *Config) { c.Audit = slow })
	began, watch := time.Now(), testkit.NewStopwatch()
	s.web()
	if took := time.Since(began); took < auditPatience/2 || watch.Elapsed() > 20*auditPatience {
		t.Errorf("the answer took %v, want about %v", took, auditPatience)
	}
}

package apiserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

func TestAuditOfRequests(t *testing.T) {
	s := newSecure(t)
	s.web()
	made := s.token(api.TokenRequest{Role: cluster.RoleSubmitter, Name: "ci"})
	s.want(200, "PUT", "/v1/nodes/n1", map[string]any{"name": "n1"})
	s.lines.take()
	who := audit.Line{Who: "token:" + made.ID, Name: "ci", Role: "submitter"}
	line := func(base audit.Line, method, path, operation, object string, status int) audit.Line {
		base.Method, base.Path, base.Operation, base.Object, base.Status = method, path, operation, object, status
		return base
	}
	const scale = "/v1/clusters/default/services/web/scale"
	cron := cronOf("backup", "@daily")
	cron["job"].(map[string]any)["steps"].([]any)[0].(map[string]any)["definition"] = "web@1"
	tests := []struct {
		name, token, method, path string
		body                      any
		want                      []audit.Line
	}{
		{
			"a write", made.Token, "POST", scale,
			map[string]int{"count": 7},
			[]audit.Line{line(who, "POST", scale, "scaleService", "default/web", 200)},
		},
		{"a read", made.Token, "GET", "/v1/services", nil, nil},
		{
			"an apply", made.Token, "POST", "/v1/apply",
			manifestsOf("TaskDefinition", definition("web", 2), "Service", service("web", "web@2", 3)),
			[]audit.Line{line(who, "POST", "/v1/apply", "apply", "TaskDefinition web@2, Service default/web", 200)},
		},
		{
			"an apply that changes nothing", made.Token, "POST", "/v1/apply",
			manifestsOf("Service", service("web", "web@2", 3)),
			[]audit.Line{line(who, "POST", "/v1/apply", "apply", "", 200)},
		},
		{
			"a write that is wrong", made.Token, "POST", scale,
			map[string]int{"count": -7},
			[]audit.Line{line(who, "POST", scale, "scaleService", "default/web", 422)},
		},
		{
			"a write that is refused", made.Token, "PUT", "/v1/nodes/n1",
			map[string]any{"name": "n1"},
			[]audit.Line{line(who, "PUT", "/v1/nodes/n1", "writeNode", "n1", 403)},
		},
		{
			"a pause", made.Token, "POST", "/v1/clusters/default/services/web/rollout/pause", nil,
			[]audit.Line{line(who, "POST", "/v1/clusters/default/services/web/rollout/pause", "pauseRollout",
				"default/web", 200)},
		},
		{
			"an undo without a way back", made.Token, "POST", "/v1/clusters/default/services/web/rollout/undo",
			map[string]int{"generation": 9},
			[]audit.Line{line(who, "POST", "/v1/clusters/default/services/web/rollout/undo", "undoRollout",
				"default/web", 409)},
		},
		{
			"a cron", made.Token, "PUT", "/v1/clusters/default/crons/backup", cron,
			[]audit.Line{line(who, "PUT", "/v1/clusters/default/crons/backup", "writeCron", "default/backup", 201)},
		},
		{
			"a cron that goes", made.Token, "DELETE", "/v1/clusters/default/crons/backup", nil,
			[]audit.Line{line(who, "DELETE", "/v1/clusters/default/crons/backup", "deleteCron", "default/backup", 204)},
		},
		{"why", made.Token, "GET", "/v1/clusters/default/services/web/explain", nil, nil},
		{
			"a read that is refused", made.Token, "GET", "/v1/tokens", nil,
			[]audit.Line{line(who, "GET", "/v1/tokens", "listTokens", "", 403)},
		},
		{
			"a read without a token", "", "GET", "/v1/services", nil,
			[]audit.Line{line(audit.Line{}, "GET", "/v1/services", "listAllServices", "", 401)},
		},
		{"what is not there", "", "POST", "/v9", nil, []audit.Line{line(audit.Line{}, "POST", "/v9", "", "", 401)}},
		{
			"a command in a container", made.Token, "GET", "/v1/tasks/default.web.1.0/exec?command=secret", nil,
			[]audit.Line{line(who, "GET", "/v1/tasks/default.web.1.0/exec", "exec", "default.web.1.0", 426)},
		},
		{
			"the agents' part", "", "POST", transportPath, nil,
			[]audit.Line{line(audit.Line{}, "POST", transportPath, "", "", 401)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := s.ask(s.plain, test.token, test.method, test.path, test.body)
			lines := s.lines.take()
			if diff := cmp.Diff(test.want, lines, cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(audit.Line{}, "Time", "From", "Request", "Revision")); diff != "" {
				t.Errorf("the audit log (-want +got):\n%s", diff)
			}
			for _, l := range lines {
				if l.Request != got.header.Get("X-Request-Id") || !strings.HasPrefix(l.From, "127.0.0.1:") ||
					l.Time.IsZero() {
					t.Errorf("line %+v of request %s", l, got.header.Get("X-Request-Id"))
				}
				if want := got.header.Get("ETag"); want != "" && got.status < 300 && respond.ETag(l.Revision) != want {
					t.Errorf("revision %d, the ETag is %s", l.Revision, want)
				}
				if strings.Contains(fmt.Sprintf("%+v", l), "secret") {
					t.Errorf("the line shows what was sent: %+v", l)
				}
			}
		})
	}
}

// TestAuditDoesNotStopWrites writes while the audit log fails.
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

// slowAudit never reports a line as durable.
type slowAudit struct{ memoryAudit }

func (s *slowAudit) Put(line audit.Line) <-chan struct{} {
	s.memoryAudit.Put(line)
	return make(chan struct{})
}

func TestSlowAuditDelaysAnswersBriefly(t *testing.T) {
	slow := &slowAudit{}
	s := newSecure(t, func(c *Config) { c.Audit = slow })
	began, watch := time.Now(), testkit.NewStopwatch()
	s.web()
	if took := time.Since(began); took < access.MaxAuditDelay/2 || watch.Elapsed() > 20*access.MaxAuditDelay {
		t.Errorf("the answer took %v, want about %v", took, access.MaxAuditDelay)
	}
}

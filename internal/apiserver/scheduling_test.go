package apiserver

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/schedulingapi"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/scheduling"
)

// fakePlane is the leader of each domain. It accepts all proposals of the newest claim, except for one task.
type fakePlane struct {
	mailbox *scheduling.Mailbox
	feed    *scheduling.Feed
	fenced  func(*scheduling.Request) error
	refuses cluster.TaskID // the task whose commands it refuses
}

func (f *fakePlane) Propose(ctx context.Context, r *scheduling.Request) (cluster.ProposalAnswer, error) {
	return f.mailbox.Submit(ctx, r)
}

func (f *fakePlane) SchedulingState() *scheduling.Feed { return f.feed }

// run answers proposals until the context ends.
func (f *fakePlane) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			f.mailbox.End()
			return
		case <-f.mailbox.Wake():
		}
		for _, r := range f.mailbox.Take() {
			if err := f.fenced(r); err != nil {
				r.Answer(cluster.ProposalAnswer{}, err)
				continue
			}
			var a cluster.ProposalAnswer
			for _, c := range r.Proposal.Commands {
				a.Results = append(a.Results, cluster.ProposalResult{Task: c.Task, Accepted: c.Task != f.refuses})
			}
			r.Answer(a, nil)
		}
	}
}

// newFakePlane returns a plane and the option that has a server use it.
func newFakePlane(t *testing.T) (*fakePlane, func(*Config)) {
	began := time.Now()
	f := &fakePlane{mailbox: scheduling.NewMailbox(), fenced: func(*scheduling.Request) error { return nil }}
	f.feed = scheduling.NewFeed(7, func() time.Duration { return time.Since(began) + time.Hour }, func() {})
	f.mailbox.Start(f.feed)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return f, func(c *Config) {
		c.Scheduling.Leader = &schedulingapi.Leader{PlaneOf: func(string) schedulingapi.Plane { return f }}
	}
}

const external = `{"scheduler": {"type": "external", "name": "tray", "token": "robot", "take_over": "10s"}}`

// TestClaimsOfDomains claims a domain, and checks what is refused.
func TestClaimsOfDomains(t *testing.T) {
	_, option := newFakePlane(t)
	w := newWorld(t, option)
	w.want(201, "PUT", "/v1/domains/ci", external)
	if p := w.refused(409, "POST", "/v1/domains/default/claim", `{"name": "tray"}`); !strings.Contains(p.Detail,
		"placed by the scheduler builtin") {
		t.Errorf("a claim of a domain of the built-in scheduler: %s", p.Detail)
	}
	w.refused(409, "POST", "/v1/domains/ci/claim", `{"name": "other"}`)
	w.refused(404, "POST", "/v1/domains/north/claim", `{"name": "tray"}`)
	w.refused(422, "POST", "/v1/domains/ci/claim", `{"name": "Tray", "instance": "a\nb"}`)
	claim := func(body string) uint64 {
		v := read[api.DomainView](t, w.want(200, "POST", "/v1/domains/ci/claim", body))
		if v.Claim == nil || v.Claim.Holder != "tray" || v.Revision == 0 {
			t.Errorf("the claimed domain is %+v", v)
		}
		return v.Revision
	}
	first := claim(`{"name": "tray", "instance": "a"}`)
	if again := claim(`{"name": "tray", "instance": "a"}`); again != first {
		t.Errorf("the same instance claims again: revision %d, then %d", first, again)
	}
	second := claim(`{"name": "tray", "instance": "b"}`)
	if again := claim(`{"name": "tray"}`); first == second || again == second {
		t.Errorf("the claims have the revisions %d, %d, %d", first, second, again)
	}
	// A write of the specification keeps the claim; another scheduler ends it.
	present := func() *cluster.SchedulerClaim {
		return read[api.DomainView](t, w.want(200, "GET", "/v1/domains/ci", nil)).Claim
	}
	changed := strings.Replace(external, `{"sch`, `{"pools": ["x"], "claim": {"holder": "me"}, "sch`, 1)
	w.want(200, "PUT", "/v1/domains/ci", changed)
	if c := present(); c == nil || c.Holder != "tray" {
		t.Errorf("the changed domain has the claim %+v", c)
	}
	w.want(200, "PUT", "/v1/domains/ci", strings.Replace(external, "tray", "tram", 1))
	if c := present(); c != nil {
		t.Errorf("the domain of another scheduler has the claim %+v", c)
	}
	w.refused(422, "PUT", "/v1/domains/ci", `{"scheduler": {"type": "external", "name": "builtin", "take_over": "1s"}}`)
	w.refused(422, "PUT", "/v1/domains/ci", `{"scheduler": {"type": "builtin", "name": "tray"}}`)
	w.refused(422, "PUT", "/v1/domains/ci", `{"scheduler": {"type": "cron"}}`)
}

// TestTakenOverDomainIsAnAlarm shows domains that Berth's own scheduler took over in the status of the system.
func TestTakenOverDomainIsAnAlarm(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"default", "ci"} {
		w.want(201, "PUT", "/v1/domains/"+name, external)
	}
	e, _ := w.tables.Snapshot().Domain("ci")
	for name, number := range map[string]uint64{"default": 1, "ci": e.Value.Number} {
		w.put(map[string]any{"domain/" + name: &cluster.Domain{
			Name: name, Number: number, Scheduler: e.Value.Scheduler,
			Claim: &cluster.SchedulerClaim{Holder: cluster.BuiltinScheduler, Reason: "it was silent for 10s"},
		}})
	}
	alarms := strings.Join(read[api.Status](t, w.want(200, "GET", "/v1/status", nil)).Alarms, "\n")
	for _, name := range []string{"default", "ci"} {
		if !strings.Contains(alarms, "the scheduler tray of the domain "+name+" is gone") {
			t.Errorf("the alarms lack the domain %s:\n%s", name, alarms)
		}
	}
}

// TestProposals sends proposals, and checks the answers and refusals.
func TestProposals(t *testing.T) {
	f, option := newFakePlane(t)
	w := newWorld(t, option)
	w.want(201, "PUT", "/v1/domains/ci", external)
	const body = `{"domain_revision": 5, "base": "7-1", "commands": [
		{"action": "place", "task": "c.web.1.0", "node": "n1"},
		{"action": "wait", "task": "c.web.1.1", "reason": "later"}]}`
	got := read[api.ProposalAnswer](t, w.want(200, "POST", "/v1/domains/ci/proposals", body))
	if got.Accepted != 2 || got.Refused != 0 || len(got.Results) != 2 {
		t.Errorf("the answer is %+v", got)
	}
	got = read[api.ProposalAnswer](t, w.want(200, "POST", "/v1/domains/ci/proposals?dry_run=true", body))
	if !got.DryRun {
		t.Errorf("the answer is %+v", got)
	}
	p := w.refused(422, "POST", "/v1/domains/ci/proposals", `{"domain_revision": 5, "commands": [
		{"action": "place", "task": "c", "uuid": "x"}, {"action": "go", "task": "c.web.1.0"},
		{"action": "wait", "task": "c.web.1.0", "node": "n1"},
		{"action": "evict", "task": "c.web.1.2", "attempt": 2}]}`)
	var paths []string
	for _, fault := range p.Faults {
		paths = append(paths, fault.Path)
	}
	want := []string{
		"base", "commands[0].task", "commands[0].node", "commands[0].uuid", "commands[1].action", "commands[2].task",
		"commands[2].node", "commands[2].reason", "commands[3].uuid", "commands[3].attempt",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	f.fenced = func(*scheduling.Request) error {
		return &scheduling.FencedError{
			Domain: "ci", Holder: "builtin", Revision: 9,
			Claim: &cluster.SchedulerClaim{Holder: "builtin", Reason: "it was silent"},
		}
	}
	if p := w.refused(409, "POST", "/v1/domains/ci/proposals", body); !strings.Contains(p.Detail,
		"placed by the scheduler builtin") || !strings.Contains(p.Detail, "it was silent") {
		t.Errorf("a fenced proposal: %s", p.Detail)
	}
	f.fenced = func(*scheduling.Request) error { return fmt.Errorf("%w (%w)", scheduling.ErrUnknown, io.EOF) }
	w.refused(503, "POST", "/v1/domains/ci/proposals", body)
	f.mailbox.End()
	w.refused(503, "POST", "/v1/domains/ci/proposals", body)
	w.refused(404, "POST", "/v1/domains/north/proposals", body)
}

// TestSchedulingState reads the state of a domain: whole, by what changed, compressed, and as it changes.
func TestSchedulingState(t *testing.T) {
	f, option := newFakePlane(t)
	w := newWorld(t, option)
	w.want(201, "PUT", "/v1/domains/ci", external)
	f.feed.Publish(map[string][]byte{
		"node/n1": []byte(`{"node":{"name":"n1"}}`), "domain": []byte(`{"domain":{"name":"ci"}}`),
	}, nil)
	lines := func(query string, headers ...string) []string {
		t.Helper()
		r := w.want(200, "GET", "/v1/domains/ci/state"+query, nil, headers...)
		return strings.Split(strings.TrimSpace(string(r.body)), "\n")
	}
	whole := []string{`{"reset":true}`, `{"domain":{"name":"ci"}}`, `{"node":{"name":"n1"}}`, `{"revision":"7-1"}`}
	if diff := cmp.Diff(whole, lines("")); diff != "" {
		t.Errorf("the state (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`{"revision":"7-1"}`}, lines("?since=7-1")); diff != "" {
		t.Errorf("nothing changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(whole, lines("?since=6-1")); diff != "" {
		t.Errorf("since another leader (-want +got):\n%s", diff)
	}
	r := w.open("/v1/domains/ci/state?follow=true")
	defer r.Body.Close()
	dec := json.NewDecoder(r.Body)
	next := func() (l api.SchedulingLine) {
		t.Helper()
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	for range whole {
		next()
	}
	f.feed.Publish(nil, map[string][]byte{"node/n1": []byte(`{"removed_node":"n1"}`)})
	if got := next(); got.RemovedNode != "n1" {
		t.Errorf("the change is %+v", got)
	}
	if got := next(); got.Revision != "7-2" {
		t.Errorf("the revision is %+v", got)
	}
	f.feed.End()
	if err := dec.Decode(&api.SchedulingLine{}); err == nil {
		t.Log("a last revision")
		if err := dec.Decode(&api.SchedulingLine{}); err == nil {
			t.Error("the state goes on after the term of the leader")
		}
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/v1/domains/ci/state", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	plain, err := gzip.NewReader(res.Body)
	if err != nil || res.Header.Get("Content-Encoding") != "gzip" {
		t.Fatal(err, res.Header)
	}
	text, err := io.ReadAll(plain)
	if err != nil || !strings.HasPrefix(string(text), `{"reset":true}`) {
		t.Errorf("compressed: %q, %v", text, err)
	}
}

// named returns a new access token of a name.
func (s *secure) named(name string, role cluster.Role, clusters ...string) string {
	s.t.Helper()
	return s.token(api.TokenRequest{Name: name, Role: role, Clusters: clusters}).Token
}

// TestWhoMayPropose tries the operations of schedulers with tokens. Viewers read the state of the whole domain. Only
// operators and the token that the domain names claim it and propose. A token of one cluster may do nothing.
func TestWhoMayPropose(t *testing.T) {
	f, option := newFakePlane(t)
	f.feed.Publish(map[string][]byte{"domain": []byte(`{}`)}, nil)
	s := newSecure(t, option)
	s.want(201, "PUT", "/v1/domains/ci", external)
	s.want(201, "PUT", "/v1/domains/own", `{}`)
	s.want(200, "POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "red"}))
	robot := s.named("robot", cluster.RoleViewer)
	const claim, proposal = `{"name": "tray"}`, `{"domain_revision": 1}`
	for _, test := range []struct {
		who, token             string
		state, claim, proposal int
		own                    int // a proposal in the domain own
	}{
		{"a viewer", s.access(cluster.RoleViewer), 200, 403, 403, 403},
		{"a submitter", s.access(cluster.RoleSubmitter), 200, 403, 403, 403},
		{"the named token", robot, 200, 200, 200, 403},
		{"an operator", s.access(cluster.RoleOperator), 200, 200, 200, 200},
		{"a token of one cluster", s.access(cluster.RoleSubmitter, "red"), 403, 403, 403, 403},
		{"a token of one cluster with the name", s.named("robot", cluster.RoleSubmitter, "red"), 403, 403, 403, 403},
	} {
		for _, x := range []struct {
			method, path, body string
			want               int
		}{
			{"GET", "/v1/domains/ci/state", "", test.state},
			{"POST", "/v1/domains/ci/claim", claim, test.claim},
			{"POST", "/v1/domains/ci/proposals", proposal, test.proposal},
			{"POST", "/v1/domains/ci/proposals?dry_run=true", proposal, test.proposal},
			{"POST", "/v1/domains/own/proposals?dry_run=true", proposal, test.own},
		} {
			var body any
			if x.body != "" {
				body = x.body
			}
			if got := s.ask(s.plain, test.token, x.method, x.path, body); got.status != x.want {
				t.Errorf("%s: %s %s: status %d, want %d: %s", test.who, x.method, x.path, got.status, x.want, got.body)
			}
		}
	}
}

// TestAuditOfProposals sends proposals. Each one that may change something is one line of the audit log, with its
// sender, the domain, and the numbers of commands.
func TestAuditOfProposals(t *testing.T) {
	f, option := newFakePlane(t)
	f.refuses = "c.web.1.1"
	s := newSecure(t, option)
	s.want(201, "PUT", "/v1/domains/ci", external)
	made := s.token(api.TokenRequest{Name: "robot", Role: cluster.RoleViewer})
	s.lines.take()
	const path, body = "/v1/domains/ci/proposals", `{"domain_revision": 5, "base": "7-1", "commands": [
		{"action": "place", "task": "c.web.1.0", "node": "n1"}, {"action": "place", "task": "c.web.1.1", "node": "n1"},
		{"action": "wait", "task": "c.web.1.2", "reason": "later"}]}`
	propose := func(query, body string) { s.ask(s.plain, made.Token, "POST", path+query, body) }
	propose("?dry_run=true", body)
	propose("", `{"domain_revision": 5}`) // a sign of life
	propose("", body)
	f.fenced = func(*scheduling.Request) error { return &scheduling.FencedError{Domain: "ci", Holder: "builtin"} }
	propose("", body)
	line := audit.Line{
		Who: "token:" + made.ID, Name: "robot", Role: "viewer", Method: "POST", Path: path, Operation: "propose",
		Object: "ci", Status: 200, Accepted: 2, Refused: 1,
	}
	fenced := line
	fenced.Status, fenced.Accepted, fenced.Refused = 409, 0, 0
	if diff := cmp.Diff([]audit.Line{line, fenced}, s.lines.take(),
		cmpopts.IgnoreFields(audit.Line{}, "Time", "From", "Request")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

package apiserver

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// Sentences as the scheduler and the control plane write them, about tasks and services of the cluster blue.
const (
	waitingSentence = "1 node: room is kept for blue.soon.1.work.0, starts on n1 once blue.soon.1.work.0 has ended; " +
		"1 node: memory short by 200 MiB, some of it kept for the services blue/api, blue/web and others, which " +
		"keep their room"
	preemptedSentence = "preempted by blue.soon.1.work.0 on node n1: cluster blue reclaims its quota, and this task " +
		"is beyond the quota of its own cluster"
	keptSentence = "port 8080 kept for the service blue/web, which keeps its room"
)

func TestHide(t *testing.T) {
	red := &access.Caller{Clusters: []string{"red"}}
	for text, want := range map[string]string{
		waitingSentence: "1 node: room is kept for a task, starts on n1 once a task has ended; 1 node: memory short " +
			"by 200 MiB, some of it kept for services of other clusters and others, which keep their room",
		preemptedSentence: "preempted by a task on node n1: another cluster reclaims its quota, and this task is " +
			"beyond the quota of its own cluster",
		keptSentence: "port 8080 kept for a service of another cluster, which keeps its room",
		"kept for the services blue/a, red/b and others, which keep their room": "kept for the services one of " +
			"another cluster, red/b and others, which keep their room",
		"the jobs red/a and blue/b":                        "the jobs red/a and one of another cluster",
		"in use by cron blue/nightly, and task blue.a.1.0": "in use by a cron of another cluster, and task a task",
		// What names nothing of another cluster stays.
		"kept for the service red/web, behind red.sum.1.add.0": "kept for the service red/web, behind red.sum.1.add.0",
		"pull of library/nginx:1.25 from 10.0.0.1 failed: see https://blue.example.org/job/blue/1": "pull of " +
			"library/nginx:1.25 from 10.0.0.1 failed: see https://blue.example.org/job/blue/1",
		"waits for service/web, the cluster is full": "waits for service/web, the cluster is full",
		"": "",
	} {
		if diff := cmp.Diff(want, red.Hide(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		for _, all := range []*access.Caller{nil, {}} {
			if got := all.Hide(text); got != text {
				t.Errorf("without a limit %q is %q", text, got)
			}
		}
	}
}

// namesOfOthers returns a server whose cluster red has objects with sentences about tasks and services of the cluster
// blue, and a submitter's token for red.
func namesOfOthers(t *testing.T) (s *secure, red string) {
	s, red, _ = limits(t)
	s.want(201, "PUT", "/v1/definitions/batch/1", definition("batch", 1))
	s.want(201, "PUT", "/v1/clusters/red/jobs/late", job("late", "batch@1", 3))
	s.want(201, "PUT", "/v1/clusters/red/jobs/victim", job("victim", "batch@1", 1))
	s.want(201, "PUT", "/v1/clusters/red/crons/nightly", nightly("nightly", job("x", "batch@1", 1)["steps"]))
	s.want(201, "PUT", "/v1/clusters/red/services/scaled", scaledService())
	s.want(201, "PUT", "/v1/clusters/blue/jobs/soon", job("soon", "batch@1", 1))
	refusal := cluster.Refusal{Code: cluster.ReasonShortMemory, Detail: keptSentence}
	for _, task := range []cluster.TaskID{
		"red.late.1.work.0", "red.late.1.work.1", "red.late.1.work.2", "red.web.1.1", "red.scaled.1.0",
		"red.scaled.1.1",
	} {
		s.why.all[task] = cluster.Waiting{
			Task: task, Sentence: waitingSentence, Refusals: []cluster.RefusalCount{{Refusal: refusal}},
			Promise: &cluster.Promise{Node: "n1", At: time.Now().Add(time.Hour), After: "blue.soon.1.work.0"},
		}
	}
	batch := cluster.Ref{Name: "batch", Version: 1}
	victim := desired("red.victim.1.work.0", 1, cluster.KindJob, batch)
	victim.Stop = &cluster.Stop{
		Class: cluster.StopMandatory, Reason: cluster.ReasonPreempted, Message: preemptedSentence,
		For: "blue.soon.1.work.0", ForAttempt: 1,
	}
	web := desired("red.web.1.0", 2, cluster.KindService, cluster.Ref{Name: "red-web", Version: 1})
	ended := desired("red.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "red-web", Version: 1})
	version := cluster.Version{
		Generation: 1, Definition: web.Definition, State: cluster.RolloutFailed, Started: noon,
		Message: preemptedSentence,
	}
	s.put(map[string]any{
		"node/n1":                      cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"},
		"status/n1":                    cluster.NodeStatus{Name: "n1"},
		"state/n1/red.victim.1.work.0": victim,
		"state/n1/red.web.1.0":         web,
		"attempt/red.web.1.0/1":        outcome(ended, cluster.StateFailed, preemptedSentence),
		"rollout/red/web":              cluster.Rollout{Version: version, History: []cluster.Version{version}},
		"scale/red/scaled":             cluster.Scale{Count: 2, From: 1, At: noon, Message: keptSentence},
		"fired/red/nightly":            cluster.CronStatus{Last: noon, Message: keptSentence},
		"endpoint/red/near":            cluster.Endpoint{Cluster: "red", Name: "near", Service: "web", Port: "http"},
	})
	s.put(map[string]any{"event/0190": cluster.EventBatch{ID: "0190", At: time.Now(), Events: []cluster.Event{{
		Type: "task.preempted", Cluster: "red", Task: "red.victim.1.work.0", Message: preemptedSentence,
	}, {
		Type: "task.preempted", Cluster: "blue", Task: "blue.soon.1.work.0", Message: "preempted by red.late.1.work.0",
	}}}})
	return s, red
}

// scaledService is a service with scaling, without a name.
func scaledService() map[string]any {
	schedules := []any{map[string]any{"cron": "0 3 * * *", "min": 2}}
	return map[string]any{
		"definition": "red-web@1", "scaling": map[string]any{"min": 1, "max": 2, "schedules": schedules},
	}
}

// objectsOfRed fills the addresses of routes with objects of the cluster red. Each route is asked for all of them.
var objectsOfRed = map[string][]string{
	"{cluster}": {"red"}, "{service}": {"web", "scaled"}, "{job}": {"late", "victim"}, "{cron}": {"nightly"},
	"{task}":       {"red.late.1.work.0", "red.victim.1.work.0", "red.web.1.0", "red.web.1.1", "red.scaled.1.0"},
	"{definition}": {"batch", "red-web"}, "{version}": {"1"}, "{node}": {"n1"}, "{endpoint}": {"near"},
	"{secret}": {"none"}, "{check}": {"none"},
}

// addressesOf returns the addresses of a route with objects of the cluster red.
func addressesOf(t *testing.T, rt *route.Route) []string {
	t.Helper()
	all := []string{rt.Path}
	for _, name := range rt.Names() {
		name = "{" + name + "}"
		objects, known := objectsOfRed[name]
		if !known {
			t.Fatalf("%s names %s, for which objectsOfRed has no object", rt.Name, name)
		}
		var filled []string
		for _, path := range all {
			for _, o := range objects {
				filled = append(filled, strings.ReplaceAll(path, name, o))
			}
		}
		all = filled
	}
	return all
}

// limitedRoutes returns the routes that a token with a limit may use: those that read, and those that write. Those that
// delete are last.
func limitedRoutes(s *secure) (reads, writes []*route.Route) {
	var deletes []*route.Route
	for i := range s.server.routes {
		rt := &s.server.routes[i]
		inCluster := strings.Contains(rt.Path, "{cluster}") || strings.Contains(rt.Path, "{task}")
		switch rank := access.Rank(rt.Role); {
		case rt.Open || rank == 0 || rank > access.Rank(cluster.RoleSubmitter) || !rt.Shared && !inCluster:
		case rt.Method == http.MethodGet:
			reads = append(reads, rt)
		case rt.Method == http.MethodDelete:
			deletes = append(deletes, rt)
		default:
			writes = append(writes, rt)
		}
	}
	return reads, append(writes, deletes...)
}

// checkNames fails if the answer of a route names another cluster than red.
func checkNames(t *testing.T, rt *route.Route, path, answer string) {
	t.Helper()
	answer = strings.ReplaceAll(answer, "blue/green", "") // in the schema of manifests
	if at := strings.Index(answer, "blue"); at >= 0 {
		t.Errorf("%s, %s %s: …%s…", rt.Name, rt.Method, path, answer[max(0, at-150):min(len(answer), at+80)])
	}
}

// TestNoRouteNamesOtherClusters asks every route with which a token with a limit may read, also for a stream and a
// waiting list, in a world in which all sentences name a task or a service of another cluster.
func TestNoRouteNamesOtherClusters(t *testing.T) {
	s, red := namesOfOthers(t)
	all := s.access(cluster.RoleSubmitter)
	reads, _ := limitedRoutes(s)
	named := map[string]bool{} // the routes whose answers name another cluster to a token without a limit
	for _, rt := range reads {
		for _, path := range addressesOf(t, rt) {
			for _, query := range []string{"", "?all&consistent", "?node=n1"} {
				got := s.ask(s.plain, red, rt.Method, path+query, nil)
				checkNames(t, rt, path+query, string(got.body))
				if got.status == 403 {
					t.Errorf("%s %s: status %d: %s", rt.Name, path, got.status, got.body)
				}
				whole := string(s.ask(s.plain, all, rt.Method, path+query, nil).body)
				if strings.Contains(whole, "blue.soon") || strings.Contains(whole, "service blue/web") {
					named[rt.Name] = true
				}
			}
			if rt.Stream != route.MediaEventStream {
				continue
			}
			last := "event: synced"
			if rt.Name == "listEvents" {
				last = `"id":"0190.0"`
			}
			checkNames(t, rt, path+" as a stream", s.stream(red, path)(last))
			waiting := path + "?index=1&wait=50ms"
			checkNames(t, rt, waiting, string(s.ask(s.plain, red, rt.Method, waiting, nil).body))
		}
	}
	for _, name := range []string{
		"readQueue", "listTasks", "readTask", "explainTask", "explainJob", "explainService", "listEvents",
		"listTroubles", "readJob", "listJobs", "listAllJobs", "readService", "listServices", "listAllServices",
		"readRollout", "readRolloutHistory", "readScale", "readCron", "listCrons", "listAllCrons", "readLogs",
	} {
		if !named[name] {
			t.Errorf("%s names nothing of another cluster to a token without a limit: the test shows nothing for it",
				name)
		}
	}
}

// TestNoWriteNamesOtherClusters does the same for the answers to writes, which show the object.
func TestNoWriteNamesOtherClusters(t *testing.T) {
	s, red := namesOfOthers(t)
	bodies := map[string]any{
		"scaleService": map[string]any{"count": 2}, "setJobPriority": map[string]any{"priority": 10},
		"writeService": scaledService(), "writeJob": job("", "batch@1", 1),
		"writeCron": nightly("", job("x", "batch@1", 2)["steps"]),
		"apply":     manifestsOf("Job", in("red", job("late", "batch@1", 3))),
	}
	written := map[string]bool{}
	_, writes := limitedRoutes(s)
	for _, rt := range writes {
		for _, path := range addressesOf(t, rt) {
			body := bodies[rt.Name]
			if body == nil && rt.Body != nil && !rt.Optional {
				body = "{}"
			}
			got := s.ask(s.plain, red, rt.Method, path, body)
			checkNames(t, rt, path, string(got.body))
			if got.status < 300 {
				written[rt.Name] = true
			}
		}
	}
	for _, name := range []string{
		"apply", "writeService", "scaleService", "stopService", "startService", "restartService", "deleteService",
		"pauseRollout", "resumeRollout", "writeJob", "stopJob", "restartJob", "holdJob", "releaseJob", "setJobPriority",
		"deleteJob", "writeCron", "runCron", "suspendCron", "resumeCron", "suspendScaling", "resumeScaling",
	} {
		if !written[name] {
			t.Errorf("%s was never accepted: the test shows nothing for it", name)
		}
	}
}

// stream opens a streamed list or the event stream. The returned function reads on to a text.
func (s *secure) stream(token, path string) (until func(text string) string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.https+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", route.MediaEventStream)
	resp, err := s.plain.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func(text string) string {
		s.t.Helper()
		var all strings.Builder
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), text) {
				return all.String()
			}
		}
		s.t.Fatalf("the stream of %s ended before %q: %v", path, text, lines.Err())
		return ""
	}
}

// TestNewEventsHideOtherClusters checks the events that are sent while a stream and a waiting list are open, to tokens
// with and without a limit.
func TestNewEventsHideOtherClusters(t *testing.T) {
	s, red := namesOfOthers(t)
	all := s.access(cluster.RoleViewer)
	answers := make(chan string, 4)
	for _, token := range []string{red, all} {
		go func() {
			answers <- string(s.ask(s.plain, token, "GET", "/v1/events?types=task.failed&wait=1m", nil).body)
		}()
	}
	streams := map[string]func(string) string{}
	for _, token := range []string{red, all} {
		streams[token] = s.stream(token, "/v1/events?types=task.failed&after=now")
	}
	s.put(map[string]any{"event/0191": cluster.EventBatch{ID: "0191", At: time.Now(), Events: []cluster.Event{{
		Type: "task.failed", Cluster: "red", Task: "red.victim.1.work.0", Message: preemptedSentence,
	}}}})
	for token, until := range streams {
		text := until(`"task.failed"`)
		if hides := !strings.Contains(text, "blue"); hides != (token == red) {
			t.Errorf("limited %t: the stream sends %s", token == red, text)
		}
	}
	hidden := 0
	for range 2 {
		if !strings.Contains(<-answers, "blue") {
			hidden++
		}
	}
	if hidden != 1 {
		t.Errorf("%d waiting lists of 2 hide the name, want that of the token with a limit", hidden)
	}
}

// TestPromisesHideOtherTasks checks that only the answer changes, and not the leader's own promise.
func TestPromisesHideOtherTasks(t *testing.T) {
	s, red := namesOfOthers(t)
	for _, limited := range []bool{true, false, true} {
		token := s.access(cluster.RoleViewer)
		if limited {
			token = red
		}
		q := read[api.Queue](t, s.ask(s.plain, token, "GET", "/v1/queue?cluster=red", nil))
		found := 0
		for _, e := range q.Entries {
			if e.Promise == nil {
				continue
			}
			found++
			if e.Promise.Node != "n1" || e.Promise.At.IsZero() || (e.Promise.After == "") != limited {
				t.Errorf("limited %t: %+v", limited, e.Promise)
			}
		}
		if found == 0 {
			t.Errorf("limited %t: no promise in %s", limited, fmt.Sprint(q.Entries))
		}
	}
}

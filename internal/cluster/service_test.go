package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// wholeService uses every field that a user writes, and has no fault.
const wholeService = `{
	"name": "web", "definition": "web@1", "count": 4, "labels": {"team": "search"}, "priority": 700,
	"update": {
		"max_surge": "50%", "min_healthy": "100%", "parallelism": 2, "stagger": "10s", "order": "start-first",
		"canaries": 1, "auto_promote": true, "healthy_deadline": "1m", "progress_deadline": "2m", "auto_rollback": false,
		"gates": [
			{"name": "errors", "prometheus": "http://prometheus.example:9090/prom", "query": "sum(\n rate(errors[1m]))", "pass": "value < 0.01",
			 "interval": "5s", "passes": 2, "failures": 5},
			{"name": "front", "http": "https://web.example/health?deep=1"}
		]
	},
	"reschedule": {"limit": 5, "window": "30m", "delay": "2s", "max_delay": "1m"},
	"scaling": {
		"min": 2, "max": 10,
		"targets": [
			{"metric": "cpu", "target": 70}, {"metric": "memory", "target": 80.5},
			{"metric": "requests", "target": 100, "port": "http", "path": "/m", "series": "app:requests_total"},
			{"metric": "prometheus", "target": 0.2, "url": "http://prometheus.example", "query": "latency", "whole": true}
		],
		"up": {"window": "0s", "step": 2, "every": "30s"}, "down": {"window": "10m", "step": "50%"},
		"schedules": [
			{"cron": "0 8 * * mon-fri", "zone": "Europe/Paris", "min": 6, "count": 8},
			{"cron": "0 20 * * *", "zone": "Europe/Paris", "min": 0, "max": 3}
		]
	}
}`

const wholeCron = `{
	"name": "backup", "schedules": ["0 3 * * *", "@weekly"], "zone": "Europe/Paris", "concurrency": "allow", "missed": "all",
	"within": "2h", "keep_succeeded": 0, "keep_failed": 10, "labels": {"a": "b"}, "suspended": true,
	"job": {"labels": {"c": "d"}, "priority": 10, "steps": [{"name": "dump", "definition": "dump@1", "retries": 2, "time_limit": "1h"}]}
}`

func TestWholeServiceAndCronHaveNoFault(t *testing.T) {
	checkFaults(t, parse[cluster.Service](t, wholeService).Validate(), nil)
	checkFaults(t, parse[cluster.Cron](t, wholeCron).Validate(), nil)
	checkFaults(t, parse[cluster.Cron](t,
		`{"name": "b", "schedules": ["@daily"], "job": {"steps": [{"name": "a", "definition": "w"}]}}`).Validate(), nil)
}

// serviceFaults changes a service without faults.
func serviceFaults(t *testing.T, changes string, want ...string) {
	t.Helper()
	s := parse[cluster.Service](t, `{"name": "web", "definition": "web@1", "count": 4}`)
	if err := json.Unmarshal([]byte(changes), s); err != nil {
		t.Fatal(err)
	}
	checkFaults(t, s.Validate(), want)
}

func TestUpdateFaults(t *testing.T) {
	for _, tt := range []struct {
		name, update string
		want         []string
	}{
		{"portions", `{"max_surge": "1000%", "min_healthy": "101%", "parallelism": 0, "canaries": "120%"}`, []string{
			"update.min_healthy: is 101%, want a share from 0% to 100%",
			"update.parallelism: is 0, want a number from 1",
			"update.canaries: is 120%, want a share",
		}},
		{"large portions", `{"max_surge": 100001, "min_healthy": 100001}`, []string{
			"update.max_surge: want a number from 0 to 100000", "update.min_healthy: want a number from 0 to 100000",
		}},
		{"no room", `{"max_surge": 0, "min_healthy": "100%"}`, []string{
			"update.min_healthy: so no task can be replaced: allow one more task with max_surge: 1, or one healthy task less",
		}},
		{
			"no room in that order", `{"order": "stop-first", "min_healthy": "100%"}`,
			[]string{"update.min_healthy: gives up a healthy task first"},
		},
		{"room", `{"max_surge": 0, "min_healthy": "75%"}`, nil},
		{
			"no room in numbers", `{"max_surge": 0, "min_healthy": 4}`,
			[]string{"update.min_healthy: is 4 of 4 and max_surge is 0, so no task can be replaced"},
		},
		{
			"no room in numbers in that order", `{"order": "stop-first", "min_healthy": 4}`,
			[]string{"update.min_healthy: is 4 of 4 and the order stop-first gives up"},
		},
		{"room in numbers", `{"max_surge": 0, "min_healthy": 3}`, nil},
		{"a surge in numbers", `{"min_healthy": 4}`, nil},
		{"blue and green", `{"canaries": "100%", "max_surge": 0}`, nil},
		{"order", `{"order": "any"}`, []string{`update.order: want one of start-first, stop-first`}},
		{"deadlines", `{"healthy_deadline": "1ms", "progress_deadline": "1000h", "stagger": "-1s"}`, []string{
			"update.stagger: want a duration from 0s", "update.healthy_deadline: want a duration from 1s",
			"update.progress_deadline: want a duration from healthy_deadline, which is 1ms",
		}},
		{"deadlines in the wrong order", `{"healthy_deadline": "5m", "progress_deadline": "1m"}`, []string{
			"update.progress_deadline: is 1m, want a duration from healthy_deadline, which is 5m",
		}},
		{"one deadline moves the other", `{"progress_deadline": "1m"}`, nil},
		{"the other moves the one", `{"healthy_deadline": "1h"}`, nil},
		{
			"stagger", `{"stagger": "10m", "progress_deadline": "5m"}`,
			[]string{"update.stagger: want less than progress_deadline"},
		},
		{"long stagger", `{"stagger": "1h"}`, nil},
		{"gates", `{"gates": [
			{"name": "a", "http": "http://a", "prometheus": "http://b", "query": "q", "interval": "1ms", "passes": -1, "failures": 1001},
			{"name": "a", "prometheus": "ftp://b", "pass": " "},
			{"name": "B"},
			{"name": "c", "prometheus": "http://user:secret@b", "query": "q\u0000", "pass": "v"},
			{"name": "d", "http": "http://a/#x"}
		]}`, []string{
			"update.gates[0].prometheus: is not for a gate that asks http", "update.gates[0].query: is not for",
			"update.gates[0].interval: want a duration from 1s to 1h", "update.gates[0].passes: want a number from 1",
			"update.gates[0].failures: to 1000",
			"update.gates[1].prometheus: is not an address", "update.gates[1].query: is missing",
			"update.gates[1].pass: is missing",
			"update.gates[2].name: is not a name", "update.gates[2]: has no source: want prometheus and query, or http",
			"update.gates[2].pass: is missing: want an expression over value",
			"update.gates[3].prometheus: holds a user or a password", "update.gates[3].query: is not printable",
			`update.gates[4].http: holds a "#"`,
			`update.gates[1].name: "a" is already the name of gates[0]`,
		}},
		{"many gates", `{"gates": [` + strings.Repeat(`{"name": "a", "http": "http://a"},`, 16) +
			`{"name": "b", "http": "http://a"}]}`, append(
			[]string{"update.gates: holds 17 gates, at most 16"}, twice("update.gates", 15)...)},
	} {
		t.Run(tt.name, func(t *testing.T) { serviceFaults(t, `{"update": `+tt.update+`}`, tt.want...) })
	}
}

// twice is the faults of n elements after the first that share its name.
func twice(field string, n int) (want []string) {
	for i := range n {
		want = append(want, field+"["+string("0123456789"[(i+1)/10])+string(
			"0123456789"[(i+1)%10])+"].name: is already")
	}
	for i := range want {
		want[i] = strings.Replace(want[i], "[0", "[", 1)
	}
	return want
}

// TestAddressesKeepTheirSecrets: a text that may contain a password is not repeated.
func TestAddressesKeepTheirSecrets(t *testing.T) {
	for _, address := range []string{
		"http://user:hunter2@host", "postgres://user:hunter2@host", "http://user:hunter2@host:bad port",
		"user:hunter2@host", "//hunter2", "http://%zz:hunter2@x",
		"http:hunter2", "http://?hunter2", "\x00hunter2", strings.Repeat("hunter2", 1000), "http://[hunter2",
		"http://:80/hunter2",
	} {
		s := parse[cluster.Service](t,
			`{"name": "web", "definition": "web@1", "update": {"gates": [{"name": "a", "http": "x"}]}}`)
		s.Update.Gates[0].HTTP = address
		err := s.Validate()
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.40q: %v", address, err)
		}
	}
}

func TestScalingFaults(t *testing.T) {
	for _, tt := range []struct {
		name, service string
		want          []string
	}{
		{"least", `{"scaling": {"min": 1, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}}`, nil},
		{
			"bounds", `{"scaling": {"min": 5, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}}`,
			[]string{"scaling.max: is 4, want a number from min, which is 5"},
		},
		{"no bounds", `{"count": 0, "scaling": {"targets": [{"metric": "prometheus", "url": "http://a", "query": "q", "target": 1}]}}`, []string{
			"scaling.max: is 0, want a number from min, which is 0",
		}},
		{
			"negative", `{"count": 0, "scaling": {"min": -1, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}}`,
			[]string{"scaling.min: is -1, want a number from 0"},
		},
		{
			"count", `{"count": 5, "scaling": {"min": 1, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}}`,
			[]string{
				"count: is 5, want a number within the bounds of scaling, from 1 to 4",
			},
		},
		{"left out count", `{"count": 0, "scaling": {"min": 2, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}}`, nil},
		{"nothing", `{"scaling": {"min": 1, "max": 4}}`, []string{"scaling: holds neither targets nor schedules"}},
		{"no scaling from zero", `{"count": 0, "scaling": {"min": 0, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}}`, []string{
			"scaling.min: is 0, and a service without tasks has no usage that could raise its count again",
		}},
		{"woken by a query", `{"count": 0, "scaling": {"min": 0, "max": 4, "targets": [{"metric": "prometheus", "url": "http://a", "query": "q", "target": 1}]}}`, nil},
		{"targets", `{"scaling": {"min": 1, "max": 4, "targets": [
			{"metric": "disk", "target": 1}, {"metric": "cpu", "target": 0, "port": "http", "path": "/", "series": "s", "url": "http://a", "query": "q", "whole": true},
			{"metric": "requests", "target": -1, "port": "Http", "path": "m", "series": "1x"}, {"metric": "prometheus", "target": 1}
		]}}`, []string{
			"scaling.targets[0].metric: want one of cpu, memory, requests, prometheus",
			"scaling.targets[1].target: is 0, want a number of more than 0",
			"scaling.targets[1].port: is for the metric requests only",
			"scaling.targets[1].path: is for", "scaling.targets[1].series: is for",
			"scaling.targets[1].url: is for the metric prometheus only",
			"scaling.targets[1].query: is for", "scaling.targets[1].whole: is for",
			"scaling.targets[2].target: is -1", "scaling.targets[2].port: is not the name of a port",
			"scaling.targets[2].path: is not a path",
			"scaling.targets[2].series: is not the name of a series",
			"scaling.targets[3].url: is missing: want an address", "scaling.targets[3].query: is missing",
		}},
		{"pace", `{"scaling": {"min": 1, "max": 4, "targets": [{"metric": "cpu", "target": 50}],
			"up": {"window": "-1s", "step": 0, "every": "1ms"}, "down": {"every": "1m"}}}`, []string{
			"scaling.up.window: want a duration from 0s", "scaling.up.step: want a number from 1",
			"scaling.up.every: want a duration from 1s",
			"scaling.down.every: needs step",
		}},
		{"schedules", `{"scaling": {"min": 2, "max": 4, "schedules": [
			{"cron": "x"}, {"cron": "x", "min": 5}, {"cron": "x", "max": 1}, {"cron": "x", "count": 0}, {"cron": "x", "min": -1, "max": 100001},
			{"cron": "x", "min": 0, "count": 0}
		]}}`, []string{
			"scaling.schedules[0]: sets nothing: want min, max or count",
			"scaling.schedules[1]: leaves no room: min would be 5 and max 4",
			"scaling.schedules[2]: leaves no room: min would be 2 and max 1",
			"scaling.schedules[3].count: is 0, but the bounds then are 2 and 4",
			"scaling.schedules[4].min: want a number from 0", "scaling.schedules[4].max: to 100000",
		}},
		{"canaries of the most", `{"count": 2, "scaling": {"min": 1, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}, "update": {"canaries": 4}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) { serviceFaults(t, tt.service, tt.want...) })
	}
}

func TestModeAndRescheduleFaults(t *testing.T) {
	serviceFaults(t, `{"mode": "some"}`, "mode: want one of replicas, daemon")
	serviceFaults(t, `{"mode": "daemon", "count": 0}`)
	serviceFaults(t, `{"mode": "daemon", "count": 3, "scaling": {"min": 1, "max": 4, "targets": [{"metric": "cpu", "target": 50}]}}`,
		"count: is 3, but a daemon has one task on each node", "scaling: is not for a daemon")
	serviceFaults(t, `{"reschedule": {"limit": -1, "window": "1ms", "delay": "1h", "max_delay": "1m"}}`,
		"reschedule.limit: want a number from 0 to 1000", "reschedule.window: want a duration from 1s",
		"reschedule.delay: is 1h, want a duration from 1ms to max_delay, which is 1m")
	serviceFaults(t, `{"reschedule": {"delay": "1h"}}`)
}

func TestCronFaults(t *testing.T) {
	checkFaults(t, new(cluster.Cron).Validate(),
		[]string{`name: "" is not a name`, "schedules: is empty", "job.steps: is empty"})
	c := parse[cluster.Cron](t, wholeCron)
	c.Name, c.Concurrency, c.Missed, c.Within = strings.Repeat("a", 51), "queue", "some", 1
	keep := -1
	c.KeepFailed, c.Job.Priority, c.Schedules = &keep, 1001, []string{"a;b"}
	c.Job.Steps = append(c.Job.Steps, cluster.Step{Name: "dump", Count: -1, Definition: cluster.Ref{Name: "w"}})
	checkFaults(t, c.Validate(), []string{
		"name: is 51 bytes long, at most 50 are allowed", `schedules[0]: holds a ";"`,
		"concurrency: want one of forbid, allow, replace",
		"missed: want one of skip, once, all", "within: want a duration from 10s", "keep_failed: want a number from 0",
		"job.priority: want a number from 1", "job.steps[1].count: want a number from 1",
		`job.steps[1].name: "dump" is already the name of steps[0]`,
	})
	c = parse[cluster.Cron](t, wholeCron)
	c.Concurrency = cluster.CronReplace
	checkFaults(t, c.Validate(), []string{"missed: each of the jobs would cancel the one before"})
	c.Schedules = make([]string, 33)
	c.Missed = cluster.CronOnce
	checkFaults(t, c.Validate(), []string{"schedules: holds 33 schedules, at most 32"})
}

// TestJobNamesAreNames: the longest name of a cron leaves room for the moment.
func TestJobNamesAreNames(t *testing.T) {
	c := cluster.Cron{Cluster: "c", Name: strings.Repeat("a", cluster.MaxCronName)}
	at := time.Date(2026, 11, 20, 13, 30, 0, 0, time.FixedZone("", 3600))
	if got, want := c.JobName(at), c.Name+"-202611201230"; got != want || !cluster.ValidName(got) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := c.Owner().String(); got != "c/cron/"+c.Name {
		t.Errorf("its owner reads %q", got)
	}
}

func TestServiceDefaults(t *testing.T) {
	s := parse[cluster.Service](t, `{"name": "web", "definition": "web@1",
		"update": {"gates": [{"name": "a", "http": "http://a"}, {"name": "b", "prometheus": "http://a", "query": "q", "pass": "true"}]},
		"scaling": {"min": 2, "max": 4, "targets": [{"metric": "requests", "target": 1}, {"metric": "cpu", "target": 1}], "up": {"step": 1}}}`)
	s.SetDefaults()
	want := parse[cluster.Service](t, `{"cluster": "default", "name": "web", "definition": "web@1", "mode": "replicas", "count": 2, "priority": 500,
		"on_disconnect": "keep", "placement": {"anti_affinity": "prefer"},
		"update": {"healthy_deadline": "5m", "progress_deadline": "10m", "gates": [
			{"name": "a", "http": "http://a", "pass": "status >= 200 && status < 300", "interval": "10s", "passes": 1, "failures": 3},
			{"name": "b", "prometheus": "http://a", "query": "q", "pass": "true", "interval": "10s", "passes": 1, "failures": 3}]},
		"reschedule": {"window": "1h", "delay": "1s", "max_delay": "5m"},
		"scaling": {"min": 2, "max": 4, "targets": [
			{"metric": "requests", "target": 1, "path": "/metrics", "series": "http_requests_total"}, {"metric": "cpu", "target": 1}],
			"up": {"step": 1, "every": "1m"}}}`)
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("a service (-want +got):\n%s", diff)
	}
	c := parse[cluster.Cron](t,
		`{"name": "b", "schedules": ["@daily"], "job": {"steps": [{"name": "a", "definition": "w@1", "retries": 1}]}}`)
	c.SetDefaults()
	wantCron := parse[cluster.Cron](t, `{"cluster": "default", "name": "b", "schedules": ["@daily"], "concurrency": "forbid", "missed": "once",
		"within": "1h", "keep_succeeded": 3, "keep_failed": 3, "job": {"priority": 500, "steps": [
			{"name": "a", "definition": "w@1", "count": 1, "retries": 1, "on_disconnect": "keep", "placement": {"anti_affinity": "none"}}]}}`)
	if diff := cmp.Diff(wantCron, c); diff != "" {
		t.Errorf("a cron (-want +got):\n%s", diff)
	}
	for _, v := range []interface{ Validate() error }{
		parse[cluster.Service](t, wholeService),
		parse[cluster.Cron](t, wholeCron),
	} {
		before, _ := json.Marshal(v)
		_ = v.Validate()
		if after, err := json.Marshal(v); err != nil || string(after) != string(before) {
			t.Errorf("Validate changed %s to %s, %v", before, after, err)
		}
	}
}

func TestCheckDefinition(t *testing.T) {
	s := parse[cluster.Service](t, wholeService)
	d := parse[cluster.TaskDefinition](t, whole)
	checkFaults(t, s.CheckDefinition(d),
		[]string{`update.order: is start-first, but the port "admin" of web@1 is 8081 on every node, and two tasks cannot listen there: use stop-first`})
	d.Ports, d.Containers[1].Resources = d.Ports[:0], cluster.Resources{}
	checkFaults(t, s.CheckDefinition(d), []string{
		"scaling.targets[0].metric: is cpu, in percent of what is reserved, and web@1 reserves none",
		"scaling.targets[1].metric: is memory, in percent",
		`scaling.targets[2].port: "http" is not the name of a port of web@1`,
	})
	s.Scaling.Targets[2].Port = ""
	checkFaults(t, s.CheckDefinition(d),
		[]string{
			"scaling.targets[0].metric: cpu", "scaling.targets[1].metric: memory",
			"scaling.targets[2].port: no port where requests could be counted",
		})
	s.Scaling, s.Update.Order = nil, ""
	d = parse[cluster.TaskDefinition](t, whole)
	checkFaults(t, s.CheckDefinition(d),
		[]string{"update.min_healthy: is 100%, all of the tasks, but two tasks of web@1 cannot live on a node"})
	s.Update.MinHealthy = &cluster.Portion{N: s.Count}
	d.Ports = d.Ports[:0]
	d.Volumes = []cluster.Volume{{Name: "data"}}
	checkFaults(t, s.CheckDefinition(d),
		[]string{"update.min_healthy: with a lower min_healthy or none, or use the order start-first"})
	for _, m := range []*cluster.Portion{nil, {N: s.Count - 1}, {N: 75, Percent: true}} {
		s.Update.MinHealthy = m
		checkFaults(t, s.CheckDefinition(d), nil)
	}
}

func TestPortions(t *testing.T) {
	for text, want := range map[string]cluster.Portion{
		`2`: {N: 2}, `"2"`: {N: 2}, `"25%"`: {N: 25, Percent: true},
		`0`: {}, `"0%"`: {Percent: true},
	} {
		var got cluster.Portion
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{
		`-1`, `"-1%"`, `"%"`, `""`, `2.5`, `"x"`, `true`, `{}`, `[1]`, `"1 %"`, `"1%%"`,
		`99999999999999999999`,
	} {
		var got cluster.Portion
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is read as %+v", bad, got)
		}
	}
	for _, tt := range []struct {
		portion     string
		count, want int
	}{
		{"25%", 4, 1},
		{"25%", 5, 2},
		{"100%", 7, 7},
		{"0%", 7, 0},
		{"1%", 1, 1},
		{"150%", 3, 5},
		{"3", 7, 3},
		{"50%", 0, 0},
	} {
		p, err := cluster.ParsePortion(tt.portion)
		if err != nil || p.Of(tt.count) != tt.want || p.String() != tt.portion {
			t.Errorf("%s of %d: %d as %s, %v", tt.portion, tt.count, p.Of(tt.count), p, err)
		}
	}
}

// FuzzPortion: a parsed portion survives its text form and its JSON form.
func FuzzPortion(f *testing.F) {
	for _, s := range []string{"2", "25%", "-1", "%", "+1", "0x1", "1_0", "007", "99999999999999999999%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := cluster.ParsePortion(s)
		if err != nil {
			return
		}
		var back cluster.Portion
		text, err := json.Marshal(p)
		if err != nil || json.Unmarshal(text, &back) != nil || back != p || p.N < 0 {
			t.Errorf("%q is %+v, %s as JSON, which reads as %+v, %v", s, p, text, back, err)
		}
		if again, err := cluster.ParsePortion(p.String()); err != nil || again != p {
			t.Errorf("%q is %s, which reads as %+v, %v", s, p, again, err)
		}
	})
}

// TestLimitsLeaveRoom: whatever a valid policy says, one task can be replaced, and never more are given up than it
// says.
func TestLimitsLeaveRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		portion := func(name string, most int) *cluster.Portion {
			switch rapid.IntRange(0, 2).Draw(t, name) {
			case 1:
				return &cluster.Portion{N: rapid.IntRange(0, 20).Draw(t, name)}
			case 2:
				return &cluster.Portion{N: rapid.IntRange(0, most).Draw(t, name), Percent: true}
			}
			return nil
		}
		s := cluster.Service{
			Name: "web", Definition: cluster.Ref{Name: "web"},
			Count: rapid.IntRange(0, 20).Draw(t, "count"), Update: cluster.Update{
				MaxSurge: portion("surge", 200), MinHealthy: portion("healthy", 100),
				Parallelism: portion("parallelism", 100), Canaries: portion("canaries", 100),
				Order: rapid.SampledFrom([]cluster.UpdateOrder{"", cluster.StartFirst, cluster.StopFirst}).Draw(t,
					"order"),
			},
		}
		if s.Validate() != nil {
			return
		}
		l := s.Update.Limits(s.Count, rapid.Bool().Draw(t, "pinned"))
		if l.MinHealthy > s.Count || l.MinHealthy < 0 || l.Canaries > s.Count || l.Parallelism < 1 || l.Surge < 0 {
			t.Fatalf("%d tasks: %+v", s.Count, l)
		}
		if s.Count > 0 && l.Surge == 0 && l.MinHealthy >= s.Count {
			t.Fatalf("%d tasks, and none can be replaced: %+v", s.Count, l)
		}
		if m := s.Update.MinHealthy; m != nil && l.Surge > 0 && l.MinHealthy < min(s.Count, m.Of(s.Count)) {
			t.Fatalf("%s of %d tasks: %+v", m, s.Count, l)
		}
	})
}

// A record of scaling is about the count that the user set last, also where the number is the same as an earlier one.
func TestScaleBelongsToOneCount(t *testing.T) {
	svc := cluster.Service{Count: 3, Scaling: &cluster.Scaling{Min: 1, Max: 9}}
	for _, tt := range []struct {
		name    string
		counted uint64
		scale   *cluster.Scale
		want    int
	}{
		{"none", 0, nil, 3},
		{"of a server that did not know", 0, &cluster.Scale{Count: 8, From: 3}, 8},
		{"of another count", 1, &cluster.Scale{Count: 8, From: 2, Recounted: 1}, 3},
		{"of this count", 2, &cluster.Scale{Count: 8, From: 3, Recounted: 2}, 8},
		{"of the same number, set before", 2, &cluster.Scale{Count: 8, From: 3, Recounted: 1}, 3},
	} {
		svc.Recounted = tt.counted
		if got := svc.At(tt.scale).Count; got != tt.want {
			t.Errorf("%s: count %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestKeepRoomFaults checks for which services a room can be kept.
func TestKeepRoomFaults(t *testing.T) {
	const bound = `"placement": {"constraints": [{"attribute": "node.name", "value": "n1"}]}`
	for _, tt := range []struct {
		name, service string
		want          []string
	}{
		{"one task on one node", `{"keep_room": true, "count": 1, ` + bound + `}`, nil},
		{"on any node", `{"keep_room": true, "count": 1}`, []string{"keep_room: needs the node on which the room"}},
		{"several tasks", `{"keep_room": true, ` + bound + `}`, []string{"keep_room: is for a service of one task"}},
		{"scaling", `{"keep_room": true, "count": 1, "scaling": {"min": 1, "max": 2, "targets": [{"metric": "cpu", "target": 50}]}, ` +
			bound + `}`, []string{"keep_room: is for a service of one task"}},
		{
			"another operator", `{"keep_room": true, "count": 1,
			"placement": {"constraints": [{"attribute": "node.name", "op": "!=", "value": "n1"}]}}`,
			[]string{"keep_room: needs the node"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { serviceFaults(t, tt.service, tt.want...) })
	}
}

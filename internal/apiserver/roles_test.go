package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/transport"
)

// TestEveryRouteHasARole lists the role of each route. "*" marks routes for tokens with a limit whose address names no
// cluster and no task.
func TestEveryRouteHasARole(t *testing.T) {
	want := map[string]string{
		"live": "anybody", "ready": "anybody", "join": "anybody", "renew": "machine",

		"openapi": "viewer*", "openapiYaml": "viewer*", "manifestSchema": "viewer*", "version": "viewer*",
		"listClusters": "viewer*", "readCluster": "viewer",
		"listDefinitions": "viewer*", "listVersions": "viewer*", "readDefinition": "viewer*",
		"diffVersions": "viewer*", "diffDefinition": "submitter*",
		"listTroubles":    "viewer*",
		"readQueue":       "viewer*",
		"listAllServices": "viewer*", "listServices": "viewer", "readService": "viewer", "listAddresses": "viewer",
		"listAllJobs": "viewer*", "listJobs": "viewer", "readJob": "viewer",
		"listTasks": "viewer*", "readTask": "viewer", "listEvents": "viewer*",
		"listNodes": "viewer*", "readNode": "viewer*", "listVolumes": "viewer", "listImages": "viewer",
		"readStatus": "viewer*", "listServers": "viewer", "readServer": "viewer", "readRecovery": "viewer",
		"readDomain": "viewer", "claimDomain": "viewer", "readSchedulingState": "viewer", "propose": "viewer",

		"apply": "submitter*", "writeDefinition": "submitter*", "deleteDefinition": "submitter*",
		"writeService": "submitter", "deleteService": "submitter", "scaleService": "submitter",
		"stopService": "submitter", "startService": "submitter", "restartService": "submitter",
		"readRollout": "viewer", "readRolloutHistory": "viewer", "pauseRollout": "submitter",
		"resumeRollout":  "submitter",
		"promoteRollout": "submitter", "undoRollout": "submitter",
		"readScale": "viewer", "suspendScaling": "submitter", "resumeScaling": "submitter",
		"listAllCrons": "viewer*", "listCrons": "viewer", "readCron": "viewer", "writeCron": "submitter",
		"deleteCron":       "submitter",
		"listAllEndpoints": "viewer*", "listEndpoints": "viewer", "readEndpoint": "viewer",
		"writeEndpoint": "submitter", "deleteEndpoint": "submitter", "listEndpointAddresses": "viewer",
		"runCron": "submitter", "suspendCron": "submitter", "resumeCron": "submitter",
		"explainService": "viewer", "explainJob": "viewer", "explainTask": "viewer",
		"simulate": "viewer", "planRebalance": "viewer", "listRebalancings": "viewer", "readRebalancing": "viewer",
		"writeJob": "submitter", "deleteJob": "submitter", "stopJob": "submitter", "restartJob": "submitter",
		"retryJob": "submitter", "holdJob": "submitter", "releaseJob": "submitter", "setJobPriority": "submitter",
		"readLogs": "submitter", "exec": "submitter", "sayCheck": "submitter",
		"openTerminal": "submitter", "forwardPort": "submitter", "copyOut": "submitter", "copyIn": "submitter",
		"attach": "submitter",

		"writeCluster": "operator", "deleteCluster": "operator", "writeNode": "operator", "loadImages": "operator",
		"pullImages": "operator", "pruneImages": "operator", "removeVolume": "operator",
		"cordonNode": "operator", "uncordonNode": "operator", "drainNode": "operator", "undrainNode": "operator",
		"forgetNode": "operator",
		"taintNode":  "operator", "untaintNode": "operator", "poolNode": "operator", "domainNode": "operator",
		"dialNode":  "operator",
		"adoptNode": "admin", "releaseNode": "admin",
		"setupNode": "operator", "listMachineProfiles": "operator", "readNewestMachineProfile": "operator",
		"readMachineProfile": "operator", "deleteMachineProfile": "operator",
		"reservePorts": "operator", "unreservePorts": "operator",
		"listDomains": "viewer", "writeDomain": "operator", "deleteDomain": "operator",
		"listPools": "viewer", "readPool": "viewer", "writePool": "operator", "deletePool": "operator",
		"listReservations": "viewer", "readReservation": "viewer", "writeReservation": "operator",
		"deleteReservation": "operator",
		"rebalance":         "operator", "cancelRebalancing": "operator", "undoRebalancing": "operator",
		"reschedule": "operator", "readSnapshot": "operator", "readConfig": "operator",

		"listSecrets": "viewer", "listAllSecrets": "viewer*", "readSecret": "viewer", "writeSecret": "operator",
		"deleteSecret": "operator", "rotateSecretsKey": "admin",
		"rekeySecrets": "admin", "listMasterKeys": "operator", "dropMasterKey": "admin",
		"listTokens": "admin", "readToken": "admin", "createToken": "admin", "revokeToken": "admin",
		"promoteServer": "admin", "removeServer": "admin", "recover": "admin", "readProfile": "admin",
	}
	s := New(Config{})
	for _, rt := range s.routes {
		got := string(rt.Role)
		if rt.Open {
			got += "anybody"
		}
		if rt.Shared {
			got += "*"
		}
		if got == "" {
			t.Errorf("%s (%s %s) has no role: who may use it?", rt.Name, rt.Method, rt.Path)
		} else if got != want[rt.Name] {
			t.Errorf("%s (%s %s) is for %s, and this list says %q", rt.Name, rt.Method, rt.Path, got, want[rt.Name])
		}
		delete(want, rt.Name)
	}
	for name := range want {
		t.Errorf("%s is in this list and is no route", name)
	}
	if access.MayUse(&route.Route{})(new(http.Request), &access.Caller{Role: cluster.RoleOperator}) == nil {
		t.Error("a route without a row is open")
	}
}

// TestRolesAtEachRoute sends a request of every role to each route, and checks only whether it is refused.
func TestRolesAtEachRoute(t *testing.T) {
	s := newSecure(t)
	s.web()
	people := []cluster.Role{cluster.RoleViewer, cluster.RoleSubmitter, cluster.RoleOperator, cluster.RoleAdmin}
	tokens := map[cluster.Role]string{}
	for _, role := range people {
		tokens[role] = s.access(role)
	}
	node, server := s.shows(nodeOne), s.shows(serverTwo)
	fill := strings.NewReplacer("{cluster}", "default", "{service}", "none", "{job}", "none", "{cron}", "none",
		"{definition}", "web", "{version}", "1",
		"{task}", "default.none.1.0", "{node}", "n1", "{server}", "s9", "{token}", "tnone", "{profile}", "goroutine")
	for _, rt := range s.server.routes {
		path, body := fill.Replace(rt.Path), ""
		if rt.Body != nil {
			body = "{}"
		}
		for _, role := range people {
			got := s.ask(s.plain, tokens[role], rt.Method, path, body)
			refused := got.status == 403 || got.status == 401 && rt.Name != "join"
			if may := rt.Open ||
				rt.Role != route.RoleMachine && access.Rank(role) >= access.Rank(rt.Role); may == refused {
				t.Errorf("%s as %s: status %d: %s", rt.Name, role, got.status, got.body)
			}
		}
		// A machine's certificate gives access only to the machine's own part.
		for subject, c := range map[pki.Subject]*http.Client{nodeOne: node, serverTwo: server} {
			if got := s.ask(c, "", rt.Method, path,
				body); (got.status == 403) == (rt.Open || rt.Role == route.RoleMachine) {
				t.Errorf("%s with the certificate of %s: status %d: %s", rt.Name, subject, got.status, got.body)
			}
		}
		if got := s.ask(s.plain, "", rt.Method, path, body); (got.status == 401) == rt.Open && rt.Name != "join" {
			t.Errorf("%s without anything: status %d", rt.Name, got.status)
		}
	}
}

func TestPartsOfMachines(t *testing.T) {
	s := newSecure(t)
	tests := []struct {
		name   string
		client *http.Client
		token  string
		path   string
		want   int
	}{
		{"a node to the agents' part", s.shows(nodeOne), "", transportPath, 200},
		{"a server to the agents' part", s.shows(serverTwo), "", transportPath, 403},
		{"an admin to the agents' part", s.plain, s.access(cluster.RoleAdmin), transportPath, 403},
		{"no certificate to the agents' part", s.plain, "", transportPath, 401},
		{"a server to the servers' part", s.shows(serverTwo), "", "/peer/v1/digest", 204},
		{"a node to the servers' part", s.shows(nodeOne), "", "/peer/v1/digest", 403},
		{"an admin to the servers' part", s.plain, s.access(cluster.RoleAdmin), "/peer/v1/digest", 403},
		{"a viewer to the metrics", s.plain, s.access(cluster.RoleViewer), "/metrics", 200},
		{"a viewer of one cluster to the metrics", s.plain, s.access(cluster.RoleViewer, "default"), "/metrics", 403},
		{"a node to the metrics", s.shows(nodeOne), "", "/metrics", 403},
		{"the token of the token file, from another machine", s.plain, token, "/v1/version", 401},
		{"a certificate with a wrong token", s.shows(nodeOne), "tabc.wrong", transportPath, 401},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := s.ask(test.client, test.token, "GET", test.path, nil); got.status != test.want {
				t.Errorf("status %d, want %d: %s", got.status, test.want, got.body)
			}
		})
	}
	// The servers' part refuses users of this machine; the agents' part accepts them as any node.
	if got := s.call("GET", "/peer/v1/digest", nil); got.status != 403 {
		t.Errorf("loopback to the servers' part: status %d", got.status)
	}
	if got := s.call("GET", transportPath, nil); got.status != 200 ||
		!strings.Contains(string(got.body), `"bound":false`) {
		t.Errorf("loopback to the agents' part: status %d: %s", got.status, got.body)
	}
	// A node's name is that of its certificate, whatever the request says.
	got := s.ask(s.shows(nodeOne), "", "POST", transportPath+"?node=n2", `{"node": "n2"}`, "X-Node", "n2")
	if string(got.body) != `{"bound":true,"node":"n1"}`+"\n" {
		t.Errorf("the node is %s", got.body)
	}
}

// TestNodeCannotActForAnother sends requests to the real agents' part.
func TestNodeCannotActForAnother(t *testing.T) {
	got := &calledNodes{}
	s := newSecure(t, func(c *Config) { c.Agents = transport.Handler(got) })
	node := s.shows(nodeOne)
	for path, body := range map[string]string{
		transport.PathRegister:    `{"node": %q, "tasks": []}`,
		transport.PathReport:      `{"node": %q, "session": 1, "seq": 1}`,
		transport.PathAssignments: `{"node": %q, "session": 1}`,
	} {
		if r := s.ask(node, "", "POST", path, fmt.Sprintf(body, "n2")); r.status != 403 {
			t.Errorf("%s for another node: status %d: %s", path, r.status, r.body)
		}
		if len(got.nodes) != 0 {
			t.Fatalf("%s for another node was taken: %v", path, got.nodes)
		}
		if r := s.ask(node, "", "POST", path, fmt.Sprintf(body, "n1")); r.status != 200 {
			t.Errorf("%s for itself: status %d: %s", path, r.status, r.body)
		}
		got.nodes = nil
	}
}

// calledNodes is a dispatcher that records the nodes for which it was called.
type calledNodes struct{ nodes []string }

func (d *calledNodes) Register(_ context.Context, r transport.Registration) (transport.Welcome, error) {
	d.nodes = append(d.nodes, r.Node)
	return transport.Welcome{}, nil
}

func (d *calledNodes) Assign(_ context.Context, r transport.AssignmentsRequest,
	send func([]transport.Message) error,
) error {
	d.nodes = append(d.nodes, r.Node)
	return send(nil)
}

func (d *calledNodes) Report(_ context.Context, r transport.Report) (transport.ReportReply, error) {
	d.nodes = append(d.nodes, r.Node)
	return transport.ReportReply{}, nil
}

func (d *calledNodes) Carry(context.Context, string, io.ReadWriter) error { return nil }

const transportPath = "/agent/v1/report"

func TestTokenOfSomeClusters(t *testing.T) {
	s := newSecure(t)
	s.web()
	s.want(200, "POST", "/v1/apply",
		manifestsOf("Cluster", map[string]any{"name": "red"}, "Cluster", map[string]any{"name": "blue"}))
	for _, in := range []string{"red", "blue"} {
		s.want(201, "PUT", "/v1/clusters/"+in+"/services/web", service("web", "web@1", 2))
		s.want(201, "PUT", "/v1/clusters/"+in+"/jobs/sum", job("sum", "web@1", 1))
	}
	red := s.access(cluster.RoleSubmitter, "red")
	in := func(name, cluster string) map[string]any {
		o := service(name, "web@1", 1)
		o["cluster"] = cluster
		return o
	}
	tests := []struct {
		method, path string
		body         any
		want         int
	}{
		{"GET", "/v1/clusters/red", nil, 200},
		{"GET", "/v1/clusters/blue", nil, 403},
		{"GET", "/v1/clusters/none", nil, 403},
		{"GET", "/v1/clusters/blue/services", nil, 403},
		{"GET", "/v1/clusters/blue/services/web", nil, 403},
		{"POST", "/v1/clusters/red/services/web/scale", map[string]int{"count": 3}, 200},
		{"POST", "/v1/clusters/blue/services/web/scale", map[string]int{"count": 3}, 403},
		{"DELETE", "/v1/clusters/blue/jobs/sum", nil, 403},
		{"GET", "/v1/tasks/red.web.1.0", nil, 200},
		{"GET", "/v1/tasks/blue.web.1.0", nil, 403},
		{"GET", "/v1/tasks/blue.web.1.0/logs", nil, 403},
		{"GET", "/v1/tasks/red.web.1.0/logs", nil, 409},
		{"POST", "/v1/apply", manifestsOf("Service", in("more", "red")), 200},
		{"POST", "/v1/apply", manifestsOf("Service", in("more", "blue")), 403},
		{"POST", "/v1/apply", manifestsOf("Service", in("more", "")), 403},
		{"POST", "/v1/apply", map[string]any{
			"dry_run": true,
			"objects": manifestsOf("Service", in("more", "blue"))["objects"],
		}, 403},
		{"POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "red"}), 200},
		{"POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "blue"}), 403},
		{"POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "green"}), 403},
		{"POST", "/v1/apply", manifestsOf("TaskDefinition", definition("other", 1)), 200},
		{"PUT", "/v1/definitions/other/2", definition("other", 2), 409}, // nobody uses the name: it may be another's
		{"GET", "/v1/nodes", nil, 200},
		{"GET", "/v1/images", nil, 403},
		{"GET", "/v1/status", nil, 200},
		{"GET", "/v1/servers", nil, 403},
	}
	for _, test := range tests {
		if got := s.ask(s.plain, red, test.method, test.path, test.body); got.status != test.want {
			t.Errorf("%s %s: status %d, want %d: %s", test.method, test.path, got.status, test.want, got.body)
		}
	}
	for _, path := range []string{
		"/v1/services", "/v1/jobs", "/v1/tasks", "/v1/tasks?cluster=blue", "/v1/clusters",
		"/v1/events", "/v1/tasks?all",
	} {
		got := s.ask(s.plain, red, "GET", path, nil)
		if got.status != 200 || strings.Contains(string(got.body), "blue") ||
			strings.Contains(string(got.body), `"default.web`) {
			t.Errorf("%s: status %d shows others: %s", path, got.status, got.body)
		}
		if !strings.Contains(string(got.body), "red") && !strings.Contains(path, "blue") {
			t.Errorf("%s does not show its own: %s", path, got.body)
		}
		// An admin's list must not be cached for others, nor theirs for an admin.
		if got := s.want(200, "GET", path, nil); !strings.Contains(string(got.body), "blue") {
			t.Errorf("%s as admin: %s", path, got.body)
		}
	}
}

func TestLimitedTokenWaits(t *testing.T) {
	s := newSecure(t)
	s.web()
	s.want(200, "POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "red"}))
	red := s.access(cluster.RoleViewer, "red")
	// Both callers wait for the same list at the same index. Each sees its own clusters and waits for changes there.
	all := s.access(cluster.RoleViewer)
	for _, token := range []string{red, all} {
		at := read[struct{ Index uint64 }](t, s.ask(s.plain, token, "GET", "/v1/services", nil)).Index
		for _, other := range []string{red, all} {
			if other != token {
				s.ask(s.plain, other, "GET", "/v1/services", nil)
			}
		}
		began := time.Now()
		got := s.ask(s.plain, token, "GET", "/v1/services?wait=150ms&index="+etagNumber(at), nil)
		if took := time.Since(began); got.status != 200 || took < 100*time.Millisecond {
			t.Errorf("answered after %v, although nothing changed: %s", took, got.body)
		}
		if token == red && strings.Contains(string(got.body), "web") {
			t.Errorf("a waiting list shows others: %s", got.body)
		}
	}
}

func etagNumber(n uint64) string { return strings.Trim(respond.ETag(n), `"`) }

func TestSubmitterMakesNoClusters(t *testing.T) {
	s := newSecure(t)
	token := s.access(cluster.RoleSubmitter)
	if got := s.ask(s.plain, token, "POST", "/v1/apply",
		manifestsOf("Cluster", map[string]any{"name": "red"})); got.status != 403 {
		t.Errorf("status %d, want 403: %s", got.status, got.body)
	}
	s.want(200, "POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "red"}))
	// An unchanged cluster may be among the manifests.
	if got := s.ask(s.plain, token, "POST", "/v1/apply",
		manifestsOf("Cluster", map[string]any{"name": "red"})); got.status != 200 {
		t.Errorf("status %d, want 200: %s", got.status, got.body)
	}
}

func TestRanks(t *testing.T) {
	order := []cluster.Role{"", cluster.RoleNode, cluster.RoleServer, route.RoleMachine, "root"}
	for _, r := range order {
		if access.Rank(r) != 0 {
			t.Errorf("rank of %q is %d, want 0", r, access.Rank(r))
		}
	}
	people := []cluster.Role{cluster.RoleViewer, cluster.RoleSubmitter, cluster.RoleOperator, cluster.RoleAdmin}
	if !slices.IsSortedFunc(people, func(a, b cluster.Role) int { return access.Rank(a) - access.Rank(b) }) ||
		access.Rank(cluster.RoleViewer) == 0 {
		t.Error("the roles are out of order")
	}
}

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// listening returns a definition with the port http and a label.
func listening(name string, version int, track string) map[string]any {
	d := definition(name, version)
	d["ports"] = []any{map[string]any{"name": "http"}, map[string]any{"name": "admin"}}
	d["labels"] = map[string]any{"track": track}
	return d
}

func endpoint(name, service string) map[string]any {
	return map[string]any{"name": name, "service": service, "port": "http"}
}

// endpointWorld is a world with a service of two versions, and tasks in all states of health on nodes n1 and n2.
func endpointWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply", manifestsOf(
		"TaskDefinition", listening("web", 1, "stable"), "TaskDefinition", listening("web", 2, "next"),
		"Service", service("web", "web@1", 5)))
	records := map[string]any{}
	for _, name := range []string{"n1", "n2"} {
		records["node/"+name] = cluster.Node{Name: name, State: cluster.NodeReady, Domain: "default"}
		records["status/"+name] = cluster.NodeStatus{Name: name, Facts: cluster.Facts{Address: "192.0.2." + name[1:]}}
	}
	w.put(records)
	w.putTask(0, "n1", 1, cluster.HealthHealthy)
	w.putTask(1, "n2", 1, cluster.HealthFailing)
	w.putTask(2, "n2", 2, cluster.HealthHealthy)
	w.putTask(3, "n1", 2, cluster.HealthUnknown)
	return w
}

// putTask puts a task of the service web with a version of the definition.
func (w *world) putTask(index int, node string, version int, health cluster.Health, change ...func(*cluster.Desired)) {
	w.t.Helper()
	d := desired(cluster.ServiceTask("default", "web", 1, index), 1, cluster.KindService,
		cluster.Ref{Name: "web", Version: version})
	d.Node, d.Ports = node, map[string]int{"http": 30000 + index, "admin": 31000 + index}
	for _, do := range change {
		do(&d)
	}
	w.put(map[string]any{
		"state/" + node + "/" + string(d.Task):  d,
		"status/" + node + "/" + string(d.Task): observed(d, cluster.StateRunning, health),
	})
}

// endpointList returns the addresses of an endpoint in short form.
func (w *world) endpointList(name string) (list []string) {
	w.t.Helper()
	page := read[api.Page[api.EndpointAddress]](w.t,
		w.want(200, "GET", "/v1/clusters/default/endpoints/"+name+"/addresses", nil))
	return addressTexts(page)
}

func addressTexts(page api.Page[api.EndpointAddress]) (list []string) {
	for _, a := range page.Items {
		list = append(list, fmt.Sprintf("%s %s %s %s %s", a.Address, a.Node, a.Task, a.Health, a.Definition))
	}
	return list
}

// TestEndpointAddresses reads the addresses of endpoints with and without tags and unhealthy tasks, and their status.
func TestEndpointAddresses(t *testing.T) {
	w := endpointWorld(t)
	tagged, all := endpoint("web-next", "web"), endpoint("web-all", "web")
	tagged["tags"] = map[string]any{"track": "next"}
	all["healthy_only"], all["port"] = false, "admin"
	w.want(200, "POST", "/v1/apply",
		manifestsOf("Endpoint", endpoint("web-http", "web"), "Endpoint", tagged, "Endpoint", all))
	if last := w.lastEvent(); last.Type != "endpoint.created" || last.Message != "the port http of service web" {
		t.Errorf("got event %+v", last)
	}
	for name, want := range map[string][]string{
		"web-http": {
			"192.0.2.1:30000 n1 default.web.1.0 healthy web@1", "192.0.2.2:30002 n2 default.web.1.2 healthy web@2",
		},
		"web-next": {"192.0.2.2:30002 n2 default.web.1.2 healthy web@2"},
		"web-all": {
			"192.0.2.1:31000 n1 default.web.1.0 healthy web@1", "192.0.2.2:31001 n2 default.web.1.1 failing web@1",
			"192.0.2.2:31002 n2 default.web.1.2 healthy web@2", "192.0.2.1:31003 n1 default.web.1.3 unknown web@2",
		},
	} {
		if diff := cmp.Diff(want, w.endpointList(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, want := range map[string]api.EndpointStatus{
		"web-http": {DNS: "web-http.default.berth", Addresses: 2, Healthy: 2, Failing: 2},
		"web-next": {DNS: "web-next.default.berth", Addresses: 1, Healthy: 1, Failing: 1},
		"web-all":  {DNS: "web-all.default.berth", Addresses: 4, Healthy: 2, Failing: 2},
	} {
		v := read[api.EndpointView](t, w.want(200, "GET", "/v1/clusters/default/endpoints/"+name, nil))
		if diff := cmp.Diff(want, v.Status); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	// A task leaves when its stop is decided, and while it waits for its next start it counts as failing.
	w.putTask(0, "n1", 1, cluster.HealthHealthy, func(d *cluster.Desired) {
		d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDrain}
	})
	d := desired("default.web.1.2", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 2})
	o := observed(d, cluster.StateStarting, cluster.HealthUnknown)
	o.NextStart = noon
	w.put(map[string]any{"status/n2/default.web.1.2": o})
	if got := w.endpointList("web-http"); len(got) != 0 {
		t.Errorf("got %q after the stop and the failure", got)
	}
	if got := w.endpointList("web-all"); len(got) != 3 || !strings.Contains(got[1], "web.1.2 failing") {
		t.Errorf("got %q after the stop and the failure", got)
	}
	v := read[api.EndpointView](t, w.want(200, "GET", "/v1/clusters/default/endpoints/web-http", nil))
	if v.Status.Message != "no task of service web is healthy" {
		t.Errorf("got status %+v", v.Status)
	}
}

// TestEndpointAddressesWait waits for changes of addresses: of a task, of the endpoint, and its deletion.
func TestEndpointAddressesWait(t *testing.T) {
	w := endpointWorld(t)
	w.want(201, "PUT", "/v1/clusters/default/endpoints/web-http", endpoint("web-http", "web"))
	const path = "/v1/clusters/default/endpoints/web-http/addresses"
	page := read[api.Page[api.EndpointAddress]](t, w.want(200, "GET", path, nil))
	for _, tt := range []struct {
		name   string
		change func()
		want   int
	}{
		{"a healthy task", func() { w.putTask(1, "n2", 1, cluster.HealthHealthy) }, 3},
		{
			"tags", func() {
				tagged := endpoint("web-http", "web")
				tagged["tags"] = map[string]any{"track": "next"}
				w.want(200, "PUT", "/v1/clusters/default/endpoints/web-http", tagged)
			}, 1,
		},
		{"a node", func() {
			w.put(map[string]any{"node/n2": cluster.Node{Name: "n2", State: cluster.NodeDown, Domain: "default"}})
		}, 0},
	} {
		answered := make(chan reply, 1)
		go func() { answered <- w.call("GET", fmt.Sprintf("%s?index=%d&wait=1m", path, page.Index), nil) }()
		tt.change()
		r := <-answered
		before := page.Index
		page = read[api.Page[api.EndpointAddress]](t, r)
		if r.status != 200 || len(page.Items) != tt.want || page.Index <= before {
			t.Fatalf("%s: got status %d, %v", tt.name, r.status, addressTexts(page))
		}
	}
	// The wait ends in time, without a change.
	same := read[api.Page[api.EndpointAddress]](t,
		w.want(200, "GET", fmt.Sprintf("%s?index=%d&wait=20ms", path, page.Index), nil))
	if len(same.Items) != 0 {
		t.Errorf("got %v", addressTexts(same))
	}
	w.want(204, "DELETE", "/v1/clusters/default/endpoints/web-http", nil)
	if last := w.lastEvent(); last.Type != "endpoint.deleted" || last.Owner.Name != "web-http" {
		t.Errorf("got event %+v", last)
	}
	w.want(404, "GET", path, nil)
	w.want(404, "GET", "/v1/clusters/default/endpoints/web-http", nil)
	w.want(404, "DELETE", "/v1/clusters/default/endpoints/web-http", nil)
}

// TestEndpointAdmission refuses names that DNS would have two answers for, and references that lead nowhere. All faults
// of an apply come together.
func TestEndpointAdmission(t *testing.T) {
	w := endpointWorld(t)
	put := func(status int, name string, e map[string]any) reply {
		t.Helper()
		return w.want(status, "PUT", "/v1/clusters/default/endpoints/"+name, e)
	}
	for _, tt := range []struct {
		got  reply
		want string
	}{
		{
			put(422, "api", endpoint("api", "nobody")),
			"service: there is no service nobody in cluster default: apply it before the endpoint, or together with it",
		},
		{
			put(422, "api", map[string]any{"service": "web", "port": "grpc"}),
			"port: is grpc, and the definition web@1 of service web has no port of this name: want one of http, admin",
		},
		{
			put(422, "web", endpoint("web", "web")),
			"name: is the name of the service, too, which DNS answers already: choose another, such as \"web-http\"",
		},
	} {
		if got := tt.got.faults(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	w.want(201, "PUT", "/v1/clusters/default/services/api", service("api", "web@1", 1))
	if got := put(409, "api", endpoint("api", "web")).faults(); !strings.Contains(got,
		"name: api is the name of a service of cluster default, and DNS answers") {
		t.Errorf("the name of a service: %s", got)
	}
	put(201, "front", endpoint("front", "web"))
	if got := w.want(409, "PUT", "/v1/clusters/default/services/front", service("front", "web@1", 1)).faults(); got !=
		"name: front is the name of an endpoint of cluster default, and DNS answers the names of services and "+
			"endpoints alike: choose another, or delete the endpoint first" {
		t.Errorf("the name of an endpoint: %s", got)
	}
	w.want(201, "PUT", "/v1/clusters/default/jobs/front", job("front", "web@1", 1)) // jobs have no names in DNS

	// A set refers to its own services, and names all faults.
	got := w.want(422, "POST", "/v1/apply", manifestsOf(
		"Service", service("shop", "web@1", 1), "Endpoint", endpoint("shop-http", "shop"),
		"Endpoint", map[string]any{"name": "shop", "service": "web", "port": "none"},
		"Endpoint", endpoint("lost", "nobody"))).faults()
	for _, want := range []string{
		"objects[2].name: shop is the name of a service", "objects[2].port: is none, and",
		"objects[3].service: there is no",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	w.want(200, "POST", "/v1/apply", manifestsOf(
		"Endpoint", endpoint("shop-http", "shop"), "Service", service("shop", "web@1", 1)))

	// The same write changes nothing, even when the service has gone.
	first := read[api.EndpointView](t, w.want(200, "GET", "/v1/clusters/default/endpoints/shop-http", nil))
	w.put(map[string]any{"service/default/shop": nil})
	put(200, "shop-http", endpoint("shop-http", "shop"))
	second := read[api.EndpointView](t, w.want(200, "GET", "/v1/clusters/default/endpoints/shop-http", nil))
	if second.Revision != first.Revision || second.Status.Message != "there is no service shop" {
		t.Errorf("got %+v, want revision %d", second, first.Revision)
	}
	// An endpoint belongs to its cluster.
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	if got := w.call("PUT", "/v1/clusters/blue/endpoints/web-http", endpoint("web-http", "web")).faults(); !strings.
		Contains(got, "there is no service web in cluster blue") {
		t.Errorf("a service of another cluster: %s", got)
	}
	w.want(201, "PUT", "/v1/clusters/blue/services/web", service("web", "web@1", 1))
	w.want(201, "PUT", "/v1/clusters/blue/endpoints/web-http", endpoint("web-http", "web"))
	w.put(map[string]any{"service/blue/web": nil})
	if got := w.want(409, "DELETE", "/v1/clusters/blue", nil); !strings.Contains(string(got.body),
		"cluster blue still has endpoint web-http") {
		t.Errorf("a cluster with an endpoint: %s", got.body)
	}
}

// TestEndpointsOfOtherClusters: a token of another cluster is refused, with the same answer whether the endpoint exists
// or not, and a list of all clusters has none of it.
func TestEndpointsOfOtherClusters(t *testing.T) {
	s, red, blue := limits(t)
	d := listening("open", 1, "stable")
	s.want(201, "PUT", "/v1/definitions/open/1", d)
	s.want(201, "PUT", "/v1/clusters/red/services/shop", service("shop", "open@1", 1))
	s.want(201, "PUT", "/v1/clusters/red/endpoints/web-http", endpoint("web-http", "shop"))
	for _, suffix := range []string{"", "/addresses", "/addresses?index=1&wait=1s"} {
		known := s.ask(s.plain, blue, "GET", "/v1/clusters/red/endpoints/web-http"+suffix, nil)
		unknown := s.ask(s.plain, blue, "GET", "/v1/clusters/red/endpoints/web-grpc"+suffix, nil)
		if diff := cmp.Diff(known.problem(), unknown.problem()); known.status != 403 || unknown.status != 403 ||
			diff != "" {
			t.Errorf("%s: status %d and %d, problems differ:\n%s", suffix, known.status, unknown.status, diff)
		}
		if got := s.ask(s.plain, red, "GET", "/v1/clusters/red/endpoints/web-http"+suffix, nil); got.status != 200 {
			t.Errorf("%s: its own cluster: status %d: %s", suffix, got.status, got.body)
		}
	}
	for token, want := range map[string]int{red: 1, blue: 0} {
		got := s.ask(s.plain, token, "GET", "/v1/endpoints", nil)
		if page := read[api.Page[api.EndpointView]](t, got); len(page.Items) != want {
			t.Errorf("got %d endpoints of all clusters, want %d", len(page.Items), want)
		}
	}
	// A submitter of another cluster gets one answer for services and endpoints that exist and that do not.
	other := s.access(cluster.RoleSubmitter, "blue")
	texts := map[string]bool{}
	for _, name := range []string{"shop", "nobody", "web-http"} {
		e := endpoint("probe", name)
		e["cluster"] = "red"
		for _, dry := range []bool{false, true} {
			ask := manifestsOf("Endpoint", e)
			ask["dry_run"] = dry
			got := s.ask(s.plain, other, "POST", "/v1/apply", ask)
			p := got.problem()
			texts[p.Detail+p.Title+fmt.Sprint(p.Faults)] = true
			if got.status != 403 {
				t.Errorf("%s: status %d: %s", name, got.status, got.body)
			}
		}
	}
	if len(texts) != 1 {
		t.Errorf("the answers differ: %v", texts)
	}
	if got := s.ask(s.plain, blue, "PUT", "/v1/clusters/blue/endpoints/x", endpoint("x", "web")); got.status != 403 {
		t.Errorf("a viewer wrote an endpoint: status %d", got.status)
	}
}

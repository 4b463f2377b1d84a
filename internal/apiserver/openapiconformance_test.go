package apiserver

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// TestAnswersFitTheirDescription validates answers of all kinds against the schemas of the OpenAPI document.
func TestAnswersFitTheirDescription(t *testing.T) {
	w := busy(t)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.server.documents.spec.JSON))
	if err != nil {
		t.Fatal(err)
	}
	w.put(map[string]any{"rebalance/00000000000000000007": cluster.Rebalancing{
		ID: 7, Domain: cluster.DefaultDomain, Created: noon, Ended: noon, Parallel: 5, Undoes: 6,
		State: cluster.RebalancingDone, Moves: []cluster.RebalancingMove{
			{
				Task: "default.web.1.0", Attempt: 1, UUID: "u", From: "n1", To: "n2", Cause: "even", Gain: 5,
				Message: "m",
				State:   cluster.MoveDone, At: noon,
			},
			{
				Task: "default.web.1.1", Attempt: 1, UUID: "v", From: "n1", To: "n2", State: cluster.MovePassed,
				Reason: cluster.ReasonPermit, Why: "w", At: noon,
			},
		},
	}})
	schemas := jsonschema.NewCompiler()
	if err := schemas.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	component := func(name string) *jsonschema.Schema {
		t.Helper()
		s, err := schemas.Compile("openapi.json#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	tests := []struct {
		method, path string
		body         any
		status       int
		schema       string
	}{
		{"GET", "/v1/version", nil, 200, "Version"},
		{"GET", "/readyz", nil, 200, "Readiness"},
		{"GET", "/v1/clusters", nil, 200, "ClusterViewPage"},
		{"GET", "/v1/definitions", nil, 200, "DefinitionViewPage"},
		{"GET", "/v1/definitions/web/1", nil, 200, "DefinitionView"},
		{"GET", "/v1/services", nil, 200, "ServiceViewPage"},
		{"GET", "/v1/clusters/default/services/web", nil, 200, "ServiceView"},
		{"GET", "/v1/jobs", nil, 200, "JobViewPage"},
		{"GET", "/v1/clusters/default/jobs/sum", nil, 200, "JobView"},
		{"GET", "/v1/tasks?all", nil, 200, "TaskViewPage"},
		{"GET", "/v1/nodes", nil, 200, "NodeViewPage"},
		{"GET", "/v1/events", nil, 200, "EventViewPage"},
		{"GET", "/v1/status", nil, 200, "Status"},
		{"GET", "/v1/servers", nil, 200, "ServerViewPage"},
		{"GET", "/v1/recovery", nil, 200, "RecoveryView"},
		{"GET", "/v1/domains/default", nil, 200, "DomainView"},
		{"POST", "/v1/domains/default/reschedule", `{"for": "1m"}`, 200, "DomainView"},
		{"GET", "/v1/config", nil, 200, "Settings"},
		{"POST", "/v1/nodes/n1/drain", `{"deadline": "1h"}`, 200, "NodeView"},
		{"GET", "/v1/nodes/n1", nil, 200, "NodeView"},
		{"POST", "/v1/apply", manifestsOf("Service", service("web", "web@1", 9)), 200, "ApplyReply"},
		{"PUT", "/v1/clusters/default/crons/backup", cronOf("backup", "@daily"), 201, "CronView"},
		{"POST", "/v1/clusters/default/crons/backup/run", nil, 201, "JobView"},
		{"GET", "/v1/crons", nil, 200, "CronViewPage"},
		{"PUT", "/v1/clusters/default/endpoints/web-http", endpoint("web-http", "web"), 201, "EndpointView"},
		{"GET", "/v1/endpoints", nil, 200, "EndpointViewPage"},
		{"GET", "/v1/clusters/default/endpoints/web-http/addresses", nil, 200, "EndpointAddressPage"},
		{"PUT", "/v1/clusters/default/services/web", wholeService(), 200, "ServiceView"},
		{"GET", "/v1/clusters/default/services/web/rollout", nil, 200, "RolloutView"},
		{"POST", "/v1/clusters/default/services/web/rollout/pause", nil, 200, "RolloutView"},
		{"GET", "/v1/clusters/default/services/web/rollout/history", nil, 200, "RolloutHistory"},
		{"GET", "/v1/clusters/default/services/web/scale", nil, 200, "ScaleView"},
		{"GET", "/v1/clusters/default/services/web/explain", nil, 200, "Explanation"},
		{"GET", "/v1/tasks/default.web.1.2/explain", nil, 200, "Explanation"},
		{"GET", "/v1/rebalance?settle=0s", nil, 200, "Rebalance"},
		{"GET", "/v1/rebalancings", nil, 200, "RebalancingBriefPage"},
		{"GET", "/v1/rebalancings/last", nil, 200, "RebalancingView"},
		{
			"PUT", "/v1/reservations/week",
			`{"nodes": ["n1"], "until": "2999-01-01T00:00:00Z", "from": "2998-06-01T00:00:00Z", "labels": {"team": "ml"}}`, 201, "ReservationView",
		},
		{"PUT", "/v1/pools/gpu", `{"strategy": "whole"}`, 201, "PoolView"},
		{"GET", "/v1/pools/gpu", nil, 200, "PoolView"},
		{"GET", "/v1/pools", nil, 200, "PoolViewPage"},
		{"GET", "/v1/reservations", nil, 200, "ReservationViewPage"},
		{"POST", "/v1/apply", `{"x": 1}`, 422, "Problem"},
		{"GET", "/v1/clusters/none", nil, 404, "Problem"},
		{"DELETE", "/v1/clusters/default/jobs/sum", nil, 202, "JobView"},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			got := w.want(test.status, test.method, test.path, test.body)
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(got.body))
			if err != nil {
				t.Fatal(err)
			}
			if err := component(test.schema).Validate(value); err != nil {
				t.Errorf("%v\nin %s", err, got.body)
			}
		})
	}
	t.Run("stored records", func(t *testing.T) { recordsFit(t, w) })
	wrong, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"version": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	if component("Version").Validate(wrong) == nil {
		t.Error("the schema takes anything")
	}
	text := w.want(200, "GET", "/v1/manifest.schema.json", nil).body
	manifests, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.AddResource("manifest.schema.json", manifests); err != nil {
		t.Fatal(err)
	}
	if _, err := schemas.Compile("manifest.schema.json"); err != nil {
		t.Errorf("the served schema of manifests: %v", err)
	}
	var served any
	if err := json.Unmarshal(w.want(200, "GET", "/openapi.json", nil).body, &served); err != nil {
		t.Error(err)
	}
}

// recordsFit validates all records of the store against the schema in the reference.
func recordsFit(t *testing.T, w *world) {
	schemas := jsonschema.NewCompiler()
	schemas.AssertFormat()
	records, err := schemas.Compile("../../docs/reference/records.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	all, err := w.engine.List(t.Context(), store.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	nouns := map[string]bool{}
	for _, r := range all.Records {
		key := strings.TrimPrefix(r.Key, store.DefaultPrefix)
		noun, _, _ := strings.Cut(key, "/")
		nouns[noun] = true
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.Value))
		if err != nil {
			t.Fatal(err)
		}
		if err := records.Validate(map[string]any{key: value}); err != nil {
			t.Errorf("%v\nin %s", err, r.Value)
		}
	}
	if len(nouns) < 15 {
		t.Errorf("records of %d nouns: this test looks at too little", len(nouns))
	}
}

// wholeService returns a service that sets every part of its policies, with portions as numbers and as text.
func wholeService() map[string]any {
	svc := service("web", "web@1", 3)
	svc["update"] = map[string]any{
		"max_surge": 2, "min_healthy": "75%", "parallelism": 1, "stagger": "5s", "order": "start-first",
		"canaries": "25%", "auto_promote": true,
		"healthy_deadline": "1m", "progress_deadline": "2m", "auto_rollback": false,
		"gates": []any{map[string]any{
			"name": "errors", "prometheus": "http://prometheus.example", "query": "errors",
			"pass": "value < 0.1",
		}},
	}
	svc["reschedule"] = map[string]any{"limit": 5, "window": "10m", "delay": "2s"}
	svc["scaling"] = map[string]any{
		"min": 1, "max": 6, "targets": []any{map[string]any{"metric": "cpu", "target": 70.5}},
		"up": map[string]any{"step": "50%"}, "down": map[string]any{"window": "10m", "step": 1, "every": "1m"},
		"schedules": []any{map[string]any{"cron": "0 8 * * 1-5", "zone": "Europe/Paris", "min": 3}},
	}
	return svc
}

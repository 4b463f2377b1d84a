package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// privileged returns, by permission, a definition that needs it.
func privileged() map[cluster.Permission]string {
	text := func(container, rest string) string {
		return `{"name": "d", "version": 1, "containers": [{"name": "main", "image": "web:1", "command": ["run"]` +
			container + `}]` + rest + `}`
	}
	const apart = `, "network": "none"`
	return map[cluster.Permission]string{
		cluster.PermitRoot:         text(`, "user": "root"`, apart),
		cluster.PermitNoIsolation:  text(`, "isolation": "none"`, apart),
		cluster.PermitCapabilities: text(`, "capabilities": ["NET_ADMIN"]`, apart),
		cluster.PermitDevices:      text(`, "resources": {"devices": [{"type": "gpu"}]}`, apart),
		cluster.PermitHostPath: text(`, "mounts": [{"volume": "v", "path": "/v"}]`,
			apart+`, "volumes": [{"name": "v", "host": "/etc"}]`),
		cluster.PermitHostNetwork: text(``, ``),
	}
}

// setOf returns an apply of a definition and an object that runs it.
func setOf(definition string, kind cluster.Kind, spec string) string {
	return fmt.Sprintf(`{"objects": [{"kind": "TaskDefinition", "spec": %s}, {"kind": %q, "spec": %s}]}`, definition,
		kind, spec)
}

const (
	serviceOfD = `{"cluster": "shop", "name": "s", "definition": "d@1", "count": 1}`
	jobOfD     = `{"cluster": "shop", "name": "j", "steps": [{"name": "all", "definition": "d@1"}]}`
	cronOfD    = `{"cluster": "shop", "name": "c", "schedules": ["@daily"], "job": {"steps": [{"name": "all", "definition": "d@1"}]}}`
)

// TestPermissionsAtAdmission checks that a submitter cannot use a missing permission of the cluster. The fault names
// the field, the permission and who may grant it. With the permission the same write succeeds.
func TestPermissionsAtAdmission(t *testing.T) {
	for permission, definition := range privileged() {
		t.Run(string(permission), func(t *testing.T) {
			t.Parallel()
			s := newSecure(t, func(c *Config) { c.Permissions = nil })
			s.want(201, "PUT", "/v1/clusters/shop", `{"name": "shop"}`)
			token := s.access(cluster.RoleSubmitter, "shop")
			for kind, spec := range map[cluster.Kind]string{
				cluster.KindService: serviceOfD, cluster.KindJob: jobOfD,
				cluster.KindCron: cronOfD,
			} {
				got := s.ask(s.plain, token, "POST", "/v1/apply", setOf(definition, kind, spec))
				var p api.Problem
				if err := json.Unmarshal(got.body, &p); err != nil || got.status != 422 && got.status != 400 ||
					len(p.Faults) != 1 {
					t.Fatalf("%s: status %d, want one fault: %s", kind, got.status, got.body)
				}
				for _, want := range []string{
					"needs the permission " + string(permission), "cluster shop",
					"ask an admin to add " + string(permission),
				} {
					if !strings.Contains(p.Faults[0].Message, want) {
						t.Errorf("%s: want %q in %v", kind, want, p.Faults[0])
					}
				}
				if !strings.HasSuffix(p.Faults[0].Path, "definition") {
					t.Errorf("%s: the fault is at %q", kind, p.Faults[0].Path)
				}
			}
			if _, there := s.tables.Snapshot().Definition(cluster.Ref{Name: "d", Version: 1}); there {
				t.Error("something was written")
			}
			s.want(200, "PUT", "/v1/clusters/shop", fmt.Sprintf(`{"name": "shop", "permissions": [%q]}`, permission))
			if got := s.ask(s.plain, token, "POST", "/v1/apply",
				setOf(definition, cluster.KindService, serviceOfD)); got.status != 200 {
				t.Errorf("with the permission: status %d: %s", got.status, got.body)
			}
		})
	}
}

// TestOnlyAdminsChangePermissions checks that only an admin changes permissions. A write of a cluster without
// permissions leaves them unchanged.
func TestOnlyAdminsChangePermissions(t *testing.T) {
	t.Parallel()
	s := newSecure(t, func(c *Config) { c.Permissions = nil })
	const with, without, none = `{"name": "shop", "permissions": ["root"]}`, `{"name": "shop", "preemption": "never"}`,
		`{"name": "shop", "permissions": []}`
	put := func(role cluster.Role, body string, want int) {
		t.Helper()
		if got := s.ask(s.plain, s.access(role), "PUT", "/v1/clusters/shop", body); got.status != want {
			t.Errorf("%s writes %s: status %d, want %d: %s", role, body, got.status, want, got.body)
		}
		apply := fmt.Sprintf(`{"objects": [{"kind": "Cluster", "spec": %s}]}`, body)
		if got := s.ask(s.plain, s.access(role), "POST", "/v1/apply", apply); (got.status == 403) != (want == 403) {
			t.Errorf("%s applies %s: status %d: %s", role, body, got.status, got.body)
		}
	}
	has := func(want int) {
		t.Helper()
		if c, _ := s.tables.Snapshot().Cluster("shop"); c.Value == nil || len(c.Value.Permissions) != want {
			t.Errorf("the cluster is %+v, want %d permissions", c.Value, want)
		}
	}
	put(cluster.RoleOperator, with, 403)
	put(cluster.RoleSubmitter, with, 403)
	put(cluster.RoleOperator, without, 201)
	has(0)
	put(cluster.RoleAdmin, with, 200)
	has(1)
	put(cluster.RoleOperator, without, 200)
	has(1)
	put(cluster.RoleOperator, none, 403)
	put(cluster.RoleAdmin, none, 200)
	has(0)
}

// TestPermissionsThatWereTaken checks that specs and earlier versions do not start again, or grow, after the cluster
// has lost a permission. Changes without new tasks continue.
func TestPermissionsThatWereTaken(t *testing.T) {
	t.Parallel()
	s := newSecure(t, func(c *Config) { c.Permissions = nil })
	const (
		with    = `{"name": "shop", "permissions": ["root"]}`
		without = `{"name": "shop", "permissions": []}`
		scaled  = `{"cluster": "shop", "name": "scaled", "definition": "d@1", "count": 2,
			"scaling": {"min": 1, "max": 4, "schedules": [{"cron": "@daily", "min": 1}]}}`
		plainService = `{"cluster": "shop", "name": "undone", "definition": "plain@1", "count": 1}`
	)
	root := privileged()[cluster.PermitRoot]
	plain := strings.Replace(strings.Replace(root, `"name": "d"`, `"name": "plain"`, 1), `, "user": "root"`, "", 1)
	s.want(201, "PUT", "/v1/clusters/shop", with)
	for _, set := range []string{
		setOf(root, cluster.KindService, serviceOfD),
		setOf(root, cluster.KindService, scaled),
		setOf(root, cluster.KindService, strings.Replace(serviceOfD, `"s"`, `"undone"`, 1)),
		setOf(root, cluster.KindService, strings.Replace(serviceOfD, `"s"`, `"stopped"`, 1)),
		setOf(root, cluster.KindJob, jobOfD),
		setOf(root, cluster.KindCron, cronOfD),
	} {
		s.want(200, "POST", "/v1/apply", set)
	}
	s.want(200, "POST", "/v1/clusters/shop/services/stopped/stop", nil)
	s.want(200, "POST", "/v1/clusters/shop/crons/c/suspend", nil)
	e, _ := s.tables.Snapshot().Service("shop", "undone")
	s.want(200, "POST", "/v1/apply", setOf(plain, cluster.KindService, plainService))
	s.put(map[string]any{"rollout/shop/undone": cluster.Rollout{Version: cluster.Version{
		Generation: e.Value.Generation, Definition: e.Value.Definition, State: cluster.RolloutComplete,
	}}})
	s.want(200, "PUT", "/v1/clusters/shop", without)
	token := s.access(cluster.RoleSubmitter, "shop")
	ask := func(path, body string) reply {
		t.Helper()
		if body == "" {
			return s.ask(s.plain, token, "POST", "/v1/clusters/shop/"+path, nil)
		}
		return s.ask(s.plain, token, "POST", "/v1/clusters/shop/"+path, body)
	}
	needing := []struct{ path, body string }{
		{"services/stopped/start", ""},
		{"services/s/restart", ""},
		{"services/s/scale", `{"count": 2}`},
		{"services/scaled/scale", `{"count": 3}`},
		{"services/scaled/scale", `{"max": 5}`},
		{"services/scaled/scale", `{"min": 2}`},
		{"services/scaled/scale", `{"min": 3, "max": 3}`},
		{"services/undone/rollout/undo", fmt.Sprintf(`{"generation": %d}`, e.Value.Generation)},
		{"jobs/j/restart", ""},
		{"crons/c/resume", ""},
		{"crons/c/run", ""},
	}
	for _, c := range needing {
		if got := ask(c.path, c.body); got.status < 400 ||
			!strings.Contains(string(got.body), "needs the permission root") {
			t.Errorf("%s %s: status %d, want a refusal: %s", c.path, c.body, got.status, got.body)
		}
	}
	for _, c := range []struct{ path, body string }{
		{"services/s/scale", `{"count": 1}`},
		{"services/scaled/scale", `{"count": 1}`},
		{"services/scaled/scale", `{"max": 3}`},
		{"services/s/scale", `{"count": 0}`},
		{"services/s/stop", ""},
		{"crons/c/suspend", ""},
	} {
		if got := ask(c.path, c.body); got.status != 200 {
			t.Errorf("%s %s: status %d, want 200: %s", c.path, c.body, got.status, got.body)
		}
	}
	s.want(200, "PUT", "/v1/clusters/shop", with)
	for _, path := range []string{"services/s/start", "crons/c/resume"} {
		if got := ask(path, ""); got.status != 200 {
			t.Errorf("%s with the permission again: status %d: %s", path, got.status, got.body)
		}
	}
	if got := ask("services/s/scale", `{"count": 2}`); got.status != 200 {
		t.Errorf("scale with the permission again: status %d: %s", got.status, got.body)
	}
}

// TestScaleAboveTheCountThatScalingChose checks that the count of the spec needs the permission, too, if scaling has
// chosen a lower count since.
func TestScaleAboveTheCountThatScalingChose(t *testing.T) {
	t.Parallel()
	s := newSecure(t, func(c *Config) { c.Permissions = nil })
	s.want(201, "PUT", "/v1/clusters/shop", `{"name": "shop", "permissions": ["root"]}`)
	s.want(200, "POST", "/v1/apply", setOf(privileged()[cluster.PermitRoot], cluster.KindService,
		`{"cluster": "shop", "name": "s", "definition": "d@1", "count": 4,
			"scaling": {"min": 1, "max": 4, "schedules": [{"cron": "@daily", "min": 1}]}}`))
	s.want(200, "PUT", "/v1/clusters/shop", `{"name": "shop", "permissions": []}`)
	s.put(map[string]any{"scale/shop/s": cluster.Scale{Count: 1, From: 4}})
	token := s.access(cluster.RoleSubmitter, "shop")
	if got := s.ask(s.plain, token, "POST", "/v1/clusters/shop/services/s/scale", `{"count": 4}`); got.status < 400 ||
		!strings.Contains(string(got.body), "needs the permission root") {
		t.Errorf("status %d, want a refusal: %s", got.status, got.body)
	}
}

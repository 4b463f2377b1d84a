package apiserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// TestRolloutsThroughALaggingServer sends requests to a lagging server. A stale refusal, or a stale "nothing to do",
// would contradict the history.
func TestRolloutsThroughALaggingServer(t *testing.T) {
	tests := []struct {
		name   string
		ahead  func(a *world)
		verb   string
		body   any
		status int
		want   func(cluster.Service) bool
	}{
		{"canaries that became healthy a moment ago", func(a *world) {
			a.put(map[string]any{"rollout/default/web": cluster.Rollout{
				Version: versionOf(2, 2, cluster.RolloutCanary),
			}})
		}, "promote", nil, 200, func(s cluster.Service) bool { return s.Rollout.Promoted == 2 }},
		{"canaries of a version that is no more", func(a *world) {
			a.want(200, "PUT", webPath, service("web", "web@3", 3))
		}, "promote", nil, 409, func(s cluster.Service) bool { return s.Rollout.Promoted == 0 && s.Generation == 3 }},
		{"a pause that was resumed", func(a *world) {
			a.want(200, "POST", rolloutPath+"/pause", nil)
		}, "resume", nil, 200, func(s cluster.Service) bool { return !s.Rollout.Paused }},
		{"a version that failed a moment ago", func(a *world) {
			a.want(200, "PUT", webPath, service("web", "web@3", 3))
		}, "undo", map[string]int{"generation": 2}, 200, func(s cluster.Service) bool {
			return s.Definition.Version == 2 && s.Generation == 4
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, b, lag := newFleet(t)
			for n := 1; n <= 3; n++ {
				a.want(201, "PUT", fmt.Sprintf("/v1/definitions/web/%d", n), definition("web", n))
			}
			a.want(201, "PUT", webPath, service("web", "web@1", 3))
			a.want(200, "PUT", webPath, service("web", "web@2", 3))
			state := cluster.RolloutRolling
			if test.status == 409 {
				state = cluster.RolloutCanary
			}
			a.put(map[string]any{"rollout/default/web": cluster.Rollout{
				Version: versionOf(2, 2, state),
				History: []cluster.Version{versionOf(1, 1, cluster.RolloutComplete)},
			}})
			a.same(b)
			lag.hold()
			test.ahead(a)
			time.AfterFunc(50*time.Millisecond, lag.release)
			if got := b.call("POST", rolloutPath+"/"+test.verb, test.body); got.status != test.status {
				t.Errorf("status %d, want %d: %s", got.status, test.status, got.body)
			}
			a.want(200, "GET", webPath+"?consistent", nil)
			if !test.want(a.spec()) {
				t.Errorf("%+v", a.spec())
			}
		})
	}
}

// A promotion concurrent with a change: the promotion applies to its own version, or to none.
func TestPromotionAgainstAnotherVersion(t *testing.T) {
	a, b, _ := newFleet(t)
	for n := 1; n <= 3; n++ {
		a.want(201, "PUT", fmt.Sprintf("/v1/definitions/web/%d", n), definition("web", n))
	}
	a.want(201, "PUT", webPath, service("web", "web@1", 3))
	for round := range 10 {
		generation := a.spec().Generation
		a.put(map[string]any{"rollout/default/web": cluster.Rollout{
			Version: versionOf(generation, 1, cluster.RolloutCanary),
		}})
		a.same(b)
		done := make(chan reply, 1)
		go func() { done <- b.call("POST", rolloutPath+"/promote", nil) }()
		a.want(200, "PUT", webPath, service("web", fmt.Sprintf("web@%d", 2+round%2), 3))
		got := <-done
		a.want(200, "GET", webPath+"?consistent", nil)
		svc := a.spec()
		if svc.Generation != generation+1 || svc.Rollout.Promoted == svc.Generation {
			t.Fatalf("generation %d after %d, promoted %d", svc.Generation, generation, svc.Rollout.Promoted)
		}
		if got.status != 200 && got.status != 409 {
			t.Errorf("status %d: %s", got.status, got.body)
		}
	}
}

package draft

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestServiceEffect(t *testing.T) {
	of := func(version, count int, change ...func(*cluster.Service)) *cluster.Service {
		svc := &cluster.Service{Name: "web", Definition: cluster.Ref{Name: "web", Version: version}, Count: count}
		for _, do := range change {
			do(svc)
		}
		return svc
	}
	canaries := func(p cluster.Portion) func(*cluster.Service) {
		return func(svc *cluster.Service) { svc.Update.Canaries = &p }
	}
	quick := func(svc *cluster.Service) { svc.Update.Parallelism = &cluster.Portion{N: 50, Percent: true} }
	paused := func(svc *cluster.Service) { svc.Rollout.Paused = true }
	stopped := func(svc *cluster.Service) { svc.Stopped = true }
	daemon := func(svc *cluster.Service) { svc.Mode = cluster.ModeDaemon }
	restarted := func(svc *cluster.Service) { svc.Generation++ }
	tests := []struct {
		name     string
		old, svc *cluster.Service
		want     string
	}{
		{"new", nil, of(1, 1), "starts 1 task of web@1"},
		{"new, on each node", nil, of(1, 0, daemon), "starts a task on each node of web@1"},
		{"new and stopped", nil, of(1, 1, stopped), "starts nothing: the service is stopped"},
		{"stopped", of(1, 2), of(1, 2, stopped), "stops 2 tasks"},
		{"another version", of(1, 3), of(2, 3), "rolls out web@2 over web@1, one task at a time"},
		{
			"in halves, after a quarter", of(1, 4), of(2, 4, quick, canaries(cluster.Portion{N: 25, Percent: true})),
			"rolls out web@2 over web@1, 2 tasks at a time after 1 canary",
		},
		{
			"blue and green", of(1, 4), of(2, 4, canaries(cluster.Portion{N: 4})),
			"rolls out web@2 over web@1, one task at a time after 4 canaries",
		},
		{
			"while it is paused", of(1, 3, paused), of(2, 5, paused),
			"rolls out web@2 over web@1, one task at a time, once it is resumed, and starts 2 more",
		},
		{"restarted", of(1, 3), of(1, 2, restarted), "replaces 3 tasks, one task at a time, and stops 1 task"},
		{"nothing", of(1, 3), of(1, 3), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := serviceEffect(test.old, test.svc, nil); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

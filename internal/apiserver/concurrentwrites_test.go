package apiserver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// commitHook runs another write just before the first commit that writes a key.
type commitHook struct {
	mu  sync.Mutex
	key string
	act func()
}

func (b *commitHook) before(_ context.Context, groups []store.Group) error {
	b.mu.Lock()
	hit := b.act != nil && slices.ContainsFunc(groups, func(g store.Group) bool {
		return slices.ContainsFunc(g.Ops, func(op store.Op) bool { return op.Key == store.DefaultPrefix+b.key })
	})
	act := b.act
	if hit {
		b.act = nil
	}
	b.mu.Unlock()
	if hit {
		act()
	}
	return nil
}

func (b *commitHook) on(key string, act func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.key, b.act = key, act
}

// TestBetweenDrawAndCommit runs another write between a request's draft and its commit.
func TestBetweenDrawAndCommit(t *testing.T) {
	var hook commitHook
	w := newWorldOn(t, memory.New(memory.Options{Hooks: memory.Hooks{Before: hook.before}}))
	w.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	var other reply
	act := func(method, path string, body any) func() {
		return func() { other = w.call(method, path, body) }
	}
	tests := []struct {
		name         string
		key          string
		act          func()
		method, path string
		body         any
		want, other  int
		says         string
	}{
		{
			"a cluster is deleted before its first service", "service/blue/web",
			act("DELETE", "/v1/clusters/blue", nil),
			"PUT", "/v1/clusters/blue/services/web", service("web", "web@1", 1), 422, 204, "there is no cluster blue",
		},
		{
			"a service is made before its cluster is marked", "cluster/green",
			act("PUT", "/v1/clusters/green/services/web", service("web", "web@1", 1)),
			"DELETE", "/v1/clusters/green", nil, 409, 201, "still has service web",
		},
		{
			"a job takes the name", "service/default/both",
			act("PUT", "/v1/clusters/default/jobs/both", job("both", "web@1", 1)),
			"PUT", "/v1/clusters/default/services/both", service("both", "web@1", 1), 409, 201, "is the name of a job",
		},
		{
			"a service takes the name", "job/default/pair",
			act("PUT", "/v1/clusters/default/services/pair", service("pair", "web@1", 1)),
			"PUT", "/v1/clusters/default/jobs/pair", job("pair", "web@1", 1), 409, 201, "is the name of a service",
		},
		{
			"another content takes the version", "task/api/1", act("PUT", "/v1/definitions/api/1", map[string]any{
				"labels": map[string]any{"a": "b"}, "containers": definition("api", 1)["containers"],
			}),
			"PUT", "/v1/definitions/api/1", definition("api", 1), 409, 201, "another content",
		},
		{
			"the same content takes the version", "task/api/2",
			act("PUT", "/v1/definitions/api/2", definition("api", 2)),
			"PUT", "/v1/definitions/api/2", definition("api", 2), 200, 201, "",
		},
		{
			"a newer version becomes the newest", "service/default/fresh",
			act("PUT", "/v1/definitions/web/2", definition("web", 2)),
			"PUT", "/v1/clusters/default/services/fresh", service("fresh", "web", 1), 201, 201, `"definition":"web@2"`,
		},
	}
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	w.want(201, "PUT", "/v1/clusters/green", `{}`)
	w.want(201, "PUT", "/v1/clusters/default", `{}`)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			other = reply{}
			hook.on(test.key, test.act)
			got := w.call(test.method, test.path, test.body)
			if other.status != test.other {
				t.Errorf("the other writer got %d, want %d: %s", other.status, test.other, other.body)
			}
			if got.status != test.want || !strings.Contains(string(got.body), test.says) {
				t.Errorf("got %d, want %d and %q: %s", got.status, test.want, test.says, got.body)
			}
		})
	}

	// After the mark of a deletion, nothing can be created in the cluster.
	w.want(201, "PUT", "/v1/clusters/red", `{}`)
	var late reply
	hook.on("cluster/red", func() { // the mark
		hook.on("cluster/red", func() { // the deletion
			late = w.call("PUT", "/v1/clusters/red/services/web", service("web", "web@1", 1))
		})
	})
	w.want(204, "DELETE", "/v1/clusters/red", nil)
	if late.status != 409 || !strings.Contains(string(late.body), "is being deleted") {
		t.Errorf("a service in a cluster that is being deleted: %d %s", late.status, late.body)
	}

	// A service is drafted before the mark and committed after it.
	w.want(201, "PUT", "/v1/clusters/grey", `{}`)
	marked, served, gone := make(chan struct{}), make(chan struct{}), make(chan reply, 1)
	hook.on("service/grey/web", func() {
		hook.on("cluster/grey", func() { // the mark
			hook.on("cluster/grey", func() { // the deletion
				close(marked)
				<-served
			})
		})
		go func() { gone <- w.call("DELETE", "/v1/clusters/grey", nil) }()
		<-marked
	})
	got := w.call("PUT", "/v1/clusters/grey/services/web", service("web", "web@1", 1))
	close(served)
	if deleted := <-gone; got.status != 409 || deleted.status != 204 {
		t.Errorf("a service got %d between mark and deletion, the deletion %d: %s", got.status, deleted.status,
			got.body)
	}
}

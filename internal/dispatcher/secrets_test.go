package dispatcher_test

import (
	"errors"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// A server without a key gives no secrets, and says so: nothing in its place.
func TestSecretsWithoutAKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		session := w.register("n1").Session
		reply, err := w.Secrets(t.Context(), transport.SecretsRequest{Node: "n1", Session: session, Task: cluster.TaskID("default.web.1.0"), UUID: "u"})
		if err == nil || errors.Is(err, transport.ErrRefused) || len(reply.Secrets) > 0 {
			t.Errorf("got %+v, %v; want an error that may pass", reply, err)
		}
	})
}

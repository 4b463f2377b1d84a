package apiserver

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestBackupsThatFail checks that the status shows why backups fail, and that /readyz shows that they fail. The server
// stays ready.
func TestBackupsThatFail(t *testing.T) {
	var fault atomic.Pointer[string]
	w := newWorld(t, func(c *Config) {
		c.Server.Backups = func() error {
			if text := fault.Load(); text != nil {
				return errors.New(*text)
			}
			return nil
		}
	})
	w.put(map[string]any{"leader/" + cluster.DefaultDomain: &cluster.Leader{Epoch: 1, Holder: "s1"}})
	for _, want := range []string{"", "the store could not be copied: /var/lib/berth/snapshots: no space"} {
		if want != "" {
			fault.Store(&want)
		}
		alarms := strings.Join(read[api.Status](t, w.want(200, "GET", "/v1/status", nil)).Alarms, "\n")
		if (want != "") != strings.Contains(alarms, "copied") || !strings.Contains(alarms, want) {
			t.Errorf("alarms: got %q, want %q among them", alarms, want)
		}
		r := read[api.Readiness](t, w.want(200, "GET", "/readyz", nil))
		if part := r.Parts["snapshots"]; !r.Ready || (part == "ok") != (want == "") || strings.Contains(part, "/var") {
			t.Errorf("ready %v, snapshots: %q, with %q", r.Ready, part, want)
		}
	}
	without := newWorld(t)
	if part, ok := read[api.Readiness](t, without.call("GET", "/readyz", nil)).Parts["snapshots"]; ok {
		t.Errorf("a server that makes no copies: %q", part)
	}
}

package etcdlog

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/berthd/berth/internal/store"
)

// TestContacts logs one line each for a member that is down and comes back, one that never answered, and members of
// another store, however often etcd repeats its messages.
func TestContacts(t *testing.T) {
	var said strings.Builder
	var c Contacts
	log := NewForMember(slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})), &c)
	why := zap.Error(errors.New("connection refused"))
	log.Info("not said")
	log.Info("peer became active", zap.String("peer-id", "a")) // as at every start
	for range 3 {
		log.Warn("lost TCP streaming connection with remote peer", zap.String("remote-peer-id", "a"))
		log.Warn("peer became inactive (message send to peer failed)", zap.String("peer-id", "a"), why)
		log.Warn("prober detected unhealthy status", zap.String("remote-peer-id", "a"), why)
		log.Warn("prober detected unhealthy status", zap.String("remote-peer-id", "b"), why)
		log.Warn("failed to reach the peer URL", zap.String("address", "https://10.0.0.1:7072/version"), why)
	}
	log.Info("peer became active", zap.String("peer-id", "a"))
	log.Info("peer became active", zap.String("peer-id", "a"))
	for range 2 {
		log.Warn("request cluster ID mismatch", zap.String("remote-peer-server-name", "s3"))
		log.Error("request sent was ignored due to cluster ID mismatch", zap.String("remote-peer-id", "b"))
	}
	want := `level=WARN msg="another member of the store is not reached; this is said once until it is back" member=a error="connection refused"
level=WARN msg="another member of the store is not reached; this is said once until it is back" member=b error="connection refused"
level=INFO msg="another member of the store is back" member=a
level=WARN msg="a server of another store calls this one: if this store was restored, that server is of the one before and must join again from an empty directory" server=s3
level=ERROR msg="another member belongs to another store: if that one was restored from a snapshot, this server's store was replaced; stop this server and join again from an empty directory" member=b
`
	if diff := cmp.Diff(want, said.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]store.EngineAlarm{{Name: store.AlarmReplaced, Member: "b"}}, c.Replaced()); diff != "" {
		t.Errorf("alarms (-want +got):\n%s", diff)
	}
	log.Info("peer became active", zap.String("peer-id", "b"))
	if got := c.Replaced(); got != nil {
		t.Errorf("alarms of a member that is reached: %v", got)
	}
}

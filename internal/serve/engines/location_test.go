package engines

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/serve/datadir"
)

func TestPasswordOfTheEnvironment(t *testing.T) {
	t.Setenv(PasswordVariable, "hidden")
	l := Location{User: "u"}
	if p, err := l.readPassword(); p != "hidden" || err != nil {
		t.Errorf("from the environment: got %q, error %v", p, err)
	}
	t.Setenv(PasswordVariable, "")
	if _, err := l.readPassword(); err == nil || !strings.Contains(err.Error(), PasswordVariable) {
		t.Errorf("no password: got error %v", err)
	}
}

// TestLocationIsRecorded records a location and reads it back. A record of an earlier build has no scheme.
func TestLocationIsRecorded(t *testing.T) {
	l := Location{Scheme: SchemeEtcd, Endpoints: []string{"http://h:2379"}, User: "u", Prefix: "prod/"}
	at, err := l.Record()
	if err != nil {
		t.Fatal(err)
	}
	earlier := &datadir.ExternalStore{Endpoints: at.Endpoints, User: at.User, Prefix: at.Prefix}
	for _, at := range []*datadir.ExternalStore{at, earlier} {
		if got := Recorded(at); fmt.Sprint(got) != fmt.Sprint(l) || at.URL() != "etcd://h:2379" {
			t.Errorf("got %+v at %s, want %+v", got, at.URL(), l)
		}
	}
	if at, err := (Location{}).Record(); at != nil || err != nil {
		t.Errorf("the server's own store: got %+v, error %v, want no record", at, err)
	}
}

func TestUnknownSchemeHasNoDriver(t *testing.T) {
	l := Location{Scheme: "redis", Endpoints: []string{"http://h:1"}}
	if e, err := l.Dial(t.Context(), slog.New(slog.DiscardHandler)); e != nil || err == nil ||
		!strings.Contains(err.Error(), "redis://") {
		t.Errorf("got engine %v and error %v, want that no driver is known", e, err)
	}
}

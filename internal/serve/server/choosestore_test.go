package server

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
)

// TestRememberedStore checks that server.json has all that a later start needs, without the password.
func TestRememberedStore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv(engines.PasswordVariable, "hidden")
	l := engines.Location{
		Scheme: engines.SchemeEtcd, Endpoints: []string{"https://h:2379"}, CA: "system", User: "u", PasswordFile: "pw",
		Prefix: "prod/",
	}
	m, err := l.Record()
	if err != nil {
		t.Fatal(err)
	}
	want := " --store etcd://h:2379 --store-ca system --store-user u --store-password-file " +
		filepath.Join(dir, "pw") + " --store-prefix prod/"
	if got := m.Flags(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s := &Home{Config: Config{DataDir: dir}, settings: &datadir.Settings{External: true, Store: m}}
	s.Config.Store = engines.Location{Scheme: engines.SchemeEtcd, Endpoints: l.Endpoints}
	if err := s.ChooseStore(); err == nil || !strings.Contains(err.Error(), `"prod/"`) {
		t.Errorf("another prefix: got error %v, want that it would begin another store", err)
	}
}

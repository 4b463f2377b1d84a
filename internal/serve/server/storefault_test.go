package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/store/etcd"
)

// TestStoreFaultsNameTheRemedy checks that each connection error of etcd has a hint.
func TestStoreFaultsNameTheRemedy(t *testing.T) {
	t.Parallel()
	c := &StoreConfig{CA: "ca.crt", Cert: "me.crt", Key: "me.key", User: "u", PasswordFile: "pw", Prefix: "prod/"}
	for fault, want := range map[etcd.Fault]string{
		etcd.FaultUnreachable: "--store", etcd.FaultPlain: "leave out --store-ca", etcd.FaultSecured: "--store-ca FILE",
		etcd.FaultOther:     "2379",
		etcd.FaultAuthority: "--store-ca ca.crt", etcd.FaultServerName: "--store", etcd.FaultServerExpiry: "clock",
		etcd.FaultCA:          "--store-ca",
		etcd.FaultCertificate: "--store-cert me.crt", etcd.FaultRefused: "--store-cert",
		etcd.FaultPassword: "--store-password-file pw",
		etcd.FaultUser:     "--store-user", etcd.FaultPermission: "readwrite prod/;  etcdctl user grant-role u",
		etcd.FaultVersion: "3.5.13",
		etcd.FaultSilent:  "etcdctl endpoint health",
	} {
		err := c.addHint(fmt.Errorf("connect to etcd: %w", &etcd.DialError{Fault: fault, Err: errors.New("cause")}))
		if hint := (&session.Session{}).Hint(err); !strings.Contains(hint, want) ||
			!strings.Contains(err.Error(), "cause") {
			t.Errorf("%s: got %v with the hint %q, want %q in it", fault, err, hint, want)
		}
	}
	if plain := errors.New("x"); c.addHint(plain) != plain || c.addHint(nil) != nil { //nolint:errorlint // the same error
		t.Error("another error was changed")
	}
}

// TestRememberedStore checks that server.json has all that a later start needs, without the password.
func TestRememberedStore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv(StorePasswordVariable, "hidden")
	c := StoreConfig{
		Endpoints: []string{"https://h:2379"}, CA: "system", User: "u", PasswordFile: "pw",
		Prefix: "prod/",
	}
	m, err := c.External()
	if err != nil {
		t.Fatal(err)
	}
	want := " --store etcd://h:2379 --store-ca system --store-user u --store-password-file " +
		filepath.Join(dir, "pw") + " --store-prefix prod/"
	if got := m.Flags(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s := &Server{Config: Config{DataDir: dir}, settings: &datadir.Settings{External: true, Store: m}}
	s.Config.Store = StoreConfig{Endpoints: c.Endpoints}
	if err := s.ChooseStore(); err == nil || !strings.Contains(err.Error(), `"prod/"`) {
		t.Errorf("another prefix: got error %v, want that it would begin another store", err)
	}
	c.PasswordFile = ""
	if p, err := c.readPassword(); p != "hidden" || err != nil {
		t.Errorf("from the environment: got %q, error %v", p, err)
	}
	t.Setenv(StorePasswordVariable, "")
	if _, err := c.readPassword(); err == nil || !strings.Contains(err.Error(), StorePasswordVariable) {
		t.Errorf("no password: got error %v", err)
	}
}

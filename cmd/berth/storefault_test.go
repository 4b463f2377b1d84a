package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/store/etcd"
)

// TestStoreFlags reads flags about an etcd that runs elsewhere which make no sense: each is named, and no password is
// repeated.
func TestStoreFlags(t *testing.T) {
	a := &app{stdout: io.Discard, stderr: io.Discard}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--store-user", "u"}, []string{"--store-user is only for", "--store is missing"}},
		{[]string{"--store-prefix", "p/"}, []string{"--store-prefix is only for"}},
		{[]string{"--store", "etcd://u:hidden@h"}, []string{"--store-user", "--store-password-file"}},
		{
			[]string{"--store", "etcd://h", "--store-user", "u"},
			[]string{"--store-user u wants a password", "BERTH_STORE_PASSWORD"},
		},
		{[]string{"--store", "etcd://h", "--store-password-file", file}, []string{"--store-user is not"}},
		{
			[]string{
				"--store", "etcd://h", "--store-user", "u", "--store-password-file", file + "-none",
				"--store-prefix", "p",
			},
			[]string{"--store-password-file " + file + "-none: no such file", `--store-prefix "p"`, "slash at the end"},
		},
		{
			[]string{"--store", "etcd://h", "--store-cert", file, "--store-ca", "system"},
			[]string{"--store-cert and --store-key belong together"},
		},
	} {
		for _, command := range []string{"server", "dev"} {
			root := a.newRootCommand()
			root.SetArgs(append([]string{command, "--data-dir", t.TempDir()}, c.args...))
			err := root.ExecuteContext(t.Context())
			if err == nil {
				t.Errorf("berth %s %v: got no error", command, c.args)
				continue
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("berth %s %v: got error %v, want %q in it", command, c.args, err, want)
				}
			}
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("berth %s %v: the error tells a password: %v", command, c.args, err)
			}
		}
	}
}

// TestStoreFaultsHaveAWayOut has each fault of the way to an etcd name a flag, or what to do there.
func TestStoreFaultsHaveAWayOut(t *testing.T) {
	t.Parallel()
	c := &storeConfig{ca: "ca.crt", cert: "me.crt", key: "me.key", user: "u", passwordFile: "pw", prefix: "prod/"}
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
		err := c.hinted(fmt.Errorf("connect to etcd: %w", &etcd.DialError{Fault: fault, Err: errors.New("cause")}))
		if hint := (&app{}).hint(err); !strings.Contains(hint, want) || !strings.Contains(err.Error(), "cause") {
			t.Errorf("%s: got %v with the hint %q, want %q in it", fault, err, hint, want)
		}
	}
	if plain := errors.New("x"); c.hinted(plain) != plain || c.hinted(nil) != nil { //nolint:errorlint // the very same
		t.Error("another error was changed")
	}
}

// TestRememberedStore keeps in server.json all that a later start needs, without the password.
func TestRememberedStore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv(storePasswordVariable, "hidden")
	c := storeConfig{
		endpoints: []string{"https://h:2379"}, ca: "system", user: "u", passwordFile: "pw",
		prefix: "prod/",
	}
	m, err := c.remembered()
	if err != nil {
		t.Fatal(err)
	}
	want := " --store etcd://h:2379 --store-ca system --store-user u --store-password-file " +
		filepath.Join(dir, "pw") + " --store-prefix prod/"
	if got := m.flags(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s := &server{config: serverConfig{dataDir: dir}, settings: &serverSettings{External: true, Store: m}}
	s.config.store = storeConfig{endpoints: c.endpoints}
	if err := s.chooseStore(); err == nil || !strings.Contains(err.Error(), `"prod/"`) {
		t.Errorf("another prefix: got error %v, want that it would begin another store", err)
	}
	c.passwordFile = ""
	if p, err := c.password(); p != "hidden" || err != nil {
		t.Errorf("from the environment: got %q, error %v", p, err)
	}
	t.Setenv(storePasswordVariable, "")
	if _, err := c.password(); err == nil || !strings.Contains(err.Error(), storePasswordVariable) {
		t.Errorf("no password: got error %v", err)
	}
}

// TestStoreOfTheLastStart: `berth dev` goes on with the store that runs elsewhere where the last start was on that, and
// says so; it neither leaves a store of its own nor another prefix for --store without a word.
func TestStoreOfTheLastStart(t *testing.T) {
	t.Parallel()
	start := func(dir string, c storeConfig) (*server, string, error) {
		said := ""
		s := &server{config: serverConfig{
			dataDir: dir, store: c, log: slog.New(slog.DiscardHandler),
			command: "berth dev", say: func(text string) { said += text },
		}}
		return s, said, s.chooseStore()
	}
	there := storeConfig{endpoints: []string{"http://h:2379"}, prefix: "prod/"}
	dir := t.TempDir()
	s, said, err := start(dir, there)
	if err != nil || said != "" {
		t.Fatalf("first: %v, and it said %q", err, said)
	}
	if err := s.rememberStore(); err != nil {
		t.Fatal(err)
	}
	s = &server{config: serverConfig{dataDir: dir, log: slog.New(slog.DiscardHandler), say: func(text string) {
		said += text
	}}}
	if err := s.chooseStore(); err != nil || fmt.Sprint(s.config.store) != fmt.Sprint(there) {
		t.Errorf("without --store: %v, and the store is %+v", err, s.config.store)
	}
	for _, word := range []string{"etcd://h:2379", "as at the last start", "--data-dir"} {
		if !strings.Contains(said, word) {
			t.Errorf("it said %q, want %q in it", said, word)
		}
	}
	var hinted *hintedError
	if _, _, err = start(dir, storeConfig{endpoints: there.endpoints}); !errors.As(err, &hinted) ||
		!strings.Contains(hinted.hint, "berth dev --data-dir "+dir+" --store etcd://h:2379 --store-prefix prod/") {
		t.Errorf("another prefix: got %v", err)
	}
	if _, _, err := start(dir, storeConfig{endpoints: []string{"http://i:2379"}, prefix: "prod/"}); err != nil {
		t.Errorf("the same store at another address: %v", err)
	}
	// A server that is made of it keeps its store.
	want := serverSettings{Name: "s1", API: "https://127.0.0.1:1", Peer: "https://127.0.0.1:2"}
	if err := newApp(nil, io.Discard, io.Discard).initServer(dir, want); err != nil {
		t.Fatal(err)
	}
	if have, err := readSettings(dir); err != nil || !have.External || have.Store == nil ||
		have.Store.Prefix != "prod/" {
		t.Errorf("the server's settings: %+v, %v", have, err)
	}
	// One that has a store of its own does not leave it for another.
	own := t.TempDir()
	if err := os.MkdirAll(filepath.Join(own, storeDir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err = start(own, there); !errors.As(err, &hinted) ||
		!strings.Contains(err.Error(), "--store names another") ||
		!strings.Contains(hinted.hint, "another --data-dir") {
		t.Errorf("with a store of its own: got %v", err)
	}
	// A file that cannot be read is not taken for none.
	torn := t.TempDir()
	if err := os.WriteFile(filepath.Join(torn, storeFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = start(torn, storeConfig{}); !errors.As(err, &hinted) || !strings.Contains(err.Error(), storeFile) {
		t.Errorf("with a torn file: got %v", err)
	}
}

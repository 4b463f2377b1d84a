package ssh

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// server is an SSH server that accepts one key. It runs no programs: the command "echo X" prints X, "fail" fails, and
// "hang" has no end.
type server struct {
	target Target
	key    ssh.Signer
	conns  atomic.Int32
	open   chan net.Conn // every connection
}

func newSigner(t *testing.T) (ssh.Signer, ed25519.PrivateKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, private
}

func startServer(t *testing.T, accepted ssh.PublicKey) *server {
	t.Helper()
	key, _ := newSigner(t)
	return startServerWith(t, accepted, key)
}

// startServerWith starts a server with several keys.
func startServerWith(t *testing.T, accepted ssh.PublicKey, keys ...ssh.Signer) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &server{
		key: keys[0], open: make(chan net.Conn, 16),
		target: Target{User: "u", Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port},
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(accepted.Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil //nolint:nilnil // no permissions are needed
	}}
	for _, key := range keys {
		config.AddHostKey(key)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn, config)
		}
	}()
	return s
}

func (s *server) serve(conn net.Conn, config *ssh.ServerConfig) {
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	s.conns.Add(1)
	s.open <- conn
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go runRequests(channel, requests)
	}
}

func runRequests(channel ssh.Channel, requests <-chan *ssh.Request) {
	for r := range requests {
		var line struct{ Text string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &line) != nil {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		if line.Text == "hang" {
			continue
		}
		status := struct{ Status uint32 }{}
		if word, ok := strings.CutPrefix(line.Text, "echo "); ok {
			_, _ = io.WriteString(channel, word+"\n")
		} else {
			_, _ = io.WriteString(channel.Stderr(), "first\nno such command\n")
			status.Status = 127
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
		_ = channel.Close()
	}
}

// client returns a connection to the server with a key.
func (s *server) client(t *testing.T, key ssh.Signer) *Conn {
	t.Helper()
	c := New(Config{
		Target: s.target, Auth: &Auth{signers: []ssh.Signer{key}},
		Keys: &HostKeys{Pinned: []string{ssh.FingerprintSHA256(s.key.PublicKey())}},
	})
	t.Cleanup(c.Close)
	return c
}

// TestRun runs commands over one connection.
func TestRun(t *testing.T) {
	t.Parallel()
	key, _ := newSigner(t)
	s := startServer(t, key.PublicKey())
	c := s.client(t, key)
	for range 3 {
		if got, err := c.Output(t.Context(), "echo hello"); got != "hello" || err != nil {
			t.Fatalf("got %q and error %v", got, err)
		}
	}
	_, err := c.Output(t.Context(), "fail")
	if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Status != 127 || exit.Text != "first\nno such command" {
		t.Errorf("a failed command has error %v", err)
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("the commands used %d connections, want 1", n)
	}
}

// TestLostConnection checks that a cut connection ends a command with ErrLost, and that the next command connects
// again.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	key, _ := newSigner(t)
	s := startServer(t, key.PublicKey())
	c := s.client(t, key)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context(), Command{Line: "hang"}) }()
	_ = (<-s.open).Close()
	if err := <-ended; !errors.Is(err, ErrLost) {
		t.Errorf("the command ended with %v, want ErrLost", err)
	}
	if got, err := c.Output(t.Context(), "echo again"); got != "again" || err != nil {
		t.Errorf("the next command: got %q and error %v", got, err)
	}
}

// TestCancelledRun checks that a command that has no end ends with its context.
func TestCancelledRun(t *testing.T) {
	t.Parallel()
	key, _ := newSigner(t)
	s := startServer(t, key.PublicKey())
	c := s.client(t, key)
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := c.Run(ctx, Command{Line: "hang"}); !errors.Is(err, enough) {
		t.Errorf("got error %v", err)
	}
}

// TestRefusedKey checks that a key that is not accepted gives ErrRefused.
func TestRefusedKey(t *testing.T) {
	t.Parallel()
	key, _ := newSigner(t)
	other, _ := newSigner(t)
	err := startServer(t, key.PublicKey()).client(t, other).Connect(t.Context())
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the user u (1 of files)") {
		t.Errorf("got error %v", err)
	}
}

// TestAlias gives a name that only an ssh_config has. The error says that no such file is read.
func TestAlias(t *testing.T) {
	t.Parallel()
	c := New(Config{
		Target: Target{User: "root", Host: "web1", Port: 22}, Auth: &Auth{}, Keys: &HostKeys{},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			lookup := &net.DNSError{Err: "no such host", Name: "web1", IsNotFound: true}
			return nil, &net.OpError{Op: "dial", Err: lookup}
		},
	})
	err := c.Connect(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such host") || !strings.Contains(err.Error(), "'ssh -G web1'") {
		t.Errorf("got %v", err)
	}
}

// TestHostKeys checks unknown, new, changed and pinned keys of machines.
func TestHostKeys(t *testing.T) {
	t.Parallel()
	key, _ := newSigner(t)
	s := startServer(t, key.PublicKey())
	file := filepath.Join(t.TempDir(), "ssh", "known_hosts")
	connect := func(keys *HostKeys) error {
		c := New(Config{Target: s.target, Auth: &Auth{signers: []ssh.Signer{key}}, Keys: keys})
		defer c.Close()
		return c.Connect(t.Context())
	}
	fingerprint := ssh.FingerprintSHA256(s.key.PublicKey())
	err := connect(&HostKeys{Files: []string{file}})
	if fault, ok := errors.AsType[*HostKeyError](err); !ok || fault.Fingerprint != fingerprint || len(fault.Known) > 0 {
		t.Errorf("an unknown key: %v", err)
	}
	if err := connect(&HostKeys{Files: []string{file}, AcceptNew: true}); err != nil {
		t.Errorf("a new key: %v", err)
	}
	if err := connect(&HostKeys{Files: []string{file}}); err != nil {
		t.Errorf("a key that was added: %v", err)
	}
	other, _ := newSigner(t)
	line := knownhosts.Line([]string{knownhosts.Normalize(s.target.address())}, other.PublicKey())
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, accept := range []bool{false, true} {
		err := connect(&HostKeys{Files: []string{file}, AcceptNew: accept})
		if fault, ok := errors.AsType[*HostKeyError](err); !ok || len(fault.Known) != 1 || fault.Known[0] != file+":1" {
			t.Errorf("a changed key, accept new ones %v: %v", accept, err)
		}
	}
	if err := connect(&HostKeys{Files: []string{file}, Pinned: []string{fingerprint}}); err != nil {
		t.Errorf("a pinned key: %v", err)
	}
	err = connect(&HostKeys{Pinned: []string{ssh.FingerprintSHA256(other.PublicKey())}})
	if fault, ok := errors.AsType[*HostKeyError](err); !ok || !fault.Pinned {
		t.Errorf("another pinned key: %v", err)
	}
}

// TestHostKeysOfSeveralKinds checks that each key of a machine may be pinned or known, and that ed25519 comes first.
func TestHostKeysOfSeveralKinds(t *testing.T) {
	t.Parallel()
	key, _ := newSigner(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var keys []ssh.Signer
	for _, private := range []any{long, curve} {
		signer, err := ssh.NewSignerFromKey(private)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, signer)
	}
	modern, _ := newSigner(t)
	keys = append(keys, modern)
	all, old := startServerWith(t, key.PublicKey(), keys...), startServerWith(t, key.PublicKey(), keys[:2]...)
	connect := func(s *server, accepted *HostKeys) error {
		c := New(Config{Target: s.target, Auth: &Auth{signers: []ssh.Signer{key}}, Keys: accepted})
		defer c.Close()
		return c.Connect(t.Context())
	}
	for _, k := range keys {
		pinned := &HostKeys{Pinned: []string{ssh.FingerprintSHA256(k.PublicKey())}}
		if err := connect(all, pinned); err != nil {
			t.Errorf("the pinned key of the kind %s: %v", k.PublicKey().Type(), err)
		}
		file := filepath.Join(t.TempDir(), "known_hosts")
		line := knownhosts.Line([]string{knownhosts.Normalize(all.target.address())}, k.PublicKey())
		if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := connect(all, &HostKeys{Files: []string{file}}); err != nil {
			t.Errorf("the known key of the kind %s: %v", k.PublicKey().Type(), err)
		}
	}
	for name, c := range map[string]struct {
		s    *server
		keys *HostKeys
		kind string
		file string
	}{
		"an unknown machine":     {all, &HostKeys{}, ssh.KeyAlgoED25519, "ssh_host_ed25519_key.pub"},
		"an unknown old machine": {old, &HostKeys{}, ssh.KeyAlgoECDSA256, "ssh_host_ecdsa_key.pub"},
		"another pinned key":     {all, &HostKeys{Pinned: []string{"SHA256:x"}}, ssh.KeyAlgoED25519, "--host-key"},
		"a pinned key of a kind that it lacks": {
			old, &HostKeys{Pinned: []string{ssh.FingerprintSHA256(modern.PublicKey())}}, ssh.KeyAlgoECDSA256,
			"--host-key",
		},
	} {
		err := connect(c.s, c.keys)
		if fault, ok := errors.AsType[*HostKeyError](err); !ok || fault.Kind != c.kind ||
			!strings.Contains(err.Error(), c.file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLoad reads key files: one that is missing, one with a passphrase, and a broken one.
func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, private := newSigner(t)
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("word"))
	if err != nil {
		t.Fatal(err)
	}
	locked, broken := filepath.Join(dir, "locked"), filepath.Join(dir, "broken")
	for name, content := range map[string][]byte{locked: pem.EncodeToMemory(block), broken: []byte("x")} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	missing := filepath.Join(dir, "missing")
	a := &Auth{Files: []string{locked, broken, missing}}
	if err := a.Load(); err == nil || strings.Count(err.Error(), "read the key") != 3 ||
		!strings.Contains(err.Error(), "ssh-add") {
		t.Errorf("all faults: %v", err)
	}
	a = &Auth{Files: []string{locked, missing}, Optional: true, SkipEncrypted: true}
	if err := a.Load(); err != nil || len(a.signers) != 0 {
		t.Errorf("got %d keys and error %v", len(a.signers), err)
	}
	a = &Auth{Files: []string{locked}, Passphrase: func(string) ([]byte, error) { return []byte("word"), nil }}
	if err := a.Load(); err != nil || len(a.signers) != 1 {
		t.Errorf("with a passphrase: got %d keys and error %v", len(a.signers), err)
	}
}

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Target{
		"h":              {"me", "h", 22},
		"root@h":         {"root", "h", 22},
		"root@h:2222":    {"root", "h", 2222},
		"fd00::1":        {"me", "fd00::1", 22},
		"a@[fd00::1]:23": {"a", "fd00::1", 23},
		"a@b@h":          {"a@b", "h", 22},
	} {
		got, err := ParseTarget(text, "me")
		if err != nil || got != want {
			t.Errorf("%s: got %+v and error %v, want %+v", text, got, err, want)
		}
		if again, err := ParseTarget(got.String(), ""); err != nil || again != got {
			t.Errorf("%s: its text %s is %+v, error %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "@h", "root@", "h:0", "h:x", "-oProxyCommand=x", "a b", "root@-h"} {
		if got, err := ParseTarget(text, "me"); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	if got := Quote("it's $HOME"); got != `'it'\''s $HOME'` {
		t.Errorf("got %s", got)
	}
}

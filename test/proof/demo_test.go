//go:build prove

package proof_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/store/etcd/etcdtest"
)

// checkDemo runs the demo and its checks on an external store, as `make demo-check DEV="--store …"` does. secret must
// not be printed. The demo installs its requirements and takes its ports. scripts/prove therefore runs these tests
// separately. CI runs `berth dev` on such stores (test/e2e).
func checkDemo(t *testing.T, secret string, store ...string) {
	t.Helper()
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), "go",
		append([]string{"run", "./examples/demo", "-check", "--", "--store-prefix", "demo/"}, store...)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it removes all that it made
	cmd.WaitDelay = time.Minute
	began := time.Now()
	err := cmd.Run()
	t.Logf("%s\nafter %v", &said, time.Since(began).Round(time.Second))
	if err != nil {
		t.Fatalf("the demo: %v", err)
	}
	if !strings.Contains(said.String(), "all checks passed") {
		t.Error("the demo does not say that all checks passed")
	}
	if strings.Contains(said.String(), secret) {
		t.Error("the demo prints the secret of the store")
	}
}

// checkKeys checks that a demo left keys in its store, all below its prefix.
func checkKeys(t *testing.T, keys []string) {
	t.Helper()
	if len(keys) < 10 {
		t.Fatalf("the demo left %v in the store: was it there at all?", keys)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "demo/berth") {
			t.Errorf("a key beside the prefix: %s", key)
		}
	}
}

// TestDemoOnEtcd runs the demo on an etcd with TLS, client certificates and users.
func TestDemoOnEtcd(t *testing.T) {
	etcd := etcdtest.Start(t, nil)
	etcd.Permit("demo/")
	password := filepath.Join(etcd.Authority.Dir, "password")
	if err := os.WriteFile(password, []byte(etcdtest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkDemo(t, etcdtest.Password, "--store", "etcd://"+etcd.Address, "--store-ca", etcd.Authority.CA(),
		"--store-cert", etcd.Cert, "--store-key", etcd.Key, "--store-user", etcdtest.Berth,
		"--store-password-file", password)
	found, err := etcd.As(etcdtest.Root).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	checkKeys(t, keys)
}

// TestDemoOnConsul runs the demo on a Consul with TLS, client certificates and ACLs.
func TestDemoOnConsul(t *testing.T) {
	consul := consultest.Start(t, 1, consultest.Options{ACLs: true, TLS: true})[0]
	token := consul.Permit(strings.Replace(consultest.Rules, `"berth"`, `"demo/berth"`, 1))
	file := filepath.Join(consul.Authority.Dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkDemo(t, token, "--store", "consul://"+consul.Address, "--store-ca", consul.Authority.CA(),
		"--store-cert", consul.Cert, "--store-key", consul.Key, "--store-token-file", file)
	keys, _, err := consul.Client().KV().Keys("", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	checkKeys(t, keys)
}

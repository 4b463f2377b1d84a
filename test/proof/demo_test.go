//go:build prove

package proof_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store/etcd/etcdtest"
)

// TestDemoOnExternalStore runs the demo and its checks on an external etcd with TLS, client certificates and users, as
// `make demo-check DEV="--store …"` does. It installs the demo's requirements and takes its ports. scripts/prove
// therefore runs it separately. CI runs `berth dev` on such an etcd (TestDevOnExternalStore).
func TestDemoOnExternalStore(t *testing.T) {
	etcd := etcdtest.Start(t, nil)
	etcd.Permit("demo/")
	password := filepath.Join(etcd.Authority.Dir, "password")
	if err := os.WriteFile(password, []byte(etcdtest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", "run", "./examples/demo", "-check", "--",
		"--store", "etcd://"+etcd.Address, "--store-ca", etcd.Authority.CA(), "--store-cert", etcd.Cert, "--store-key",
		etcd.Key,
		"--store-user", etcdtest.Berth, "--store-password-file", password, "--store-prefix", "demo/")
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
	if strings.Contains(said.String(), etcdtest.Password) {
		t.Error("the demo prints the password of the store")
	}
	keys, err := etcd.As(etcdtest.Root).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err = errors.Join(err, t.Context().Err()); err != nil || len(keys.Kvs) < 10 {
		t.Fatalf("the demo left %v in etcd, error %v: was it there at all?", keys, err)
	}
	for _, kv := range keys.Kvs {
		if !strings.HasPrefix(string(kv.Key), "demo/berth") {
			t.Errorf("a key beside the prefix: %s", kv.Key)
		}
	}
}

package containerd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/containerd"
)

// puller is an agent process that pulls an image, runs it and removes everything it made. A process reads the trusted
// certificates once, so each set of certificates needs a process of its own.
func puller(ctx context.Context, address, dir, image, secret string) error {
	ex, err := containerd.New(containerd.Config{
		Address:      address,
		Dir:          filepath.Join(filepath.Dir(filepath.Dir(address)), "collector"),
		CgroupParent: "/berth-test-containerd",
	})
	if err != nil {
		return err
	}
	defer ex.Close()
	s := executor.Spec{
		ID: "puller", Dir: filepath.Join(dir, "own"), LogDir: filepath.Join(dir, "log"),
		Container:   cluster.Container{Image: image, Pull: cluster.PullAlways},
		Credentials: func(string) (string, string) { return "ann", secret },
	}
	defer func() { _ = ex.Remove(ctx, s.ID) }() // the node reports what is left
	if err := ex.Prepare(ctx, s, nil); err != nil {
		return err
	}
	if _, err := ex.Start(ctx, s.ID); err != nil {
		return err
	}
	exit, err := ex.Wait(ctx, s.ID)
	if err == nil && !exit.Success() {
		err = fmt.Errorf("exit %+v", exit)
	}
	return err
}

// certificate makes a certificate that signs itself, for an address.
func certificate(t *testing.T, ip net.IP) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{ip}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A registry that is not this machine's own is spoken to by https, is trusted as the machine trusts, and gets its
// password.
func TestPullByHTTPS(t *testing.T) {
	n := newNode(t)
	// This address is not a loopback address, for which plain http would be allowed, but leads to this machine.
	ip := net.IPv4zero
	cert, authority := certificate(t, ip)
	var pulls atomic.Int64
	srv := httptest.NewUnstartedServer(askPassword(&pulls))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are to fail
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	host := net.JoinHostPort(ip.String(), port)
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(authority) {
		t.Fatal("the certificate is none")
	}
	over := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}
	t.Cleanup(over.CloseIdleConnections)
	push(t, host, over)
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trusted, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	nothing := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(nothing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, trust, secret string
		want                string // of the error; "" is none
	}{
		{"a stranger", nothing, "s3cret", "certificate"},
		{"a wrong password", trusted, "guess", "401"},
		{"trusted", trusted, "s3cret", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := pulls.Load()
			dir := t.TempDir()
			for _, sub := range []string{"own", "log"} {
				if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "pull", n.daemon.Address, dir, host+"/app:1", tc.secret)
			cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+tc.trust, "SSL_CERT_DIR="+filepath.Join(dir, "none"))
			out, err := cmd.CombinedOutput()
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%v: %s", err, out)
			case tc.want != "" && (err == nil || !strings.Contains(string(out), tc.want)):
				t.Errorf("got %v: %s, want an error about %q", err, out, tc.want)
			}
			if pulled := pulls.Load() > before; pulled != (tc.want == "") {
				t.Errorf("blobs were pulled: %v", pulled)
			}
			if tc.want != "" {
				return
			}
			if got := output(t, executor.Spec{LogDir: filepath.Join(dir, "log")}); got != "from the image\n" {
				t.Errorf("output %q", got)
			}
		})
	}
}

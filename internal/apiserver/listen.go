package apiserver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/privatefile"
	"github.com/berthd/berth/internal/unixsocket"
)

// Listener listens on an address that Listen accepts.
type Listener struct {
	net.Listener
	url string
	// secure is set if connections use TLS.
	secure bool
	// agentsOnly is set if the connections are for what agents need, and no other part of the API.
	agentsOnly bool
}

// URL returns the address for clients: "http://127.0.0.1:7070", "https://10.0.0.1:7071" or "unix:///run/berth.sock".
func (l *Listener) URL() string { return l.url }

// Listen opens an address of one of three kinds. "unix:///path", or a path, makes a socket of mode 0600, so that only
// this user can open it. A loopback address such as "127.0.0.1:7070" or "http://[::1]:0" requires the token. With a
// keeper of this server's certificate, any https address such as "https://:7071" requires a certificate or a token.
// Listen refuses other addresses, which would open the API to the network without encryption. It replaces a socket file
// without a listener.
func Listen(addr string, keeper ...*pki.Keeper) (*Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix://"); ok || strings.HasPrefix(addr, "/") {
		return listenUnix(path)
	}
	if hostport, ok := strings.CutPrefix(addr, "https://"); ok {
		return listenTLS(addr, strings.TrimSuffix(hostport, "/"), keeper)
	}
	hostport := strings.TrimSuffix(strings.TrimPrefix(addr, "http://"), "/")
	if strings.Contains(hostport, "://") {
		return nil, fmt.Errorf("listen on %s: want unix:///path, a loopback address such as 127.0.0.1:7070, "+
			"or https://host:port", addr)
	}
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: want unix:///path, a loopback address such as 127.0.0.1:7070, "+
			"or https://host:port", addr)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("listen on %s: only unix sockets and loopback addresses (127.0.0.1, ::1) are allowed: "+
			"anything else would open the API to the network without encryption; for other machines listen "+
			"on https://%s", addr, hostport)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return &Listener{Listener: l, url: "http://" + l.Addr().String()}, nil
}

// listenTLS opens an address for other machines.
func listenTLS(addr, hostport string, keeper []*pki.Keeper) (*Listener, error) {
	if len(keeper) == 0 || keeper[0] == nil {
		return nil, fmt.Errorf("listen on %s: this server has no certificate: `berth server init` makes the "+
			"first server of a control plane, `berth server join` another one", addr)
	}
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: want https://host:port, such as https://0.0.0.0:7071", addr)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return &Listener{
		Listener: tls.NewListener(l, keeper[0].ServerTLS()), url: "https://" + l.Addr().String(),
		secure: true,
	}, nil
}

// ListenForAgents returns a Listener for connections that the server has opened to passive nodes. Over them agents
// join, renew their certificates and work. All other requests are refused, so that no firewall is bypassed.
func ListenForAgents(l net.Listener, keeper *pki.Keeper) *Listener {
	return &Listener{
		Listener: tls.NewListener(l, keeper.ServerTLS()), url: l.Addr().String(),
		secure: true, agentsOnly: true,
	}
}

func listenUnix(path string) (*Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("listen on a unix socket: %w", err)
	}
	l, err := unixsocket.Listen(path, 0o600, unixsocket.NoGroup)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: a server serves there already: use that one, or start this one with "+
			"another --data-dir: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &Listener{Listener: l, url: "unix://" + path}, nil
}

// TokenFile returns the token in a file. If the file is missing, TokenFile creates it with a new token, readable by
// this user only. It refuses a file that others may read.
func TokenFile(path string) (string, error) {
	text, err := privatefile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newToken(path)
	}
	if err != nil {
		return "", fmt.Errorf("read token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < 16 {
		return "", fmt.Errorf("read token file: %s holds less than 16 characters", path)
	}
	return token, nil
}

func newToken(path string) (string, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	token := hex.EncodeToString(secret)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("make token file: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("make token file: %w", errors.Join(err, os.Remove(path)))
	}
	return token, nil
}

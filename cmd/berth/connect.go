package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/version"
)

// defaultAddr is where a server is looked for when nothing says otherwise.
const defaultAddr = "http://127.0.0.1:7373"

// systemSocket is the socket of the machine's own server.
const systemSocket = "/run/berth/api.sock"

// connect returns a client of the servers that the flags and the environment name.
func (a *app) connect() (*client.Client, error) {
	addr := a.findAddr()
	token, err := a.findToken(addr)
	if err != nil {
		return nil, err
	}
	trust, err := a.findTrust(addr)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{Addr: addr, Token: token, TLS: trust, Agent: "berth/" + version.String()})
	if err != nil {
		return nil, &usageError{"berth", err.Error()}
	}
	return c, nil
}

// findAddr returns the servers' addresses with commas between, in the order that the help of berth tells.
func (a *app) findAddr() string {
	switch {
	case len(splitList(a.addrs)) > 0:
		return strings.Join(splitList(a.addrs), ",")
	case a.env("BERTH_ADDR") != "":
		return strings.Join(splitList([]string{a.env("BERTH_ADDR")}), ",")
	}
	if dir := a.env("XDG_RUNTIME_DIR"); dir != "" {
		if path := filepath.Join(dir, "berth", "api.sock"); isSocket(path) {
			return "unix://" + path
		}
	}
	if addr := a.readConfig("addr"); addr != "" {
		return addr
	}
	if isSocket(systemSocket) {
		return "unix://" + systemSocket
	}
	return defaultAddr
}

// findToken returns the token for addresses. The token file of this user's own server is for this
// machine only.
func (a *app) findToken(addrs string) (string, error) {
	needed, far := false, false
	for addr := range strings.SplitSeq(addrs, ",") {
		u, err := url.Parse(addr)
		if err != nil || u.Scheme == "unix" {
			continue // the client says what is wrong with an address
		}
		needed = true
		ip := net.ParseIP(u.Hostname())
		far = far || u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
	}
	if !needed {
		return "", nil
	}
	if a.tokenFile != "" {
		return readSecret("--token-file", a.tokenFile)
	}
	if token := a.env("BERTH_TOKEN"); token != "" {
		return token, nil
	}
	if file := a.env("BERTH_TOKEN_FILE"); file != "" {
		return readSecret("BERTH_TOKEN_FILE", file)
	}
	if far {
		return "", nil
	}
	return a.readConfig("token"), nil
}

// readSecret reads a file with one secret, named by a flag or a variable.
func readSecret(what, path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", what, err)
	}
	secret := strings.TrimSpace(string(raw))
	if secret == "" {
		return "", fmt.Errorf("read %s: %s is empty", what, path)
	}
	return secret, nil
}

// findTrust says which authority https addresses are believed by; nil is the machine's own.
func (a *app) findTrust(addrs string) (*tls.Config, error) {
	if !strings.Contains(addrs, "https://") {
		return nil, nil //nolint:nilnil // nothing to believe
	}
	return trust(cmp.Or(a.caFile, a.env("BERTH_CA_FILE")), cmp.Or(a.caHash, a.env("BERTH_CA_HASH")))
}

// trust returns a configuration that believes servers of the authority in the file, or of the one with the hash; nil
// where neither is named: then the machine's own authorities count.
func trust(caFile, caHash string) (*tls.Config, error) {
	if caFile == "" && caHash == "" {
		return nil, nil //nolint:nilnil // the machine's authorities
	}
	if caFile == "" {
		pinned, err := client.PinCA(caHash)
		if err != nil {
			return nil, fmt.Errorf("read --ca-hash: %w: `berth server init` told it", err)
		}
		return pinned, nil
	}
	raw, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA file: %w", err)
	}
	believed, err := client.TrustCA(raw)
	if err != nil {
		return nil, &hintedError{
			fmt.Errorf("read the CA file: %s: %w", caFile, err),
			"Name the file pki/ca.crt of a server's data directory, or a copy of it.",
		}
	}
	if caHash != "" {
		hash, err := pki.Fingerprint(raw)
		if err != nil {
			return nil, fmt.Errorf("read the CA file: %s: %w", caFile, err)
		}
		if !strings.EqualFold(hash, strings.TrimSpace(caHash)) {
			return nil, fmt.Errorf("%s does not have the CA hash that is given, but %s", caFile, hash)
		}
	}
	return believed, nil
}

// configFile returns the path of one of this user's files for berth: "addr", the address of the server that
// `berth dev` runs, or "token", what it takes. The folder may not exist.
func configFile(name string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	return filepath.Join(dir, "berth", name), nil
}

// readConfig returns the text of a file of configFile, or "" if there is none.
func (a *app) readConfig(name string) string {
	path, err := configFile(name)
	if err != nil {
		return ""
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.tell("berth: warning: %s", said(err))
		}
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/version"
)

// defaultAddr is the address of last resort.
const defaultAddr = "http://127.0.0.1:7373"

// systemSocket is the socket of the machine's own server.
const systemSocket = "/run/berth/api.sock"

// Connect returns a client for the servers that the flags and the environment name.
func (s *Session) Connect() (*client.Client, error) {
	addr := s.FindAddresses()
	token, err := s.findToken(addr)
	if err != nil {
		return nil, err
	}
	trust, err := s.findTrust(addr)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{Addr: addr, Token: token, TLS: trust, Agent: "berth/" + version.String()})
	if err != nil {
		return nil, &UsageError{"berth", err.Error()}
	}
	return c, nil
}

// WithClient returns the action of a command that first connects to a server.
func (s *Session) WithClient(run func(context.Context, *client.Client, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := s.Connect()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}
}

// FindAddresses returns the servers' addresses, separated by commas. The help of berth documents the order of the
// sources.
func (s *Session) FindAddresses() string {
	switch {
	case len(SplitList(s.Addrs)) > 0:
		return strings.Join(SplitList(s.Addrs), ",")
	case s.Env("BERTH_ADDR") != "":
		return strings.Join(SplitList([]string{s.Env("BERTH_ADDR")}), ",")
	}
	if dir := s.Env("XDG_RUNTIME_DIR"); dir != "" {
		if path := filepath.Join(dir, "berth", "api.sock"); isSocket(path) {
			return "unix://" + path
		}
	}
	if addr := s.readConfig("addr"); addr != "" {
		return addr
	}
	if isSocket(systemSocket) {
		return "unix://" + systemSocket
	}
	return defaultAddr
}

// findToken returns the token for addresses. The token file of `berth dev` is only used for addresses on this machine.
func (s *Session) findToken(addrs string) (string, error) {
	needed, far := false, false
	for addr := range strings.SplitSeq(addrs, ",") {
		u, err := url.Parse(addr)
		if err != nil || u.Scheme == "unix" {
			continue // the client reports a wrong address
		}
		needed = true
		ip := net.ParseIP(u.Hostname())
		far = far || u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
	}
	if !needed {
		return "", nil
	}
	if s.TokenFile != "" {
		return datadir.ReadSecret("--token-file", s.TokenFile)
	}
	if token := s.Env("BERTH_TOKEN"); token != "" {
		return token, nil
	}
	if file := s.Env("BERTH_TOKEN_FILE"); file != "" {
		return datadir.ReadSecret("BERTH_TOKEN_FILE", file)
	}
	if far {
		return "", nil
	}
	return s.readConfig("token"), nil
}

// findTrust returns the TLS configuration for https addresses, or nil for the machine's authorities.
func (s *Session) findTrust(addrs string) (*tls.Config, error) {
	if !strings.Contains(addrs, "https://") {
		return nil, nil //nolint:nilnil // no flag names an authority
	}
	return TrustConfig(cmp.Or(s.CAFile, s.Env("BERTH_CA_FILE")), cmp.Or(s.CAHash, s.Env("BERTH_CA_HASH")))
}

// TrustConfig returns a TLS configuration that trusts the authority in caFile, or the one with the hash caHash. If both
// are empty it returns nil, and the machine's authorities count.
func TrustConfig(caFile, caHash string) (*tls.Config, error) {
	if caFile == "" && caHash == "" {
		return nil, nil //nolint:nilnil // the machine's authorities
	}
	if caFile == "" {
		pinned, err := client.PinCA(caHash)
		if err != nil {
			return nil, fmt.Errorf("read --ca-hash: %w: `berth server init` printed it", err)
		}
		return pinned, nil
	}
	raw, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA file: %w", err)
	}
	believed, err := client.TrustCA(raw)
	if err != nil {
		return nil, &hinted.Error{
			Err:  fmt.Errorf("read the CA file: %s: %w", caFile, err),
			Hint: "Name the file pki/ca.crt of a server's data directory, or a copy of it.",
		}
	}
	if caHash != "" {
		hash, err := pki.Fingerprint(raw)
		if err != nil {
			return nil, fmt.Errorf("read the CA file: %s: %w", caFile, err)
		}
		if !strings.EqualFold(hash, strings.TrimSpace(caHash)) {
			return nil, fmt.Errorf("the certificate in %s does not match --ca-hash: its hash is %s", caFile, hash)
		}
	}
	return believed, nil
}

// configFile returns the path of a file in the user's configuration folder: "addr", the address of `berth dev`, or
// "token", its token. The folder may not exist.
func configFile(name string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration folder: %w", err)
	}
	return filepath.Join(dir, "berth", name), nil
}

// readConfig returns the content of a configuration file, or "" if it does not exist.
func (s *Session) readConfig(name string) string {
	path, err := configFile(name)
	if err != nil {
		return ""
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.Messagef("berth: warning: %s", ErrorText(err))
		}
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

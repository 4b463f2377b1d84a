package session

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/contexts"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/version"
)

// defaultAddr is the address of last resort.
const defaultAddr = "http://127.0.0.1:7373"

// systemSocket is the socket of the machine's own server.
const systemSocket = "/run/berth/api.sock"

// Servers says which servers a command calls, and with which credentials.
type Servers struct {
	Env                       func(string) string
	Addrs                     []string
	ContextName               string
	TokenFile, CAFile, CAHash string

	isShared   bool           // every Connect returns the same connection, see Session.Repeat
	connection *client.Client // the shared connection, nil before the first Connect
	clients    *openClients   // nil in sessions that New did not make
}

// Connect returns a client for the servers that the flags, the environment or a context name.
func (s *Servers) Connect() (*client.Client, error) {
	if s.isShared && s.connection != nil {
		return s.connection, nil
	}
	to, err := s.FindTarget()
	if err != nil {
		return nil, err
	}
	c, err := s.ConnectTo(to)
	if s.isShared && err == nil {
		s.connection = c
	}
	return c, err
}

// ConnectTo returns a client for the servers of a target.
func (s *Servers) ConnectTo(to Target) (*client.Client, error) {
	token, err := s.findToken(to)
	if err != nil {
		return nil, err
	}
	if token != "" {
		if err := CheckProtected(to.Addresses); err != nil {
			return nil, err
		}
	}
	trust, err := s.findTrust(to)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{
		Addr: strings.Join(to.Addresses, ","), Token: token, TLS: trust, Agent: "berth/" + version.String(),
	})
	if err != nil {
		return nil, &UsageError{"berth", err.Error()}
	}
	if o := s.clients; o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.list = append(o.list, c)
	}
	return c, nil
}

// openClients are the clients that a command has made. Copies of a session share them.
type openClients struct {
	mu   sync.Mutex
	list []*client.Client
}

// Close closes the connections of the command.
func (s *Servers) Close() {
	o := s.clients
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.list {
		c.Close()
	}
	o.list = nil
}

// CheckProtected refuses addresses of other machines over http, because a token would cross the network unprotected.
func CheckProtected(addresses []string) error {
	for _, a := range addresses {
		u, err := url.Parse(a)
		if err != nil || u.Scheme != "http" {
			continue
		}
		host := u.Hostname()
		if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.Unmap().IsLoopback() {
			continue
		}
		return &hinted.Error{
			Err: fmt.Errorf("%s: no token is sent over http to another machine, where the network could read it", a),
			Hint: "Use the server's https address (port 7071) with --ca-hash, or a tunnel: 'ssh -L " +
				"7373:127.0.0.1:7373 " + host + "' and http://127.0.0.1:7373.",
		}
	}
	return nil
}

// WithClient returns the action of a command that first connects to a server.
func (s *Servers) WithClient(run func(context.Context, *client.Client, []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := s.Connect()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}
}

// Target is the control plane to which a command talks. Its context has no name if the addresses come from somewhere
// else.
type Target struct{ contexts.Context }

// FindTarget returns the target of the command. The help of berth documents the order of the sources.
func (s *Servers) FindTarget() (Target, error) {
	given := SplitList(s.Addrs)
	named := s.ContextName
	switch {
	case len(given) > 0 && named != "":
		return Target{}, &UsageError{"berth", "--addr and --context both name a server: give one of them"}
	case len(given) > 0:
		return targetOf(given...), nil
	case named == "":
		if list := SplitList([]string{s.Env("BERTH_ADDR")}); len(list) > 0 {
			return targetOf(list...), nil
		}
		named = s.Env("BERTH_CONTEXT")
	}
	path, err := contexts.Path()
	if err != nil && named == "" {
		return s.machineTarget(), nil // without a configuration folder there are no contexts
	}
	if err != nil {
		return Target{}, err
	}
	all, err := contexts.Load(path)
	if err != nil {
		return Target{}, err
	}
	if named == "" && all.Current == "" {
		return s.machineTarget(), nil
	}
	c, ok := all.Find(cmp.Or(named, all.Current))
	if !ok {
		return Target{}, UnknownContextError(cmp.Or(named, all.Current), all.Names())
	}
	return Target{c}, nil
}

// UnknownContextError returns the error for a context that does not exist.
func UnknownContextError(name string, known []string) error {
	return &hinted.Error{
		Err:  UnknownError("context", name, known),
		Hint: "Add it with 'berth login ADDRESS --context " + name + "', or choose one with 'berth context use'.",
	}
}

func targetOf(addresses ...string) Target {
	return Target{contexts.Context{Addresses: addresses}}
}

// machineTarget returns the server of this user or of this machine.
func (s *Servers) machineTarget() Target {
	if dir := s.Env("XDG_RUNTIME_DIR"); dir != "" {
		if path := filepath.Join(dir, "berth", "api.sock"); isSocket(path) {
			return targetOf("unix://" + path)
		}
	}
	if isSocket(systemSocket) {
		return targetOf("unix://" + systemSocket)
	}
	return targetOf(defaultAddr)
}

// FindAddresses returns the addresses of the target for messages, separated by commas, or "" if there is no target.
func (s *Servers) FindAddresses() string {
	to, err := s.FindTarget()
	if err != nil {
		return ""
	}
	return strings.Join(to.Addresses, ",")
}

// findToken returns the token for a target, or "" if it is reached over sockets only. The token of a context goes to
// its addresses only.
func (s *Servers) findToken(to Target) (string, error) {
	if !slices.ContainsFunc(to.Addresses, func(a string) bool { return !strings.HasPrefix(a, "unix://") }) {
		return "", nil
	}
	if s.TokenFile != "" {
		return datadir.ReadSecret("--token-file", s.TokenFile)
	}
	if to.Token != "" {
		return to.Token, nil
	}
	if to.TokenFile != "" {
		return datadir.ReadSecret("the token file of the context "+to.Name, to.TokenFile)
	}
	if token := s.Env("BERTH_TOKEN"); token != "" {
		return token, nil
	}
	if file := s.Env("BERTH_TOKEN_FILE"); file != "" {
		return datadir.ReadSecret("BERTH_TOKEN_FILE", file)
	}
	return "", nil
}

// findTrust returns the TLS configuration for https addresses, or nil for the machine's authorities.
func (s *Servers) findTrust(to Target) (*tls.Config, error) {
	if !slices.ContainsFunc(to.Addresses, func(a string) bool { return strings.HasPrefix(a, "https://") }) {
		return nil, nil //nolint:nilnil // no flag names an authority
	}
	if s.CAFile == "" && s.CAHash == "" && (to.CAFile != "" || to.CAHash != "") {
		return TrustConfig(to.CAFile, to.CAHash)
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

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

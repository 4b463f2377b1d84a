package login

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/contexts"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/datadir"
)

// maxToken limits the token that login reads, in bytes.
const maxToken = 4096

// loginCommand is `berth login`.
type loginCommand struct{ contextAddCommand }

// NewLoginCommand returns the command `berth login`.
func NewLoginCommand(sess *session.Session) *cobra.Command {
	l := &loginCommand{contextAddCommand{sess}}
	return &cobra.Command{
		Use: "login ADDRESS", Short: "Add a server as a context, with your token",
		Long: "Tries a server with your token, and stores both as a context, which becomes the current one. The\n" +
			"context has the name of --context, or that of the server's host. ADDRESS may be several addresses of\n" +
			"one control plane, separated by commas.\n\n" +
			"The token comes from --token-file, from a prompt on a terminal, or from standard input. An admin\n" +
			"creates it with 'berth token create'. A server on a unix socket needs none.\n\n" +
			"Plain http is only for this machine: over a network the token would be readable.\n" +
			"Over https, --ca-hash or --ca-file names the certificate authority of the servers. Without them, on a\n" +
			"terminal, login shows the hash of the server's authority and asks you to compare it with the one\n" +
			"that 'berth server init' printed.",
		Args: session.Arguments(1, 1, "the address of a server, such as https://s1.example:7070"),
		RunE: l.run,
	}
}

func (l *loginCommand) run(cmd *cobra.Command, args []string) error {
	c := contexts.Context{Name: l.ContextName, Addresses: session.SplitList(args), Cluster: l.Cluster}
	var list session.Faults
	if len(l.Addrs) > 0 {
		list.Add("--addr: give the address as the argument")
	}
	if c.Name == "" {
		c.Name = nameOf(c.Addresses)
	}
	checkName(&list, c.Name)
	for _, a := range c.Addresses {
		if _, err := client.New(client.Config{Addr: a}); err != nil {
			list.Add("%v", err)
		}
	}
	if len(c.Addresses) == 0 {
		list.Add("the address is empty: want the address of a server, such as https://s1.example:7070")
	}
	if err := list.Err(cmd); err != nil {
		return err
	}
	if err := session.CheckProtected(c.Addresses); err != nil {
		return err
	}
	if err := l.fillTrust(&c); err != nil {
		return err
	}
	if err := l.askTrust(cmd.Context(), &c); err != nil {
		return err
	}
	if err := l.askToken(cmd.Context(), &c); err != nil {
		return err
	}
	if err := l.try(cmd.Context(), c); err != nil {
		return err
	}
	if err := update(func(f *contexts.File) error {
		f.Set(c)
		f.Current = c.Name
		return nil
	}); err != nil {
		return err
	}
	l.Messagef("logged in: the context %s (%s) is the current one", c.Name, strings.Join(c.Addresses, ","))
	return nil
}

// nameOf returns the default name of a context: the host of its first address.
func nameOf(addresses []string) string {
	if len(addresses) == 0 {
		return "default"
	}
	u, err := url.Parse(addresses[0])
	if err != nil || u.Hostname() == "" {
		return "local"
	}
	return strings.ToLower(strings.ReplaceAll(u.Hostname(), ":", "-"))
}

// try reads the status of the control plane with the token of the context.
func (l *loginCommand) try(ctx context.Context, c contexts.Context) error {
	api, err := l.ConnectTo(session.Target{Context: c})
	if err != nil {
		return err
	}
	defer api.Close()
	_, err = api.Status(ctx)
	if client.StatusOf(err) == 401 {
		return &hinted.Error{
			Err:  errors.New("the server refuses the token; nothing was stored"),
			Hint: "An admin creates one with 'berth token create --role ROLE --name NAME'.",
		}
	}
	return err
}

// askToken sets the token, unless all servers are reached over sockets.
func (l *loginCommand) askToken(ctx context.Context, c *contexts.Context) (err error) {
	needed := false
	for _, a := range c.Addresses {
		needed = needed || !strings.HasPrefix(a, "unix://")
	}
	switch {
	case !needed:
		return nil
	case l.TokenFile != "":
		c.Token, err = datadir.ReadSecret("--token-file", l.TokenFile)
		return err
	}
	if in, ok := l.terminal(); ok {
		fmt.Fprint(l.Stderr, "Token: ")
		c.Token, err = readHidden(ctx, in)
		l.Messagef("")
		if err != nil {
			return err
		}
	} else {
		text, err := io.ReadAll(io.LimitReader(l.Stdin, maxToken))
		if err != nil {
			return fmt.Errorf("read the token from standard input: %w", err)
		}
		c.Token = strings.TrimSpace(string(text))
	}
	if c.Token == "" {
		return &session.UsageError{
			Command: "berth login", Message: "the token is empty: give it with --token-file, or on standard input",
		}
	}
	return nil
}

// readHidden reads a line from a terminal that does not show it. An interrupt ends it, and the terminal shows input
// again.
func readHidden(ctx context.Context, in *os.File) (string, error) {
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	type line struct {
		text []byte
		err  error
	}
	lines := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		lines <- line{text, err}
	}()
	select {
	case l := <-lines:
		if l.err != nil {
			return "", fmt.Errorf("read the token: %w", l.err)
		}
		return strings.TrimSpace(string(l.text)), nil
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), term.Restore(fd, before))
	}
}

// terminal returns standard input if it is a terminal.
func (l *loginCommand) terminal() (*os.File, bool) {
	in, ok := l.Stdin.(*os.File)
	return in, ok && term.IsTerminal(int(in.Fd()))
}

// askTrust sets the hash of the authority of an https server that this machine does not trust, after the person
// compared it.
func (l *loginCommand) askTrust(ctx context.Context, c *contexts.Context) error {
	if c.CAHash != "" || c.CAFile != "" {
		return nil
	}
	for _, a := range c.Addresses {
		u, err := url.Parse(a)
		if err != nil || u.Scheme != "https" {
			continue
		}
		hash, err := authorityOf(ctx, u)
		if err != nil || hash == "" {
			return err
		}
		if _, ok := l.terminal(); !ok {
			return &hinted.Error{
				Err: fmt.Errorf("this machine does not trust the certificate of %s, whose authority has the hash %s", a,
					hash),
				Hint: "Compare the hash with the one that 'berth server init' printed, and give it with --ca-hash.",
			}
		}
		l.Messagef("The certificate authority of %s has the hash\n  %s\n'berth server init' printed it.", a, hash)
		fmt.Fprint(l.Stderr, "Is it the same? [y/N] ")
		answer, err := bufio.NewReader(l.Stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			return errors.New("not logged in: the hash was not confirmed")
		}
		c.CAHash = hash
		return nil
	}
	return nil
}

// authorityOf returns the hash of the authority in the certificates that a server sends, or "" if this machine trusts
// the server. Nothing is sent to the server.
func authorityOf(ctx context.Context, u *url.URL) (hash string, err error) {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	d := tls.Dialer{Config: &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // the certificates are only read
	}}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", fmt.Errorf("connect to %s: %w", u.Host, err)
	}
	defer conn.Close()
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return "", fmt.Errorf("connect to %s: no TLS", u.Host)
	}
	sent := secured.ConnectionState().PeerCertificates
	between := x509.NewCertPool()
	for _, c := range sent[1:] {
		between.AddCert(c)
	}
	if _, err := sent[0].Verify(x509.VerifyOptions{DNSName: u.Hostname(), Intermediates: between}); err == nil {
		return "", nil
	}
	for _, c := range sent {
		if c.IsCA {
			sum := sha256.Sum256(c.Raw)
			return hex.EncodeToString(sum[:]), nil
		}
	}
	return "", &hinted.Error{
		Err:  fmt.Errorf("%s sends no certificate of an authority", u.Host),
		Hint: "Name the authority with --ca-file, or check that the address is that of a Berth server.",
	}
}

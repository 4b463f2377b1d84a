package checks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/shorten"
)

// Prober runs checks of a task whose ports are on this machine.
type Prober struct {
	// Host is the address of the task's ports.
	Host string
	// Ports are the task's ports, by name.
	Ports map[string]int
	// Exec runs a command in a container of the task (empty: the first essential one). It returns the exit code and the
	// beginning of the output.
	Exec func(ctx context.Context, container string, command []string) (int, []byte, error)
}

// client returns a client that follows no redirects, keeps no connections and uses no proxy.
func client() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Probe runs a check once; it is a Config.Probe.
func (p *Prober) Probe(ctx context.Context, c *cluster.Check) error {
	switch c.Type {
	case cluster.CheckHTTP:
		return p.http(ctx, c)
	case cluster.CheckTCP:
		return p.tcp(ctx, c)
	case cluster.CheckExec:
		return p.exec(ctx, c)
	case cluster.CheckGRPC:
		return p.grpc(ctx, c)
	case cluster.CheckTTL: // never probed
	}
	return fmt.Errorf("this agent does not support the type %q", c.Type)
}

func (p *Prober) address(c *cluster.Check) (string, error) {
	port, ok := p.Ports[c.Port]
	if !ok {
		return "", fmt.Errorf("the task has no port %q", c.Port)
	}
	return net.JoinHostPort(p.Host, strconv.Itoa(port)), nil
}

func (p *Prober) tcp(ctx context.Context, c *cluster.Check) error {
	address, err := p.address(c)
	if err != nil {
		return err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (p *Prober) http(ctx context.Context, c *cluster.Check) error {
	address, err := p.address(c)
	if err != nil {
		return err
	}
	path := c.Path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "berth-check")
	resp, err := client().Do(req) // the address is the node's own
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // only the status matters
	if !c.AcceptsStatus(resp.StatusCode) {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

func (p *Prober) exec(ctx context.Context, c *cluster.Check) error {
	if p.Exec == nil {
		return errors.New("no command can be run in the task")
	}
	code, output, err := p.Exec(ctx, c.Container, c.Command)
	if err != nil {
		return err
	}
	if code == 0 {
		return nil
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(output), []byte("\n"))
	if len(line) == 0 {
		return fmt.Errorf("exit code %d", code)
	}
	return fmt.Errorf("exit code %d: %s", code, clipped(string(line)))
}

// maxAnswer limits the task's answer in a complaint, in bytes.
const maxAnswer = 200

// clipped returns the beginning of a task's answer, as valid text.
func clipped(s string) string { return strings.ToValidUTF8(shorten.Start(s, maxAnswer), "?") }

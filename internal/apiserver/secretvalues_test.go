package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/internal/transport"
)

// secretive is a server with a real dispatcher. Node n1 runs an attempt that uses the secret db, n2 one that uses none.
type secretive struct {
	*secure
	one, two cluster.Desired
}

func newSecretive(t *testing.T) *secretive {
	t.Helper()
	var agents atomic.Pointer[http.Handler]
	s := &secretive{secure: newSecure(t, func(c *Config) {
		c.Trust.Vault = plainVault{}
		c.Agents = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*agents.Load()).ServeHTTP(w, r) })
	})}
	begun := time.Now()
	d := dispatcher.New(dispatcher.Config{
		Engine: s.engine, Tables: s.tables, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Duration { return time.Since(begun) }, Opener: plainVault{},
	})
	handler := transport.Handler(d)
	agents.Store(&handler)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = d.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })

	s.want(201, "PUT", someSecret, secretBody("hush-value"))
	uses := definition("web", 1)
	uses["containers"].([]any)[0].(map[string]any)["secrets"] = []any{map[string]any{"secret": "db", "env": "DB"}}
	s.want(200, "POST", "/v1/apply", manifestsOf("TaskDefinition", uses, "TaskDefinition", definition("plain", 1)))
	s.one = desired("default.web.1.0", 1, cluster.KindService, cluster.Ref{Name: "web", Version: 1})
	s.two = desired("default.plain.1.0", 1, cluster.KindService, cluster.Ref{Name: "plain", Version: 1})
	s.two.Node = "n2"
	s.put(map[string]any{"state/n1/" + string(s.one.Task): &s.one, "state/n2/" + string(s.two.Task): &s.two})
	return s
}

// agent registers a node at an address, and returns its client and session.
func (s *secretive) agent(node, address string, config transport.ClientConfig) (*transport.Client, uint64) {
	s.t.Helper()
	config.Addresses = []string{address}
	c, err := transport.NewClient(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	welcome, err := c.Register(testkit.Context(s.t, 10*time.Second), transport.Registration{Node: node})
	if err != nil {
		s.t.Fatal(err)
	}
	return c, welcome.Session
}

// over returns the configuration of a client with a node's certificate.
func (s *secretive) over(node string) transport.ClientConfig {
	k := machineOf(s.t, s.authority, pki.Subject{Role: cluster.RoleNode, Name: node}, time.Now())
	return transport.ClientConfig{TLS: k.ClientTLS()}
}

func (s *secretive) ask(c *transport.Client, node string, session uint64,
	d *cluster.Desired,
) (map[string]transport.SecretText, error) {
	reply, err := c.Secrets(testkit.Context(s.t, 10*time.Second),
		transport.SecretsRequest{Node: node, Session: session, Task: d.Task, UUID: d.UUID})
	return reply.Secrets, err
}

// TestNoSecretsOverPlainHTTP checks that an agent on loopback without TLS may register with the machine's token, and
// gets no values.
func TestNoSecretsOverPlainHTTP(t *testing.T) {
	s := newSecretive(t)
	c, session := s.agent("n1", s.url, transport.ClientConfig{Token: token})
	got, err := s.ask(c, "n1", session, &s.one)
	if err == nil || len(got) > 0 || !strings.Contains(err.Error(), "over TLS or the unix socket only") {
		t.Errorf("over plain HTTP: got %v, %v", got, err)
	}
	if strings.Contains(s.log.String(), "hush") {
		t.Error("the value is in the log")
	}
	s = newSecretive(t)
	c, session = s.agent("n1", s.https, s.over("n1"))
	if got, err := s.ask(c, "n1", session, &s.one); err != nil || string(got["db"].Value) != "hush-value" {
		t.Errorf("over TLS: got %v, %v", got, err)
	}
}

// TestNoSecretsForOtherNodes checks that a node's certificate opens only the secrets of its own attempts.
func TestNoSecretsForOtherNodes(t *testing.T) {
	s := newSecretive(t)
	_, first := s.agent("n1", s.https, s.over("n1"))
	c, session := s.agent("n2", s.https, s.over("n2"))
	if got, err := s.ask(c, "n2", session, &s.two); err != nil || len(got) > 0 {
		t.Errorf("of its own attempt, which uses none: got %v, %v", got, err)
	}
	if got, err := s.ask(c, "n2", session, &s.one); !errors.Is(err, transport.ErrRefused) || len(got) > 0 {
		t.Errorf("of the attempt of another node: got %v, %v", got, err)
	}
	if got, err := s.ask(c, "n1", first, &s.one); err == nil || len(got) > 0 {
		t.Errorf("in the name and session of another node: got %v, %v", got, err)
	}
	mixed := s.one
	mixed.Node, mixed.UUID = "n2", s.two.UUID
	if got, err := s.ask(c, "n2", session, &mixed); err == nil || len(got) > 0 {
		t.Errorf("of another's task under the id of its own attempt: got %v, %v", got, err)
	}
}

package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/transport"
)

// A server without a key returns an error, and no secrets.
func TestSecretsWithoutAKey(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		session := f.register("n1").Session
		reply, err := f.Secrets(t.Context(),
			transport.SecretsRequest{Node: "n1", Session: session, Task: cluster.TaskID("default.web.1.0"), UUID: "u"})
		if err == nil || errors.Is(err, transport.ErrRefused) || len(reply.Secrets) > 0 {
			t.Errorf("got %+v, %v; want an error that may pass", reply, err)
		}
	})
}

// opened is an Opener that returns each sealed value unchanged.
type opened struct{}

func (opened) Open(_ *cluster.SecretKey, s *cluster.Secret) ([]byte, error) { return s.Sealed, nil }

// A node gets the login of a secret for its look-up of an image, only for that registry and a limited time. No other
// node gets it.
func TestLoginOfALookUp(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.stop()
		f.Dispatcher = dispatcher.New(dispatcher.Config{
			Engine: f.engine, Tables: f.tables, Logger: slog.New(slog.DiscardHandler),
			Clock: f.clock, Opener: opened{},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _ = f.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		f.put(p.SecretKey("1"), &cluster.SecretKey{ID: "1", Number: 1})
		f.put(p.Secret("c", "pull"), &cluster.Secret{
			Cluster: "c", Name: "pull", Type: cluster.SecretRegistry, Registry: "r.example", Stamp: "s", Key: "1",
			Sealed: []byte(`{"user":"ci","password":"c2VjcmV0"}`),
		})
		one, two := f.register("n1").Session, f.register("n2").Session
		ids := make(chan string, 1)
		assigned := make(chan struct{})
		go func() {
			defer close(assigned)
			_ = f.Assign(ctx, transport.AssignmentsRequest{Node: "n1", Session: one},
				func(ms []transport.Message) error {
					for _, m := range ms {
						if m.Open != nil {
							ids <- m.Open.ID
						}
					}
					return nil
				})
		}()
		defer func() { cancel(); <-assigned }()
		go func() {
			_, _ = f.OpenStream(ctx, "n1", transport.StreamRequest{
				Kind: transport.StreamImageResolve,
				Images: &transport.ImagesRequest{
					Name:  "r.example/a:1",
					Login: &transport.SecretName{Cluster: "c", Secret: "pull"},
				},
			})
		}()
		stream := <-ids
		ask := func(node string, session uint64, registry, id string) (transport.SecretsReply, error) {
			return f.Secrets(t.Context(),
				transport.SecretsRequest{Node: node, Session: session, Registry: registry, Stream: id})
		}
		if got, err := ask("n1", one, "r.example", stream); err != nil || got.User != "ci" ||
			string(got.Password) != "secret" || got.Login != "pull" {
			t.Errorf("got user %q of %q, %v", got.User, got.Login, err)
		}
		if got, err := ask("n1", one, "elsewhere.example", stream); err != nil || got.User != "" ||
			len(got.Missing) != 1 {
			t.Errorf("for another registry: got user %q, %q, %v", got.User, got.Missing, err)
		}
		if got, err := ask("n2", two, "r.example", stream); !errors.Is(err, transport.ErrRefused) || got.User != "" {
			t.Errorf("another node: got user %q, %v", got.User, err)
		}
		if got, err := ask("n1", one, "r.example", "another"); !errors.Is(err, transport.ErrRefused) || got.User != "" {
			t.Errorf("another stream: got user %q, %v", got.User, err)
		}
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if got, err := ask("n1", one, "r.example", stream); err == nil || got.User != "" {
			t.Errorf("a minute later: got user %q, %v", got.User, err)
		}
	})
}

// Only the node of an attempt gets its secrets, in its session, and only the secrets that its definition names.
func TestSecretsGoToTheNodeOfTheAttempt(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.stop()
		f.Dispatcher = dispatcher.New(dispatcher.Config{
			Engine: f.engine, Tables: f.tables, Logger: slog.New(slog.DiscardHandler),
			Clock: f.clock, Opener: opened{},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _ = f.Run(ctx); close(ended) }()
		defer func() { cancel(); <-ended }()
		uuid := f.placeTask("n1")
		f.put(p.Definition(cluster.Ref{Name: "d", Version: 1}),
			&cluster.TaskDefinition{Name: "d", Version: 1, Containers: []cluster.Container{{
				Name: "main", Command: []string{"run"},
				Secrets: []cluster.SecretUse{{Secret: "db", Env: "DB"}, {Secret: "gone", Env: "GONE"}},
			}}})
		f.put(p.SecretKey("1"), &cluster.SecretKey{ID: "1", Number: 1})
		for _, name := range []string{"db", "other"} {
			f.put(p.Secret("c", name),
				&cluster.Secret{
					Cluster: "c", Name: name, Type: cluster.SecretValue, Stamp: "s-" + name, Key: "1",
					Sealed: []byte("value of " + name),
				})
		}
		one, two := f.register("n1").Session, f.register("n2").Session
		ask := func(node string, session uint64, id string) (transport.SecretsReply, error) {
			return f.Secrets(t.Context(), transport.SecretsRequest{Node: node, Session: session, Task: task, UUID: id})
		}
		got, err := ask("n1", one, uuid)
		if err != nil || len(got.Secrets) != 1 || string(got.Secrets["db"].Value) != "value of db" ||
			got.Secrets["db"].Stamp != "s-db" || len(got.Missing) != 1 {
			t.Errorf("the node itself: got %v %q, %v", got.Secrets, got.Missing, err)
		}
		if got, err := ask("n2", two, uuid); !errors.Is(err, transport.ErrRefused) || len(got.Secrets) > 0 {
			t.Errorf("another node: got %v, %v", got.Secrets, err)
		}
		if got, err := ask("n1", one, "another"); !errors.Is(err, transport.ErrRefused) || len(got.Secrets) > 0 {
			t.Errorf("another attempt: got %v, %v", got.Secrets, err)
		}
		if got, err := ask("n1", one+1, uuid); !errors.Is(err, transport.ErrSession) || len(got.Secrets) > 0 {
			t.Errorf("another session: got %v, %v", got.Secrets, err)
		}
	})
}

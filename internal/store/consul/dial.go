package consul

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/consulclient"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/remote"
)

// dialTimeout bounds the first contact.
const dialTimeout = 10 * time.Second

// Dial connects to a Consul and returns when it answered, within 6 s for each endpoint and 10 s more. It checks the
// version and, by a first write to the log, that the token may read and write all keys of a store. The error is a
// *remote.DialError if an operator can do something about it.
func Dial(ctx context.Context, config DialConfig) (*Engine, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Recheck == 0 {
		config.Recheck = defaultRecheck
	}
	c := &connection{config: config, keyspace: keyspace(config.Prefix)}
	c.lifetime, c.end = context.WithCancelCause(context.WithoutCancel(ctx))
	e := &Engine{changeLog: changeLog{c}, lanes: newLanes(c)}
	p := config.Prefix
	if strings.HasPrefix(p, "/") || strings.Contains(p, "//") || len(p) > maxPrefix {
		return nil, fmt.Errorf("connect to consul: the prefix %q of its keys begins with a slash, has two in a row, "+
			"or is longer than %d bytes: %w", p, maxPrefix, store.ErrInvalid)
	}
	err := e.connect(ctx)
	if err == nil {
		err = e.probe(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to consul: %w", err), e.Close())
	}
	return e, nil
}

// connect makes a client for each endpoint, and finds one that answers.
func (c *connection) connect(ctx context.Context) error {
	var err error
	c.clients, c.transport, err = consulclient.Connect(consulclient.Config{
		Endpoints: c.config.Endpoints, TLS: c.config.TLS, Token: c.config.Token, Datacenter: c.config.Datacenter,
		IdleConns: 4 * maxLanes, Log: c.config.Log,
	})
	if err != nil {
		return err
	}
	var faults []error
	answers := -1
	for i, endpoint := range c.config.Endpoints {
		if err := consulclient.Try(ctx, c.clients[i], endpoint); err != nil {
			faults = append(faults, err)
		} else if answers < 0 {
			answers = i
		}
	}
	if answers < 0 {
		return errors.Join(faults...)
	}
	for _, fault := range faults {
		c.config.Log.Warn("an endpoint of consul does not answer; others do", "error", fault)
	}
	c.current.Store(int32(answers))
	return nil
}

// probe checks the version and the permissions.
func (e *Engine) probe(ctx context.Context) error {
	bounded, cancel := e.bound(ctx, dialTimeout)
	defer cancel()
	client, _ := e.client()
	if version, err := consulclient.Version(client, e.query(bounded)); err == nil {
		if err := consulclient.CheckVersion(e.config.Endpoints[e.current.Load()], version); err != nil {
			return err
		}
	}
	// The transaction reads and deletes a key that does not exist, and begins the log of this engine.
	absent := e.key("berth/probe-" + uuid.NewString())
	o := operations{ops: api.TxnOps{kvOp(api.KVCheckNotExists, absent), kvOp(api.KVDelete, absent)}}
	if _, errs, err := e.lanes.commit(bounded, &o); err != nil {
		return e.probeFault(err)
	} else if len(errs) > 0 {
		return fmt.Errorf("write to consul: %s", errs[0].What)
	}
	return nil
}

// probeFault classifies the error of the first write.
func (c *connection) probeFault(err error) error {
	keys := c.key("berth")
	switch text := err.Error(); {
	case consulclient.IsUnknownToken(err):
		return &remote.DialError{
			Fault: remote.FaultPassword, Err: fmt.Errorf("consul does not know this token: %w", err),
		}
	case classify(err) == isDenied, errors.Is(err, errFiltered):
		return &remote.DialError{
			Fault: remote.FaultPermission, Err: fmt.Errorf("read and write keys that begin with %q: %w", keys, err),
		}
	case strings.Contains(text, "unknown KV verb"):
		return &remote.DialError{Fault: remote.FaultVersion, Err: err}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrUnknown),
		errors.Is(err, context.DeadlineExceeded):
		return &remote.DialError{Fault: remote.FaultSilent, Err: err}
	}
	return err
}

// Package consul registers tasks as services of Consul, at one agent of Consul.
//
// A registration is a service of that agent. Its metadata name the owner, so that a driver recognises its own:
//
//	berth-agent   the owner
//	berth-checks  the digest of the checks
//
// Without checks of its own it has one check of type TTL, which reports keep alive. Consul removes a registration whose
// check was critical for RemoveAfter. Consul's agent keeps the token of each registration and uses it later, too. So
// the driver wants a registration made again that it did not make with the present token.
package consul

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/consulclient"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/store/remote"
)

// Name is the name of this kind of system.
const Name = "consul"

// Defaults of a Config.
const (
	// DefaultTTL is longer than a restart of an agent of Berth takes.
	DefaultTTL = time.Minute
	// DefaultRemoveAfter is the time until Consul removes what a dead agent left.
	DefaultRemoveAfter = 10 * time.Minute
)

// maxConns limits the connections to the agent of Consul, which accepts 200 of one address by default.
const maxConns = 16

// Keys of the metadata that the driver adds.
const (
	metaOwner  = "berth-agent"
	metaChecks = "berth-checks"
)

// Config configures Open. Endpoint and Owner are required.
type Config struct {
	// Endpoint is the address of an agent of Consul, such as "http://127.0.0.1:8500".
	Endpoint string
	// TLS, Token and Namespace are those of consulclient.Config.
	TLS       *remote.TLSFiles
	Token     func() (string, error)
	Namespace string
	// Owner distinguishes the driver's registrations from all others at the agent. It has 512 bytes at most.
	Owner string
	// TTL is the time without a report after which a registration counts as failing; 0 means DefaultTTL. RemoveAfter is
	// the time after which Consul removes a failing registration, at least a minute; 0 means DefaultRemoveAfter.
	TTL, RemoveAfter time.Duration
	// Log gets warnings; nil discards them.
	Log *slog.Logger
}

// Driver is a discovery.Driver.
type Driver struct {
	config Config
	client *api.Client

	mu sync.Mutex
	// tokens are the tokens with which this driver made its registrations, by ID.
	tokens map[string]string
}

var _ discovery.Driver = (*Driver)(nil)

// Open returns a driver. It contacts nothing and reads no file.
func Open(c Config) (*Driver, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.RemoveAfter == 0 {
		c.RemoveAfter = DefaultRemoveAfter
	}
	clients, _, err := consulclient.Connect(consulclient.Config{
		Endpoints: []string{c.Endpoint}, TLS: c.TLS, Token: c.Token, Namespace: c.Namespace,
		IdleConns: maxConns, MaxConns: maxConns, Late: true, Log: c.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("use consul at %s: %w", c.Endpoint, err)
	}
	return &Driver{config: c, client: clients[0], tokens: map[string]string{}}, nil
}

// Name is part of discovery.Driver.
func (d *Driver) Name() string { return Name }

// ReportInterval is part of discovery.Driver.
func (d *Driver) ReportInterval() time.Duration { return d.config.TTL / 3 }

// Probe is part of discovery.Driver. The error is a *remote.DialError if an operator can do something about it.
func (d *Driver) Probe(ctx context.Context) (version string, err error) {
	if err := consulclient.Try(ctx, d.client, d.config.Endpoint); err != nil {
		return "", fmt.Errorf("connect to consul: %w", err)
	}
	if version, err = consulclient.Version(d.client, query(ctx)); err == nil {
		if err := consulclient.CheckVersion(d.config.Endpoint, version); err != nil {
			return "", fmt.Errorf("connect to consul: %w", err)
		}
	}
	token, err := d.token()
	if err != nil || token == "" { // Consul may permit registrations without a token
		return version, err
	}
	if _, _, err := d.client.ACL().TokenReadSelf(query(ctx)); err != nil && consulclient.IsUnknownToken(err) {
		return version, d.fault(err)
	}
	return version, nil
}

// List is part of discovery.Driver.
func (d *Driver) List(ctx context.Context) ([]discovery.Held, error) {
	filter := fmt.Sprintf("Meta[%q] == %q", metaOwner, d.config.Owner)
	services, err := d.client.Agent().ServicesWithFilterOpts(filter, query(ctx))
	if err != nil {
		return nil, d.failed("list the registrations", err)
	}
	if len(services) == 0 {
		d.forgetTokens(services)
		return nil, nil
	}
	checks, err := d.client.Agent().ChecksWithFilterOpts("", query(ctx))
	if err != nil {
		return nil, d.failed("list the checks", err)
	}
	count := map[string]int{}
	for _, c := range checks { // order-free: counts
		count[c.ServiceID]++
	}
	token, err := d.token()
	if err != nil {
		return nil, err
	}
	d.forgetTokens(services)
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make([]discovery.Held, 0, len(services))
	for _, id := range slices.Sorted(maps.Keys(services)) {
		h := discovery.Held{ID: id}
		used, known := d.tokens[id]
		if s := services[id]; known && used == token && count[id] == expectedChecks(s) {
			h.Digest = digest(s)
		}
		held = append(held, h)
	}
	return held, nil
}

// forgetTokens forgets the tokens of registrations that do not exist any more.
func (d *Driver) forgetTokens(services map[string]*api.AgentService) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.tokens, func(id, _ string) bool { return services[id] == nil })
}

// expectedChecks returns the number of checks with which a service was registered, -1 if that is not known.
func expectedChecks(s *api.AgentService) int {
	number, _, _ := strings.Cut(s.Meta[metaChecks], "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return max(n, 1) // without checks of its own it has one of type TTL
}

// digest returns the digest of a registration as Consul has it.
func digest(s *api.AgentService) string {
	meta := maps.Clone(s.Meta)
	checks := meta[metaChecks]
	delete(meta, metaOwner)
	delete(meta, metaChecks)
	return discovery.DigestOf(&discovery.Registration{
		ID: s.ID, Name: s.Service, Address: s.Address, Port: s.Port, Tags: s.Tags, Meta: meta,
	}, checks)
}

// Register is part of discovery.Driver.
func (d *Driver) Register(ctx context.Context, r *discovery.Registration, s discovery.State) error {
	if _, err := d.own(ctx, r.ID); err != nil {
		return err
	}
	token, err := d.token()
	if err != nil {
		return err
	}
	meta := maps.Clone(r.Meta)
	if meta == nil {
		meta = map[string]string{}
	}
	meta[metaOwner], meta[metaChecks] = d.config.Owner, r.DigestChecks()
	err = d.client.Agent().ServiceRegisterOpts(&api.AgentServiceRegistration{
		ID: r.ID, Name: r.Name, Tags: r.Tags, Port: r.Port, Address: r.Address, Meta: meta, Checks: d.checks(r, s),
	}, (api.ServiceRegisterOpts{ReplaceExistingChecks: true}).WithContext(ctx))
	if err != nil {
		return d.failed("register "+r.Name, err)
	}
	d.mu.Lock()
	d.tokens[r.ID] = token
	d.mu.Unlock()
	if len(r.Checks) > 0 {
		return nil
	}
	return d.Report(ctx, r.ID, s)
}

// checks returns the checks of a registration.
func (d *Driver) checks(r *discovery.Registration, s discovery.State) (all api.AgentServiceChecks) {
	after := d.config.RemoveAfter.String()
	for i := range r.Checks {
		c := &r.Checks[i]
		made := &api.AgentServiceCheck{
			CheckID: r.ID + ":" + c.Name, Name: c.Name, Interval: c.Interval.String(), Timeout: c.Timeout.String(),
			Status: status(s.Health), FailuresBeforeWarning: 1, FailuresBeforeCritical: c.FailAfter,
			DeregisterCriticalServiceAfter: after,
		}
		switch c.Type {
		case cluster.CheckHTTP:
			made.HTTP = "http://" + c.Address + c.Path
		case cluster.CheckTCP:
			made.TCP = c.Address
		case cluster.CheckGRPC:
			made.GRPC = c.Address
			if c.Service != "" {
				made.GRPC += "/" + c.Service
			}
			made.GRPCUseTLS, made.TLSSkipVerify = c.TLS, c.TLS
		case cluster.CheckExec, cluster.CheckTTL: // a task with them has no checks of Consul
			continue
		}
		all = append(all, made)
	}
	if len(r.Checks) == 0 {
		all = append(all, &api.AgentServiceCheck{
			CheckID: ttlCheck(r.ID), Name: "Health by Berth", TTL: d.config.TTL.String(), Status: status(s.Health),
			DeregisterCriticalServiceAfter: after,
		})
	}
	return all
}

// ttlCheck returns the ID of the check of a registration without checks of its own.
func ttlCheck(id string) string { return id + ":health" }

// status returns Consul's word for a health.
func status(h cluster.Health) string {
	switch h {
	case cluster.HealthHealthy:
		return api.HealthPassing
	case cluster.HealthWarning:
		return api.HealthWarning
	case cluster.HealthFailing, cluster.HealthUnknown:
	}
	return api.HealthCritical
}

// Report is part of discovery.Driver.
func (d *Driver) Report(ctx context.Context, id string, s discovery.State) error {
	exists, err := d.own(ctx, id)
	if err != nil {
		return err
	}
	if exists {
		err = d.client.Agent().UpdateTTLOpts(ttlCheck(id), s.Text, status(s.Health), query(ctx))
		if err == nil {
			return nil
		}
	}
	if !exists || isStatus(err, http.StatusNotFound) || strings.Contains(err.Error(), "does not have associated TTL") {
		return fmt.Errorf("%s: %w", id, discovery.ErrNotRegistered)
	}
	return d.failed("report the health", err)
}

// Deregister is part of discovery.Driver.
func (d *Driver) Deregister(ctx context.Context, id string) error {
	exists, err := d.own(ctx, id)
	if err != nil || !exists {
		return err
	}
	err = d.client.Agent().ServiceDeregisterOpts(id, query(ctx))
	if err != nil && !isStatus(err, http.StatusNotFound) {
		return d.failed("deregister "+id, err)
	}
	return nil
}

// own reports whether a registration exists. It returns discovery.ErrForeign if another owner has it.
func (d *Driver) own(ctx context.Context, id string) (exists bool, err error) {
	service, _, err := d.client.Agent().Service(id, query(ctx))
	switch {
	case err == nil && service.Meta[metaOwner] == d.config.Owner:
		return true, nil
	case err == nil:
		return true, fmt.Errorf("service %s with the id %s: %w", service.Service, id, discovery.ErrForeign)
	case isStatus(err, http.StatusNotFound):
		return false, nil
	}
	return false, d.failed("read the registration "+id, err)
}

// token returns the present token.
func (d *Driver) token() (string, error) {
	if d.config.Token == nil {
		return "", nil
	}
	token, err := d.config.Token()
	if err != nil {
		return "", &remote.DialError{Fault: remote.FaultPassword, Err: err}
	}
	return token, nil
}

// failed wraps the error of a call. It is a *remote.DialError if an operator can do something about it.
func (d *Driver) failed(what string, err error) error {
	return fmt.Errorf("%s: %w", what, d.fault(err))
}

// fault classifies the error of a call.
func (d *Driver) fault(err error) error {
	switch {
	case consulclient.IsTokenFile(err):
		return &remote.DialError{Fault: remote.FaultPassword, Err: err}
	case consulclient.IsUnknownToken(err):
		return &remote.DialError{
			Fault: remote.FaultPassword, Err: fmt.Errorf("consul does not know this token: %w", err),
		}
	case consulclient.IsDenied(err):
		return &remote.DialError{
			Fault: remote.FaultPermission, Err: fmt.Errorf("consul does not permit it to this token: %w", err),
		}
	case isAnswer(err):
		return err
	}
	return consulclient.Fault(err, d.config.Endpoint)
}

// isAnswer reports whether Consul answered the call.
func isAnswer(err error) bool {
	_, ok := errors.AsType[api.StatusError](err)
	return ok
}

// isStatus reports whether Consul answered with a status.
func isStatus(err error, code int) bool {
	answer, ok := errors.AsType[api.StatusError](err)
	return ok && answer.Code == code
}

// query returns the options of a call.
func query(ctx context.Context) *api.QueryOptions { return new(api.QueryOptions).WithContext(ctx) }

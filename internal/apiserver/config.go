package apiserver

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/audit"
	"github.com/berthd/berth/internal/apiserver/control"
	"github.com/berthd/berth/internal/apiserver/credentials"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/apiserver/schedulingapi"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/telemetry"
)

// Config is what New needs.
type Config struct {
	// Engine accepts the writes; Tables follow it.
	Engine store.Engine
	Tables snapshot.Tables
	// Prefix of all keys; default store.DefaultPrefix.
	Prefix store.Prefix
	// Leader gives the leader's decisions, as far as this server knows them.
	Leader views.Leader
	// Server is this server's part in the control plane.
	Server ServerConfig
	// Trust holds keys, certificates and tokens.
	Trust Trust
	// Limits bound the requests that wait for changes.
	Limits Limits
	// Scheduling answers schedulers outside of Berth. Without it they get 503.
	Scheduling Scheduling
	// Nodes opens byte streams to agents. Without it logs, commands and images get 503.
	Nodes agentapi.Nodes
	// Simulator predicts the effect of changes. Without it simulations get 503.
	Simulator planning.Simulator
	// Agents serves the agents' part of the API, the paths of package transport, to authenticated nodes. It may be nil.
	Agents http.Handler
	// Peers serves the paths below /peer/, to other servers only. It may be nil.
	Peers http.Handler
	// Audit takes a line for every write and every refusal; nil keeps none.
	Audit audit.Sink
	// Permissions of new clusters that name none.
	Permissions []cluster.Permission
	// Registry takes the server's metrics and is shown at /metrics; default a new one.
	Registry *prometheus.Registry
	// Tracer makes spans of writes; nil makes none.
	Tracer *telemetry.Tracer
	Log    *slog.Logger
	// Now is the wall clock; default time.Now. Clock is the boot-time clock; default boottime.Now.
	Now   func() time.Time
	Clock func() time.Duration
	// headerWait and bodyWait are headerTimeout and strictjson.BodyTimeout, except in tests of slow clients.
	headerWait, bodyWait time.Duration
}

// ServerConfig is a server's part in the control plane. All functions may be nil, are safe for concurrent use and
// return immediately.
type ServerConfig struct {
	// ID of this server.
	ID string
	// Members of the engine, this server among them; nil if the store runs elsewhere.
	Members control.Members
	// Health reports the state of the store; it may be nil if Members is nil.
	Health control.Health
	// Reach returns the state of the connections to the other servers, by their ids.
	Reach func() map[string]control.Reach
	// Holder returns the server that a node's agent is connected to, "" if it is not known.
	Holder func(node string) string
	// DialProblem returns why this server does not reach a passive node, "" if it does. It may be nil.
	DialProblem func(node string) string
	// Backups returns the fault of the scheduled backups of this server.
	Backups func() error
	// Settings are the values of flags by name, as operators see them. They contain no secrets.
	Settings map[string]string
}

// Scheduling answers schedulers outside of Berth.
type Scheduling struct {
	// Leader answers for the domains that this server leads; nil if it never leads.
	Leader *schedulingapi.Leader
	// Others passes requests on to the leaders of other domains; nil if there are no other servers.
	Others schedulingapi.Asker
}

// Trust holds the keys, certificates and tokens of a server.
type Trust struct {
	// Token is the bearer token of requests over loopback TCP. Without it all of them are refused. It is never logged.
	Token string
	// Origins are web origins besides the server's own, such as "http://127.0.0.1:7070", whose pages may send requests.
	Origins []string
	// Keeper holds this server's certificate. Without it there is no https address, and no certificate is accepted.
	Keeper *pki.Keeper
	// Authority signs certificates. Without it requests to join get 503.
	Authority *pki.Authority
	// Vault seals secrets. Without it writes of secrets get 503.
	Vault credentials.Vault
	// Keys replaces master keys and data keys. Without it such requests get 503.
	Keys credentials.Keys
	// Join adds servers to the store; nil if the store runs elsewhere.
	Join credentials.Joiner
}

// Limits bound the requests that wait for changes: streams of lists and events, and lists with ?wait. Requests above a
// limit get 429.
type Limits struct {
	// MaxWaiters of all clients; default lists.MaxWaiters.
	MaxWaiters int
	// MaxClientWaiters of one client; default lists.MaxClientWaiters.
	MaxClientWaiters int
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, store.DefaultPrefix)
	c.headerWait = cmp.Or(c.headerWait, headerTimeout)
	c.bodyWait = cmp.Or(c.bodyWait, strictjson.BodyTimeout)
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	l := &c.Limits
	l.MaxWaiters = cmp.Or(l.MaxWaiters, lists.MaxWaiters)
	l.MaxClientWaiters = cmp.Or(l.MaxClientWaiters, min(lists.MaxClientWaiters, l.MaxWaiters))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Clock == nil {
		c.Clock = boottime.Now
	}
}

// Package consul is the driver of a store in Consul, which runs elsewhere and which others use too.
//
// Consul's own means would not do: a blocking query returns a whole prefix, an index counts the changes of one prefix,
// and the result of a lost call stays unknown. So the driver keeps a log of the keys that changed, in Consul itself,
// below "berth.log/" beside the records:
//
//	berth.log/head/<writer>        the number of the newest commit of a writer; a blocking query waits for all heads
//	berth.log/entry/<writer>/<n>   the keys of one commit; a writer keeps the newest 64
//	berth.log/head/removed         the last numbers of writers that are gone
//
// A writer is one of a few lanes of an Engine, and has one commit in flight. Each commit is one transaction of Consul.
// It holds the compares and writes of the caller, an entry, and the head with a compare of its index. Three things
// follow:
//
//   - The index of the newest head is the revision of the store, the same for all prefixes. It rises with an equal
//     write and with a deletion, too, which give no record a new index.
//   - A watch reads the keys that changed, and no others. It reads the whole prefix where it lost its place. It also
//     does so now and then, because other programs may write records without an entry.
//   - A commit with a lost result is settled: the head shows whether it was applied, and a write of the head prevents
//     that it is applied later.
//
// Keys must be valid UTF-8, as JSON requires.
package consul

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/remote"
)

const (
	// logPrefix begins the keys of the log of changes. No listing and no watch has them, and no caller may write them.
	logPrefix = "berth.log/"
	// maxEntries is the number of entries that a writer keeps.
	maxEntries = 64
	// maxLanes is the largest number of commits of an Engine in flight.
	maxLanes = 4
)

// Consul's own limits on one transaction.
const (
	maxOperations   = 128
	maxRequestBytes = 512 << 10
	// operationBytes is the room for the JSON of one operation without its key and value, but with the prefix, which
	// has maxPrefix bytes at most.
	operationBytes = 160 + maxPrefix
	maxPrefix      = 64
	// logOperations are the operations that the driver adds to a commit: the head and the entry.
	logOperations = 2
)

// commitLimits are the limits of a commit. A value is base64 in Consul's request, four bytes for three.
func commitLimits() store.Limits {
	return store.Limits{
		Operations: maxOperations - logOperations,
		Bytes:      (maxRequestBytes - maxOperations*operationBytes) / 4 * 3,
	}
}

// DialConfig configures Dial. Only Endpoints is required.
type DialConfig struct {
	// Endpoints are the addresses of agents or servers of Consul, such as "http://127.0.0.1:8500": all secured or none.
	// Calls go to the first that answers.
	Endpoints []string
	// TLS holds the authority that signs the endpoints' certificates, and the client certificate, which may be missing.
	// The files are read again for each connection. It is nil for endpoints of http.
	TLS *remote.TLSFiles
	// Token, unless nil, returns the token of Consul's ACLs. It is called for every request.
	Token func() (string, error)
	// Datacenter is the one that holds the store; "" is that of the agent.
	Datacenter string
	// Prefix is put in front of all keys in Consul; it may be empty. Each store has its own. It has 64 bytes at most
	// and does not begin with a slash, which Consul removes from some requests.
	Prefix string
	// Recheck is the shortest time between two reads of all records by a watch, which find the writes of other
	// programs; 0 means 30 s.
	Recheck time.Duration
	// Remedy, unless nil, returns the advice for an operator after a fault that concerns the token. Errors carry it.
	Remedy func(remote.Fault) string
	// Log gets warnings; nil discards them.
	Log *slog.Logger
}

// Engine is a store in Consul. It is a store.ServerEngine. It reads the log of changes, and writes in lanes.
type Engine struct {
	changeLog
	lanes *lanes
	// noSpace says that the last write failed because Consul's disk is full.
	noSpace atomic.Bool
}

var _ store.ServerEngine = (*Engine)(nil)

// Limits is part of store.Engine.
func (e *Engine) Limits() store.Limits { return commitLimits() }

// Membership is part of store.ServerEngine: Consul's servers are none of Berth's.
func (e *Engine) Membership() store.Membership { return nil }

// Close is part of store.Engine.
func (e *Engine) Close() error {
	e.end(store.ErrClosed)
	e.transport.CloseIdleConnections()
	return nil
}

// keyspace is the prefix of all keys of a store in Consul.
type keyspace string

// key returns the key in Consul of a key of the store, and logKey that of a part of the log.
func (k keyspace) key(key string) string     { return string(k) + key }
func (k keyspace) logKey(part string) string { return string(k) + logPrefix + part }

// isOwn reports whether a key in Consul belongs to the log.
func (k keyspace) isOwn(key string) bool { return strings.HasPrefix(key, k.logKey("")) }

// record returns the record of a pair.
func (k keyspace) record(p *api.KVPair) store.Record {
	value := p.Value
	if value == nil {
		value = []byte{}
	}
	return store.Record{
		Key: strings.TrimPrefix(p.Key, string(k)), Value: value, Created: p.CreateIndex, Modified: p.ModifyIndex,
	}
}

// checkKeys returns store.ErrInvalid for a key that Consul cannot hold, or that belongs to the log.
func checkKeys(groups []store.Group) error {
	if err := store.CheckTextKeys(groups); err != nil {
		return err
	}
	for _, g := range groups {
		for _, op := range g.Ops {
			if strings.HasPrefix(op.Key, logPrefix) {
				return fmt.Errorf("key %q belongs to the driver: %w", op.Key, store.ErrInvalid)
			}
		}
	}
	return nil
}

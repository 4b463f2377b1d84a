package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/consulclient"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/discovery/consul"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/privatefile"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/store/remote"
)

// DiscoveryTokenVariable is the environment variable with the token for the system for service discovery.
const DiscoveryTokenVariable = "BERTH_DISCOVERY_TOKEN"

// ownerFile, in the agent's data directory, holds the owner of the node's registrations.
const ownerFile = "discovery-owner"

// Discovery names the Consul in which a node registers its tasks.
type Discovery struct {
	// Endpoint is the http or https address of an agent of Consul; "" means that tasks are not registered.
	Endpoint string
	// CA, Cert and Key are files for TLS; CA may be remote.SystemCA. TokenFile is the file with the ACL token; without
	// it the environment may have one. All files are read again for each use.
	CA, Cert, Key, TokenFile string
	// Namespace is that of the registrations, in Consul Enterprise only; "" is that of Consul's agent.
	Namespace string
}

// open returns the driver and its owner. It contacts nothing. Without an endpoint the driver is nil.
func (d Discovery) open(dataDir string, log *slog.Logger) (discovery.Driver, string, error) {
	if d.Endpoint == "" {
		return nil, "", nil
	}
	owner, err := readOwner(dataDir)
	if err != nil {
		return nil, "", fmt.Errorf("prepare the registration of tasks: %w", err)
	}
	c := consul.Config{Endpoint: d.Endpoint, Token: d.readToken, Namespace: d.Namespace, Owner: owner, Log: log}
	if d.CA != "" || d.Cert != "" {
		c.TLS = &remote.TLSFiles{Cert: d.Cert, Key: d.Key, CA: d.CA}
	}
	driver, err := consul.Open(c)
	if err != nil {
		return nil, "", d.addHint(err)
	}
	return advised{driver, d}, owner, nil
}

// readToken returns the present token.
func (d Discovery) readToken() (string, error) {
	if d.TokenFile != "" {
		return datadir.ReadCredential("the token for Consul", d.TokenFile)
	}
	return os.Getenv(DiscoveryTokenVariable), nil
}

// readOwner returns the owner of the registrations. It is chosen at the first start, and the same for all later ones
// with the same data. No other agent at the same Consul has it.
func readOwner(dataDir string) (string, error) {
	path := filepath.Join(dataDir, ownerFile)
	known, err := privatefile.Read(path)
	if err == nil && strings.TrimSpace(string(known)) != "" {
		return strings.TrimSpace(string(known)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	random := make([]byte, 6)
	rand.Read(random) // it never fails
	owner := hex.EncodeToString(random)
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return "", err
	}
	return owner, datadir.ReplaceFile(path, []byte(owner+"\n"))
}

// addHint adds advice for the operator to an error about Consul.
func (d Discovery) addHint(err error) error {
	fault, ok := errors.AsType[*remote.DialError](err)
	if !ok {
		return err
	}
	token := "--discovery-token-file " + d.TokenFile
	if d.TokenFile == "" {
		token = DiscoveryTokenVariable
	}
	return &hinted.Error{Err: err, Hint: consulclient.Hint(fault.Fault, consulclient.Flags{
		Address: "--discovery", CA: d.CA, Cert: d.Cert, Key: d.Key, Token: token,
		Rules: `service_prefix "" { policy = "write" }  (docs/guide/discovery.md)`,
	})}
}

// advised is a driver whose errors carry advice for the operator.
type advised struct {
	discovery.Driver

	location Discovery
}

// Probe is part of discovery.Driver.
func (a advised) Probe(ctx context.Context) (string, error) {
	version, err := a.Driver.Probe(ctx)
	return version, a.location.addHint(err)
}

// List is part of discovery.Driver.
func (a advised) List(ctx context.Context) ([]discovery.Held, error) {
	list, err := a.Driver.List(ctx)
	return list, a.location.addHint(err)
}

// Register is part of discovery.Driver.
func (a advised) Register(ctx context.Context, r *discovery.Registration, s discovery.State) error {
	return a.location.addHint(a.Driver.Register(ctx, r, s))
}

// Report is part of discovery.Driver.
func (a advised) Report(ctx context.Context, id string, s discovery.State) error {
	return a.location.addHint(a.Driver.Report(ctx, id, s))
}

// Deregister is part of discovery.Driver.
func (a advised) Deregister(ctx context.Context, id string) error {
	return a.location.addHint(a.Driver.Deregister(ctx, id))
}

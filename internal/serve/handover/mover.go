package handover

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/plain"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/join"
)

// retryInterval is the time between two tries of a step that the process completes by itself.
const retryInterval = time.Second

// Config is what Open needs.
type Config struct {
	// Dir is the data directory, with the folders server and agent. Node is the name of the node.
	Dir, Node string
	// Own sends requests to the node's own server.
	Own *client.Client
	Log *slog.Logger
}

// Mover takes the steps of moves. Its methods may be called concurrently.
type Mover struct {
	config Config
	step   sync.Mutex // one step at a time

	mu      sync.Mutex
	journal Journal
	adopted bool
	problem string
	moved   chan struct{} // closed when the process has to run the node for another owner
}

// Open reads the journal of a data directory. The data of an agent that servers drive get a journal: the node goes on
// as theirs.
func Open(c Config) (*Mover, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mover{config: c, moved: make(chan struct{})}
	var err error
	if m.journal, err = ReadJournal(c.Dir); err != nil {
		return nil, err
	}
	if m.journal.Number == 0 && m.journal.Phase == api.HandoverOwn {
		err = m.inherit()
	}
	return m, err
}

// inherit makes the journal for the data of `berth agent`: such a node belongs to the servers that it knows.
func (m *Mover) inherit() error {
	if _, err := os.Stat(filepath.Join(m.config.Dir, serverDir)); err == nil {
		return nil // it drives itself
	}
	if _, err := os.Stat(filepath.Join(m.pkiDir(), "self.crt")); errors.Is(err, fs.ErrNotExist) {
		return nil // it is new
	} else if err != nil {
		return err
	}
	servers, err := state.Servers(m.database(), m.config.Log)
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		return fmt.Errorf("%s holds a node of other servers, which it has not met yet: start `berth agent` once",
			m.config.Dir)
	}
	return m.advance(Journal{Phase: api.HandoverServers, Servers: servers})
}

func (m *Mover) pkiDir() string   { return filepath.Join(m.config.Dir, agentDir, datadir.PKIDir) }
func (m *Mover) database() string { return filepath.Join(m.config.Dir, agentDir, agentDB) }

// Begin prepares the data directory for the node's present owner. It returns the journal and a channel that is closed
// once another owner drives the node, so that the caller begins anew. No agent and no server of the node may run.
func (m *Mover) Begin() (Journal, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moved, m.adopted, m.problem = make(chan struct{}), false, ""
	if err := state.Transfer(m.database(), m.journal.Number, m.config.Log); err != nil {
		return m.journal, m.moved, err
	}
	if m.journal.Phase == api.HandoverServers {
		if err := m.archive(); err != nil {
			return m.journal, m.moved, err
		}
	}
	return m.journal, m.moved, nil
}

// BeginAgent prepares a data directory for `berth agent`, which may follow a standalone node that moved to servers.
func BeginAgent(dataDir string, log *slog.Logger) error {
	j, err := ReadJournal(dataDir)
	if err != nil || j.DrivesItself() {
		return err
	}
	return state.Transfer(filepath.Join(dataDir, agentDir, agentDB), j.Number, log)
}

// archive renames the folder of the node's own server, which released the node: no later server of the node begins
// with that store.
func (m *Mover) archive() error {
	from := filepath.Join(m.config.Dir, serverDir)
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for n := m.journal.Number; ; n++ {
		to := fmt.Sprintf("%s.released-%d", from, n)
		if _, err := os.Stat(to); err == nil {
			continue
		}
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("keep the store that released the node: %w", err)
		}
		return datadir.SyncDir(m.config.Dir)
	}
}

// Keeper returns the keeper of the certificate for the servers that drive the node.
func (m *Mover) Keeper(known func() []string) (*pki.Keeper, error) {
	var k *pki.Keeper
	var err error
	k, err = pki.OpenKeeper(pki.KeeperConfig{
		Dir: m.pkiDir(), Log: m.config.Log,
		Renew: join.RenewAt(func() *tls.Config { return k.ClientTLS() }, nil, known),
	})
	return k, err
}

// Run completes, until ctx ends, the step that the process takes by itself: a release that has begun, or the adoption
// by the node's own server. The own server must serve.
func (m *Mover) Run(ctx context.Context) error {
	for {
		var err error
		switch j := m.now(); j.Phase {
		case api.HandoverReleasing:
			err = m.releaseOwn(ctx, j)
		case api.HandoverReturning:
			err = m.adoptOwn(ctx, j)
		case api.HandoverOwn, api.HandoverPrepared, api.HandoverServers:
		}
		m.note(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryInterval):
		}
	}
}

// note keeps why the last try failed, and logs it once.
func (m *Mover) note(err error) {
	text := ""
	if err != nil {
		text = plain.Text(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if text != m.problem && text != "" {
		m.config.Log.Warn("the move of the node waits", "error", text)
	}
	m.problem = text
}

func (m *Mover) now() Journal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.journal
}

// advance makes a journal durable. The process runs the node for another owner if the journal says so.
func (m *Mover) advance(next Journal) error {
	next.Since = time.Now().UTC().Truncate(time.Second)
	if err := next.write(m.config.Dir); err != nil {
		return err
	}
	m.mu.Lock()
	was := m.journal
	m.journal = next
	if was.DrivesItself() != next.DrivesItself() || (was.Phase == api.HandoverReturning) !=
		(next.Phase == api.HandoverReturning) {
		select {
		case <-m.moved:
		default:
			close(m.moved)
		}
	}
	m.mu.Unlock()
	m.config.Log.Info("the node moves", "phase", next.Phase, "number", next.Number, "servers", next.Servers)
	return nil
}

// State returns how far a move is.
func (m *Mover) State() api.HostHandover {
	m.mu.Lock()
	defer m.mu.Unlock()
	return api.HostHandover{
		Node: m.config.Node, Phase: m.journal.Phase, Number: m.journal.Number, Servers: m.journal.Servers,
		Since: m.journal.Since, Adopted: m.adopted, Problem: m.problem,
	}
}

// Objects returns what moves with the node from its own server. The error lists what is in the way.
func (m *Mover) Objects(ctx context.Context) (api.NodeObjects, error) {
	if j := m.now(); !j.DrivesItself() {
		return api.NodeObjects{}, m.refuse(&j)
	}
	reply, err := m.config.Own.ReleaseNode(ctx, m.config.Node, api.NodeReleaseRequest{DryRun: true})
	return reply.Objects, problem(err)
}

// refuse returns the answer to a step that does not fit to the phase.
func (m *Mover) refuse(j *Journal) error {
	return respond.Problemf(http.StatusConflict, "the node %s is in the phase %s of a move: `berth node adopt` or "+
		"`berth node release` continues it", m.config.Node, j.Phase)
}

// Prepare prepares the node for its next owner: it joins servers, or starts a server of its own that adopts objects.
// Nothing changes for the tasks, nor for the present owner. It may be repeated.
func (m *Mover) Prepare(ctx context.Context, r api.HostPrepareRequest) error {
	m.step.Lock()
	defer m.step.Unlock()
	j := m.now()
	switch {
	case r.Objects == nil && (j.Phase == api.HandoverOwn || j.Phase == api.HandoverPrepared):
		return m.prepareServers(ctx, j, r)
	case r.Objects != nil && j.Phase == api.HandoverReturning && reflect.DeepEqual(r.Objects, j.Objects):
		return nil
	case r.Objects != nil && j.Phase == api.HandoverServers:
		if r.Objects.Node != m.config.Node {
			return respond.Problemf(http.StatusBadRequest, "the objects are of the node %s, and this is %s",
				r.Objects.Node, m.config.Node)
		}
		return m.advance(Journal{
			Number: j.Number, Phase: api.HandoverReturning, Servers: j.Servers, Objects: r.Objects,
		})
	}
	return m.refuse(&j)
}

// prepareServers gets a certificate of the servers.
func (m *Mover) prepareServers(ctx context.Context, j Journal, r api.HostPrepareRequest) error {
	for _, s := range r.Servers {
		if !strings.HasPrefix(s, "https://") {
			return respond.Problemf(http.StatusBadRequest, "the server %q is not https://HOST:PORT", s)
		}
	}
	if len(r.Servers) == 0 {
		return respond.Problemf(http.StatusBadRequest, "servers is empty: want at least one https address")
	}
	if err := os.RemoveAll(m.pkiDir()); err != nil { // of an earlier fleet, or of an earlier try
		return fmt.Errorf("remove the former certificate: %w", err)
	}
	joiner := join.Joiner{
		Dir: m.pkiDir(), Self: pki.Subject{Role: cluster.RoleNode, Name: m.config.Node}, Servers: r.Servers,
		Token: r.JoinToken,
	}
	if _, err := joiner.Join(ctx); err != nil {
		return respond.Problemf(http.StatusConflict, "the node gets no certificate of the servers %s: %s",
			strings.Join(r.Servers, ", "), plain.Text(err))
	}
	if err := joiner.Done(); err != nil {
		return err
	}
	return m.advance(Journal{Number: j.Number, Phase: api.HandoverPrepared, Servers: r.Servers})
}

// Complete makes the next owner drive the node. The servers, or the node's own server, must have adopted it. It may be
// repeated.
func (m *Mover) Complete(ctx context.Context, r api.HostCompleteRequest) error {
	m.step.Lock()
	defer m.step.Unlock()
	switch j := m.now(); j.Phase {
	case api.HandoverPrepared:
		next := Journal{
			Number: j.Number, Phase: api.HandoverReleasing, Servers: j.Servers, Revisions: r.Revisions,
		}
		if err := m.advance(next); err != nil {
			return err
		}
		return m.release(ctx, next)
	case api.HandoverReturning:
		if !m.State().Adopted {
			return respond.Problemf(http.StatusConflict, "the node's own server has not adopted the objects yet")
		}
		return m.advance(Journal{Number: j.Number + 1, Phase: api.HandoverOwn})
	case api.HandoverReleasing, api.HandoverServers:
		return nil
	default:
		if len(r.Revisions) == 0 {
			return nil // it drives itself already
		}
		return m.refuse(&j)
	}
}

// releaseOwn is release for Run.
func (m *Mover) releaseOwn(ctx context.Context, j Journal) error {
	m.step.Lock()
	defer m.step.Unlock()
	if m.now().Phase != j.Phase {
		return nil
	}
	return m.release(ctx, j)
}

// release lets the node's own server release the node. If that server refuses, nothing was changed, and the move is
// back at its preparation.
func (m *Mover) release(ctx context.Context, j Journal) error {
	reply, err := m.config.Own.ReleaseNode(ctx, m.config.Node, api.NodeReleaseRequest{Revisions: j.Revisions})
	switch {
	case client.StatusOf(err) == http.StatusConflict:
		return errors.Join(problem(err),
			m.advance(Journal{Number: j.Number, Phase: api.HandoverPrepared, Servers: j.Servers}))
	case err != nil:
		return fmt.Errorf("the node's own server has not released it yet: %w", err)
	case !reply.Released:
		return errors.New("the node's own server has not released it")
	}
	return m.advance(Journal{Number: j.Number + 1, Phase: api.HandoverServers, Servers: j.Servers})
}

// adoptOwn lets the node's own server adopt the objects.
func (m *Mover) adoptOwn(ctx context.Context, j Journal) error {
	m.step.Lock()
	defer m.step.Unlock()
	if m.State().Adopted || m.now().Phase != j.Phase {
		return nil
	}
	if _, err := m.config.Own.AdoptNode(ctx, api.NodeAdoptRequest{Objects: *j.Objects}); err != nil {
		return err
	}
	m.mu.Lock()
	m.adopted = true
	m.mu.Unlock()
	return nil
}

// Cancel ends a move before the present owner has released the node.
func (m *Mover) Cancel(context.Context) error {
	m.step.Lock()
	defer m.step.Unlock()
	switch j := m.now(); j.Phase {
	case api.HandoverOwn, api.HandoverServers:
		return nil
	case api.HandoverPrepared:
		return m.advance(Journal{Number: j.Number, Phase: api.HandoverOwn})
	case api.HandoverReturning:
		return m.advance(Journal{Number: j.Number, Phase: api.HandoverServers, Servers: j.Servers})
	default:
		return m.refuse(&j)
	}
}

// problem returns the answer to an error of the node's own server: its refusals are those of this API.
func problem(err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	p := respond.Problemf(refused.Status, "%s", refused.Detail)
	p.Faults = refused.Faults
	return p
}

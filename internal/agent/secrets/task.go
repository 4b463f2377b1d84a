// Package secrets hands secrets to tasks and replaces them when they change.
//
// A file's folder is bound into the container and not the file, because only then a replacement by rename is visible.
// The supervisor of the process executor reads variables from tmpfs when it starts the program. containerd keeps the
// description of a container on disk, so berth itself is bound into the container's /dev, reads the file and becomes
// the program; an image's program then needs memory for berth's start. The writer of a log reads the values at the
// first line, and again when a stat shows that a folder changed; no description holds a value. Writers of logs read
// present and former values by one function (executor.SecretValues).
package secrets

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/transport"
)

// secretsRequestTimeout limits one request for secrets.
const secretsRequestTimeout = 15 * time.Second

// Source is a Source that provides secrets.
type Source interface {
	Secrets(ctx context.Context, r transport.SecretsRequest) (transport.SecretsReply, error)
}

// Attempt is an attempt as its secrets see it. Its methods may be called on any goroutine.
type Attempt interface {
	// View returns the newest state, nil before the first.
	View() *attempt.View
	// Known returns the newest accepted assignment.
	Known() transport.Known
	// Ended is closed once no program of the attempt will run any more.
	Ended() <-chan struct{}
}

// Signaller sends signals to the containers of an attempt.
type Signaller interface {
	// Signal sends a signal to a container, if it runs. The name lacks "SIG".
	Signal(ctx context.Context, container, name string) error
}

// Provider gives attempts their secrets and the logins of registries.
type Provider struct {
	Node   *node.Node
	Memory *Memory
	// Source is nil if the server provides no secrets. Session returns the number of the agent's session.
	Source  Source
	Session func() uint64
	// Own, unless nil, returns the node's own login for a registry, or empty strings.
	Own func(registry string) (user, secret string)
}

// Task writes the secrets of one attempt and replaces them when they change. Its methods may be called
// concurrently.
type Task struct {
	*Provider
	id         attempt.ID
	attempt    Attempt
	containers Signaller

	// mu is held while the folders are written.
	mu sync.Mutex
	// wanted are the newest stamps from the server, nil before the first. refreshing means that a goroutine updates the
	// files to them.
	wanted     map[string]string
	refreshing bool
}

// ForTask returns the secrets of an attempt before anything is written.
func (p *Provider) ForTask(id attempt.ID, user Attempt, containers Signaller) *Task {
	return &Task{Provider: p, id: id, attempt: user, containers: containers}
}

// ask requests the secrets of the attempt, or the login for a registry.
func (s *Task) ask(ctx context.Context, registry, container string) (transport.SecretsReply, error) {
	if s.Source == nil {
		return transport.SecretsReply{}, errors.New("the server gives no secrets")
	}
	ctx, cancel := context.WithTimeout(ctx, secretsRequestTimeout)
	defer cancel()
	return s.Source.Secrets(ctx, transport.SecretsRequest{
		Node: s.Node.Name, Session: s.Session(), Task: s.id.Task, UUID: s.id.UUID,
		Revision: s.attempt.Known().Revision,
		Registry: registry, Container: container,
	})
}

// Place writes the secrets of a container and adds them to its spec. If no server answers, the secrets of the
// container's last run stay in use.
func (s *Task) Place(ctx context.Context, c *cluster.Container, spec *executor.Spec) error {
	if len(c.Secrets) == 0 || s.Node.Volatile {
		return nil
	}
	root := s.Memory.of(s.id.UUID)
	if root == "" {
		return fmt.Errorf("secrets: %w: the node has no folder in memory for them", executor.ErrUnsupported)
	}
	reply, err := s.ask(ctx, "", "")
	s.mu.Lock()
	defer s.mu.Unlock()
	folder := secretFolder{filepath.Join(root, c.Name), c}
	switch {
	case err == nil:
		err = folder.write(reply)
		if err == nil {
			err = folder.stamp(reply)
		}
	case !errors.Is(err, transport.ErrRefused) && folder.placed() != nil:
		s.Node.Logger.Warn("a container is made with the secrets of its last run: no server answers", "task", s.id.Task,
			"attempt", s.id.Attempt, "error", err)
		err = nil
	default:
		err = fmt.Errorf("request the secrets of container %s: %w", c.Name, err)
	}
	if err != nil {
		return err
	}
	spec.Secrets, spec.SecretEnv = folder.mounts(), folder.env()
	return nil
}

// Credentials returns the login function for the container's image. The login is the secret that the container names,
// the cluster's secret for the registry, or the entry in the node's own file, in this order. The function stores whose
// login it was in origin, and a failure in problem.
func (s *Task) Credentials(ctx context.Context, c *cluster.Container, origin,
	problem *atomic.Pointer[string],
) func(string) (string, string) {
	own := s.Own
	if s.Source == nil {
		return own
	}
	return func(registry string) (user, secret string) {
		reply, err := s.ask(ctx, registry, c.Name)
		switch {
		case err == nil && reply.User != "":
			origin.Store(&reply.Login)
			return reply.User, string(reply.Password)
		case err == nil && len(reply.Missing) > 0:
			problem.Store(&reply.Missing[0])
		case err != nil:
			why := "the secrets for the registry could not be requested: " + err.Error()
			problem.Store(&why)
		}
		if own == nil {
			return "", ""
		}
		return own(registry)
	}
}

// LoginHint says where to renew a login that a registry rejected: in the named secret, or in the node's own file.
func LoginHint(name *string, in string) string {
	switch {
	case name == nil:
		return "; its login comes from a secret (`berth secret set NAME --type registry`), or from the " +
			"file of --registry-logins of the node's agent"
	case *name == "":
		return "; it comes from a secret of the cluster " + in
	}
	return fmt.Sprintf("; it comes from the secret %s of the cluster %s: set it again with `berth secret set "+
		"%s --type registry`", *name, in, *name)
}

// SetStamps stores the current stamps of the secrets. Work that begins here ends with ctx.
func (s *Task) SetStamps(ctx context.Context, stamps map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = stamps
	if s.refreshing || s.Node.Volatile {
		return
	}
	s.refreshing = true
	s.Node.Go(func() { s.refresh(ctx) })
}

// refresh updates the files to the wanted stamps, until they match or the attempt is over.
func (s *Task) refresh(ctx context.Context) {
	p := s.Node.NewBackoff(node.MinRetryBackoff, node.FastProbeInterval)
	for {
		done, err := s.refreshOnce(ctx)
		if err != nil && ctx.Err() == nil {
			s.Node.Logger.Warn("changed secrets could not be written yet", "task", s.id.Task, "attempt", s.id.Attempt,
				"error",
				err)
		}
		if done {
			return
		}
		if _, err := pause.Until(ctx, s.attempt.Ended(), p.Next()); err != nil {
			return
		}
	}
}

// refreshOnce updates all containers once. It is done once nothing differs; a later change starts a new refresh.
func (s *Task) refreshOnce(ctx context.Context) (done bool, err error) {
	stale, wait := s.findStale()
	if len(stale) > 0 {
		reply, err := s.ask(ctx, "", "")
		if err != nil {
			return errors.Is(err, transport.ErrRefused) && s.endRefresh(true), err
		}
		for i := range stale {
			if err := s.renew(ctx, &stale[i], reply); err != nil {
				return false, err
			}
		}
		stale, wait = s.findStale()
	}
	return len(stale) == 0 && !wait && s.endRefresh(false), nil
}

// endRefresh ends the refresh unless other stamps have arrived.
func (s *Task) endRefresh(anyway bool) bool {
	stale, _ := s.findStale()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(stale) > 0 && !anyway {
		return false
	}
	s.refreshing = false
	return true
}

// staleSecrets is a container with secrets that differ from the wanted stamps.
type staleSecrets struct {
	secretFolder
	changed []string // names of these secrets
}

// findStale returns the containers whose secrets differ from the wanted stamps. wait means that some containers
// have no secrets yet.
func (s *Task) findStale() (list []staleSecrets, wait bool) {
	root, v := s.Memory.of(s.id.UUID), s.attempt.View()
	select {
	case <-s.attempt.Ended():
		return nil, false
	default:
	}
	if root == "" || v == nil || v.Definition == nil {
		return nil, root != ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range v.Definition.Containers {
		c := &v.Definition.Containers[i]
		if len(c.Secrets) == 0 {
			continue
		}
		stale := staleSecrets{secretFolder: secretFolder{filepath.Join(root, c.Name), c}}
		placed := stale.placed()
		if placed == nil {
			wait = wait || v.Record.Phase == attempt.PhaseNew || v.Record.Phase == attempt.PhasePreparing
			continue
		}
		for _, u := range c.Secrets {
			if now := s.wanted[u.Secret]; now != "" && now != placed[u.Secret] &&
				!slices.Contains(stale.changed, u.Secret) {
				stale.changed = append(stale.changed, u.Secret)
			}
		}
		if len(stale.changed) > 0 {
			list = append(list, stale)
		}
	}
	return list, wait
}

// renew replaces the files of a container, sends the signals that its uses request, and then records the stamps. After
// a crash in between, the next run repeats all of it.
func (s *Task) renew(ctx context.Context, c *staleSecrets, reply transport.SecretsReply) error {
	s.mu.Lock()
	err := c.write(reply)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	var sent []string
	for _, u := range c.container.Secrets {
		if u.OnChange != cluster.SecretSignal || !slices.Contains(c.changed, u.Secret) ||
			slices.Contains(sent, u.Signal) {
			continue
		}
		sent = append(sent, u.Signal)
		if err := s.containers.Signal(ctx, c.container.Name, u.Signal); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Node.Logger.Info("secrets of a container were replaced", "task", s.id.Task, "attempt", s.id.Attempt, "container",
		c.container.Name, "secrets", c.changed, "signals", sent)
	return c.stamp(reply)
}

// Mask removes the values of the attempt's secrets from text for other readers. The function text returns the text with
// the given number of additional bytes.
func (s *Task) Mask(text func(more int) string) string {
	return maskSecrets(s.Memory.of(s.id.UUID), text)
}

// MaskText masks a complete text.
func (s *Task) MaskText(text string) string { return s.Mask(func(int) string { return text }) }

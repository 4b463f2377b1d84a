package dispatcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// secretsWait bounds the time that a request for secrets waits for the tables to hold its attempt.
const secretsWait = 10 * time.Second

// Opener opens the values of secrets.
type Opener interface {
	// Open returns the value of a secret that was sealed with the key. Safe for concurrent use.
	Open(k *cluster.SecretKey, s *cluster.Secret) ([]byte, error)
}

// Secrets returns the values of an attempt's secrets, only to the agent of the attempt's node. It checks the session,
// the node and the attempt's id against the records. The values are not older than the attempt's placement.
func (d *Dispatcher) Secrets(ctx context.Context, r transport.SecretsRequest) (reply transport.SecretsReply,
	err error,
) {
	if d.config.Opener == nil {
		return reply, errors.New("this server has no key for secrets")
	}
	if _, err := d.sessions.find(r.Node, r.Session); err != nil {
		return reply, err
	}
	if r.Stream != "" {
		return d.secrets.streamLogin(&r)
	}
	wait, cancel := context.WithTimeout(ctx, secretsWait)
	defer cancel()
	snap, err := d.config.Tables.WaitFor(wait, r.Revision)
	if err != nil {
		return reply, fmt.Errorf("this server's tables are behind the assignment: %w", err)
	}
	row := placedHere(snap, &r)
	if row == nil {
		return reply, fmt.Errorf("%w: %s has no attempt %.60q of %.200q that could use secrets", transport.ErrRefused,
			r.Node, r.UUID, r.Task)
	}
	def, ok := snap.Definition(row.Desired.Definition)
	if !ok {
		return reply, fmt.Errorf("%w: there is no task definition %s", transport.ErrRefused, row.Desired.Definition)
	}
	if r.Registry != "" {
		return d.secrets.login(snap, row.Desired.Owner.Cluster, def.Value, &r)
	}
	reply.Secrets = map[string]transport.SecretText{}
	for _, name := range handedSecrets(def.Value) {
		e, ok := snap.Secret(row.Desired.Owner.Cluster, name)
		switch {
		case !ok:
			reply.Missing = append(reply.Missing, cluster.NoSecret(row.Desired.Owner.Cluster, name))
			continue
		case e.Value.Type == cluster.SecretRegistry:
			reply.Missing = append(reply.Missing,
				"the secret "+name+" is of the type registry, which no container is handed")
			continue
		}
		value, err := d.secrets.unseal(snap, e.Value)
		if err != nil {
			return transport.SecretsReply{}, err
		}
		reply.Secrets[name] = transport.SecretText{Stamp: e.Value.Stamp, Value: value}
	}
	return reply, nil
}

// secretSource opens the values of secrets, and tells when they changed. Safe for concurrent use.
type secretSource struct {
	config *Config

	mu      sync.Mutex
	lookups map[string]lookup // images that nodes are looking up, by the id of the stream
	changed chan struct{}     // closed and replaced when secrets changed
}

// placedHere returns the requested attempt, if it belongs to the node and has not ended.
func placedHere(snap *store.Snapshot, r *transport.SecretsRequest) *store.AttemptRow {
	for row := range snap.TaskAttempts(r.Task) {
		d := row.Desired
		if d != nil && d.UUID == r.UUID && d.UUID != "" && d.Node == r.Node && row.Outcome == nil && !d.Ended() {
			return row
		}
	}
	return nil
}

// handedSecrets returns the names of the secrets that the definition's containers receive, in order, without
// duplicates.
func handedSecrets(d *cluster.TaskDefinition) (names []string) {
	for i := range d.Containers {
		for _, u := range d.Containers[i].Secrets {
			names = append(names, u.Secret)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// login returns the registry login for the image of a container, from the secret that the container names, or else from
// the cluster's secret for the registry.
func (v *secretSource) login(snap *store.Snapshot, in string, def *cluster.TaskDefinition,
	r *transport.SecretsRequest,
) (reply transport.SecretsReply, err error) {
	i := slices.IndexFunc(def.Containers, func(c cluster.Container) bool { return c.Name == r.Container })
	if i < 0 || def.Containers[i].Image == "" {
		return reply, fmt.Errorf("%w: %s has no container %.60q with an image", transport.ErrRefused, def.Ref(),
			r.Container)
	}
	own, _, _ := strings.Cut(cluster.NormalImage(def.Containers[i].Image), "/")
	if own != r.Registry {
		return reply, nil // the image of the container is from another registry
	}
	e, ok := snap.RegistrySecret(in, r.Registry)
	if name := def.Containers[i].PullSecret; name != "" {
		if e, ok = snap.Secret(in, name); !ok {
			reply.Missing = []string{cluster.NoSecret(in, name)}
			return reply, nil
		}
		if e.Value.Type != cluster.SecretRegistry || e.Value.Registry != r.Registry {
			reply.Missing = []string{fmt.Sprintf("the secret %s is not for the registry %s", name, r.Registry)}
			return reply, nil
		}
	}
	if !ok {
		return reply, nil
	}
	return v.loginOf(snap, e.Value)
}

// loginOf opens a secret of the type registry.
func (v *secretSource) loginOf(snap *store.Snapshot, s *cluster.Secret) (reply transport.SecretsReply, err error) {
	value, err := v.unseal(snap, s)
	if err != nil {
		return reply, err
	}
	var l cluster.RegistryLogin
	if json.Unmarshal(value, &l) != nil {
		return reply, fmt.Errorf("the secret %s does not hold a login", s.Name)
	}
	reply.User, reply.Password, reply.Login = l.User, l.Password, s.Name
	return reply, nil
}

func (v *secretSource) unseal(snap *store.Snapshot, s *cluster.Secret) ([]byte, error) {
	k, ok := snap.SecretKey(s.Key)
	if !ok {
		return nil, fmt.Errorf("the key %s of the secret %s is missing in the store", s.Key, s.Name)
	}
	value, err := v.config.Opener.Open(k.Value, s)
	if err != nil {
		v.config.Logger.Error("a secret cannot be opened", "cluster", s.Cluster, "secret", s.Name, "error", err)
	}
	return value, err
}

// sendSecretStamps sends the stamps of an attempt's secrets, unless the agent has them.
func (a *assignments) sendSecretStamps(snap *store.Snapshot, row *store.AttemptRow) error {
	d := row.Desired
	if row.Outcome != nil || d.Ended() || row.Observed != nil && row.Observed.Gone {
		delete(a.stamps, d.UUID)
		return nil
	}
	def, ok := snap.Definition(d.Definition)
	if !ok || !def.Value.UsesSecrets() {
		return nil
	}
	stamps := map[string]string{}
	for _, name := range handedSecrets(def.Value) {
		if e, ok := snap.Secret(d.Owner.Cluster, name); ok {
			stamps[name] = e.Value.Stamp
		}
	}
	if was, known := a.stamps[d.UUID]; known && maps.Equal(was.Stamps, stamps) {
		return nil
	}
	now := transport.SecretStamps{Task: d.Task, UUID: d.UUID, Stamps: stamps}
	if a.stamps == nil {
		a.stamps = map[string]transport.SecretStamps{}
	}
	a.stamps[d.UUID] = now
	return a.add(transport.Message{Secrets: &now})
}

// resendSecretStamps sends changed stamps of all attempts whose stamps were sent before.
func (a *assignments) resendSecretStamps() error {
	snap := a.d.config.Tables.Snapshot()
	sent := slices.SortedFunc(maps.Values(a.stamps), func(x, y transport.SecretStamps) int {
		return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.UUID, y.UUID))
	})
	for _, t := range sent {
		left := true
		for row := range snap.TaskAttempts(t.Task) {
			if row.Desired == nil || row.Desired.UUID != t.UUID || row.Desired.Node != a.s.node {
				continue
			}
			left = false
			if err := a.sendSecretStamps(snap, row); err != nil {
				return err
			}
		}
		if left {
			delete(a.stamps, t.UUID)
		}
	}
	return nil
}

// change returns a channel that is closed when secrets changed.
func (v *secretSource) change() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

func (v *secretSource) notifyChanged() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.changed)
	v.changed = make(chan struct{})
}

package credentials

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// SecretsAPI lists, reads, writes and deletes secrets.
type SecretsAPI struct {
	backend.Backend

	Vault Vault // nil refuses values
}

// Vault seals and opens the values of secrets. Its errors contain no part of them. Safe for concurrent use.
type Vault interface {
	// NewKey makes the data key of the number, wrapped with a master key. An empty master means the server's first one,
	// before the store names any.
	NewKey(master string, number uint64, now time.Time) (*cluster.SecretKey, error)
	// Seal seals a value into s with the key.
	Seal(k *cluster.SecretKey, s *cluster.Secret, value []byte) error
	// Open returns the value of s, which was sealed with the key.
	Open(k *cluster.SecretKey, s *cluster.Secret) ([]byte, error)
	// All returns all master keys, for servers that join.
	All() string
}

func (a *SecretsAPI) listSecrets(w http.ResponseWriter, r *http.Request) error {
	in := r.PathValue("cluster")
	if err := a.KnownCluster(r, in); err != nil {
		return err
	}
	c := access.CallerOf(r.Context())
	return lists.Serve(a.Lists, w, r, lists.Source[api.SecretView]{
		List: "secrets", Topics: store.TopicSecrets | store.TopicOwners | store.TopicCrons | store.TopicDefinitions,
		All: func(snap *store.Snapshot) (all []lists.Item[api.SecretView]) {
			users := usersOf(snap, in)
			for e := range snap.Secrets(in) {
				if c.Sees(e.Value.Cluster) {
					all = append(all, lists.Item[api.SecretView]{
						Key:   e.Value.Cluster + "/" + e.Value.Name,
						Value: secretView(e, users),
					})
				}
			}
			return all
		},
	})
}

func (a *SecretsAPI) readSecret(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	in, name := r.PathValue("cluster"), r.PathValue("secret")
	e, ok := snap.Secret(in, name)
	if !ok {
		return respond.NotFound("secret", in+"/"+name)
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, http.StatusOK, secretView(e, usersOf(snap, in)))
}

func secretView(e store.Entry[cluster.Secret], users map[secretName][]string) api.SecretView {
	v := e.Value
	return api.SecretView{
		Cluster: v.Cluster, Name: v.Name, Type: v.Type, Registry: v.Registry, Version: v.Version, Size: v.Size,
		Created: v.Created, Updated: v.Updated, Users: users[secretName{v.Cluster, v.Name}], Revision: e.Modified,
	}
}

type secretName struct{ cluster, name string }

// usersOf returns the users of the secrets of a cluster, or of all clusters with "". Users are services, jobs and crons
// by their definitions, and owners whose running attempts use an earlier version.
func usersOf(snap *store.Snapshot, in string) map[secretName][]string {
	users := map[secretName]map[string]bool{}
	known := map[cluster.Ref][]string{}
	use := func(o cluster.OwnerRef, ref cluster.Ref) {
		names, ok := known[ref]
		if !ok {
			if d, found := snap.Definition(ref); found {
				names = d.Value.Secrets()
			}
			known[ref] = names
		}
		for _, name := range names {
			key := secretName{o.Cluster, name}
			if users[key] == nil {
				users[key] = map[string]bool{}
			}
			users[key][o.String()] = true
		}
	}
	for o, ref := range snapshot.Definitions(snap, in) {
		use(o, ref)
	}
	for row := range snap.AllAttempts() {
		if row.Live() && row.Desired != nil && (in == "" || row.Desired.Owner.Cluster == in) {
			use(row.Desired.Owner, row.Desired.Definition)
		}
	}
	out := make(map[secretName][]string, len(users))
	for key, set := range users { // order-free: each on its own
		out[key] = slices.Sorted(maps.Keys(set))
	}
	return out
}

// readSecretBody reads a write of a secret. No fault quotes the value.
func readSecretBody(w http.ResponseWriter, r *http.Request) (ask api.SecretWrite, err error) {
	err = strictjson.ReadBody(w, r, &ask)
	if p, ok := errors.AsType[*respond.Problem](err); ok {
		for i := range p.Faults {
			if !slices.Contains([]string{"type", "registry", "username"}, p.Faults[i].Path) {
				p.Faults[i].Message = "is not what is expected here: want value, in base64, and where it is " +
					"for a registry type, registry and username"
			}
		}
	}
	return ask, err
}

// valueOf returns the value to seal, and all faults of a write.
func valueOf(ask *api.SecretWrite, kind cluster.SecretType) (value []byte, faults cluster.Faults) {
	fault := func(path, format string, args ...any) {
		faults = append(faults, cluster.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	value, err := base64.StdEncoding.DecodeString(ask.Value)
	switch {
	case err != nil:
		fault("value", "is not base64") // the error could quote it
	case len(value) == 0:
		fault("value", "is empty: want at least one byte, in base64")
	case len(value) > int(cluster.MaxSecret):
		fault("value", "is %d bytes long, at most %d are allowed", len(value), int(cluster.MaxSecret))
	}
	if kind != cluster.SecretRegistry {
		if ask.Username != "" {
			fault("username", "is for secrets of the type %q only", cluster.SecretRegistry)
		}
		return value, faults
	}
	if ask.Username == "" || len(ask.Username) > cluster.MaxLabel {
		fault("username", "is missing or longer than %d bytes: want whose password it is", cluster.MaxLabel)
	}
	login := cluster.RegistryLogin{User: ask.Username, Password: value}
	value, _ = json.Marshal(login) //nolint:gosec // it is sealed next
	return value, faults
}

func (a *SecretsAPI) writeSecret(w http.ResponseWriter, r *http.Request) error {
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	ask, err := readSecretBody(w, r)
	if err != nil {
		return err
	}
	asked := cluster.Secret{
		Cluster: r.PathValue("cluster"), Name: r.PathValue("secret"), Type: ask.Type,
		Registry: ask.Registry,
	}
	asked.SetDefaults()
	value, faults := valueOf(&ask, asked.Type)
	if faults = append(cluster.FaultsOf(asked.Validate()), faults...); len(faults) > 0 {
		return respond.Invalid(faults)
	}
	if a.Vault == nil {
		return errNoVault
	}
	var restarted []string
	status := http.StatusOK
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) (err error) {
		e, exists := d.Snap.Secret(asked.Cluster, asked.Name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		status = http.StatusOK
		if !exists {
			status = http.StatusCreated
		}
		restarted, err = setSecret(d, a.Vault, asked, value, e)
		return err
	})
	if err != nil {
		return err
	}
	e, ok := snap.Secret(asked.Cluster, asked.Name)
	if !ok {
		return respond.NotFound("secret", asked.Cluster+"/"+asked.Name) // deleted meanwhile
	}
	v := secretView(e, usersOf(snap, asked.Cluster))
	v.Restarted = restarted
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, status, v)
}

// setSecret drafts the write of a secret and the restarts of its users. An equal value changes nothing.
func setSecret(d *draft.Draft, vault Vault, next cluster.Secret, value []byte,
	e store.Entry[cluster.Secret],
) (restarted []string, err error) {
	if err := d.RequireCluster(next.Cluster); err != nil {
		return nil, draft.AsProblem(err)
	}
	next.Version, next.Created = 1, d.Now
	verb := "secret.created"
	if old := e.Value; old != nil {
		same := old.Type == next.Type && old.Registry == next.Registry
		if k, ok := d.Snap.SecretKey(old.Key); same && ok {
			was, err := vault.Open(k.Value, old)
			if err != nil {
				return nil, errSealing(err)
			}
			if bytes.Equal(was, value) {
				return nil, nil
			}
		}
		next.Version, next.Created, verb = old.Version+1, old.Created, "secret.updated"
	}
	next.Stamp, next.Updated, next.Size = access.NewID(8), d.Now, len(value)
	if next.Type == cluster.SecretRegistry {
		next.Size = 0 // the size of a login means nothing
	}
	key, err := sealingKey(d, vault)
	if err != nil {
		return nil, err
	}
	if err := vault.Seal(key, &next, value); err != nil {
		return nil, errSealing(err)
	}
	d.Put(d.Prefix.Secret(next.Cluster, next.Name), &next, e.Modified)
	d.Events = append(d.Events, cluster.Event{
		Type: verb, Cluster: next.Cluster,
		Message: fmt.Sprintf("the secret %s has version %d", next.Name, next.Version),
	})
	return restartUsers(d, &next), nil
}

// errSealing returns the answer when a value cannot be sealed or opened.
func errSealing(err error) error {
	return respond.Problemf(http.StatusServiceUnavailable, "%v", err)
}

// sealingKey returns the data key in use, and makes the first one. The draft has the key's revision as a precondition.
// A rotation writes the record of the old key, so that no concurrent write uses that key.
func sealingKey(d *draft.Draft, vault Vault) (*cluster.SecretKey, error) {
	e, ok := d.Snap.NewestSecretKey()
	if ok {
		d.Require(d.Prefix.SecretKey(e.Value.ID), e.Modified)
		return e.Value, nil
	}
	k, err := vault.NewKey(d.Snap.MasterInUse(), 1, d.Now)
	if err != nil {
		return nil, errSealing(err)
	}
	d.Put(d.Prefix.SecretKey(k.ID), k, 0)
	return k, nil
}

// restartUsers restarts the services of the cluster whose definitions require it, by their update policies. Services
// without a running task are left out.
func restartUsers(d *draft.Draft, s *cluster.Secret) (names []string) {
	for e := range d.Snap.Services(s.Cluster) {
		def, ok := d.Snap.Definition(e.Value.Definition)
		if !ok || e.Value.Deleted || e.Value.Stopped || !def.Value.RestartsFor(s.Name) ||
			!hasAttempts(d.Snap, e.Value.Owner()) {
			continue
		}
		next := *e.Value
		d.NextVersion(&next)
		next.Restarted, next.Updated, next.Trace = next.Generation, d.Now, d.Trace
		key := d.Prefix.Service(next.Cluster, next.Name)
		d.Put(key, &next, e.Modified)
		owner := next.Owner()
		d.Instead[key] = cluster.Event{
			Type: "service.updated", Cluster: next.Cluster, Owner: &owner, Reason: cluster.ReasonSecret,
			Message: "its tasks are replaced: the secret " + s.Name + " has another value",
		}
		names = append(names, next.Name)
	}
	return names
}

// hasAttempts reports whether an attempt of an owner was placed and has not ended.
func hasAttempts(snap *store.Snapshot, o cluster.OwnerRef) bool {
	for row := range snap.Attempts(o) {
		if row.Live() && row.Desired != nil {
			return true
		}
	}
	return false
}

func (a *SecretsAPI) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	in, name := r.PathValue("cluster"), r.PathValue("secret")
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		e, ok := d.Snap.Secret(in, name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound("secret", in+"/"+name)
		}
		if users := usersOf(d.Snap, in)[secretName{in, name}]; len(users) > 0 && !route.Flag(r, "force") {
			return respond.Problemf(http.StatusConflict,
				"the secret %s/%s is used by %s: their next tasks would wait for it. Delete these first, or "+
					"take it out of what they run",
				in, name, someOf(users))
		}
		d.Remove(d.Prefix.Secret(in, name), e.Modified, cluster.Event{
			Type: "secret.deleted", Cluster: in, Reason: cluster.ReasonDeleted,
			Message: "the user deleted the secret " + name,
		})
		return nil
	})
}

// someOf lists some of the names.
func someOf(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Routes returns the operations of secrets.
func (a *SecretsAPI) Routes() []route.Route {
	const list, one = "/v1/clusters/{cluster}/secrets", "/v1/clusters/{cluster}/secrets/{secret}"
	page, view := reflect.TypeFor[api.Page[api.SecretView]](), reflect.TypeFor[api.SecretView]()
	force := route.QueryParam("force", "boolean", "even if it is in use")
	return []route.Route{
		{
			Method: "GET", Path: "/v1/secrets", Name: "listAllSecrets", Role: cluster.RoleViewer, Shared: true,
			Summary: "The secrets of all clusters, without their values.", Query: route.ListParameters(), Reply: page,
			Stream: route.MediaEventStream, Long: true, Serve: a.listSecrets,
		},
		{
			Method: "GET", Path: list, Name: "listSecrets", Role: cluster.RoleViewer,
			Summary: "The secrets of a cluster, without their values.", Query: route.ListParameters(), Reply: page,
			Stream: route.MediaEventStream, Long: true, Serve: a.listSecrets,
		},
		{
			Method: "GET", Path: one, Name: "readSecret", Role: cluster.RoleViewer,
			Summary: "One secret, without its value.",
			Query:   []route.Parameter{route.Consistent()},
			Reply:   view, Serve: a.readSecret,
		},
		{
			Method: "PUT", Path: one, Name: "writeSecret", Role: cluster.RoleOperator,
			Summary: "Creates a secret or changes its value. The same transaction restarts services that require " +
				"it.", Writes: true, Body: reflect.TypeFor[api.SecretWrite](), Reply: view,
			Serve: a.writeSecret,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteSecret", Role: cluster.RoleOperator,
			Summary: "Deletes a secret. A secret in use is kept, unless forced.", Writes: true,
			Query: []route.Parameter{force}, Status: http.StatusNoContent, Serve: a.deleteSecret,
		},
	}
}

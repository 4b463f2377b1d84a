package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// MasterKeysAPI lists and replaces master keys and data keys.
type MasterKeysAPI struct {
	backend.Backend

	Keys Keys // nil refuses every replacement
}

// Keys replaces master keys and data keys. The text of an error with the method Refused is for the client. Safe for
// concurrent use.
type Keys interface {
	// Rotate replaces the data key, and returns once all values are sealed with the new one.
	Rotate(ctx context.Context) (key string, sealed, dropped int, err error)
	// Rekey starts to replace the master key. If a replacement is already running, Rekey returns its key and false.
	Rekey(ctx context.Context) (id string, began bool, err error)
	// Drop makes all servers remove a master key from their files.
	Drop(ctx context.Context, id string) error
}

// errNoVault is the answer of a server that cannot seal secrets.
var errNoVault = respond.Problemf(http.StatusServiceUnavailable, "this server has no key for secrets")

// refusedOr returns the answer to an error of Keys.
func refusedOr(err error) error {
	var refusal interface{ Refused() bool }
	if errors.As(err, &refusal) {
		return respond.Problemf(http.StatusConflict, "%v", err)
	}
	return err
}

func (a *MasterKeysAPI) rotateSecretsKey(w http.ResponseWriter, r *http.Request) (err error) {
	if a.Keys == nil {
		return errNoVault
	}
	var v api.SecretsKeyView
	if v.Key, v.Sealed, v.Dropped, err = a.Keys.Rotate(r.Context()); err != nil {
		return refusedOr(err)
	}
	access.ExchangeOf(r.Context()).Object = "data key " + v.Key
	return respond.JSON(w, http.StatusOK, v)
}

func (a *MasterKeysAPI) rekeySecrets(w http.ResponseWriter, r *http.Request) error {
	if a.Keys == nil {
		return errNoVault
	}
	id, began, err := a.Keys.Rekey(r.Context())
	if err != nil {
		return refusedOr(err)
	}
	access.ExchangeOf(r.Context()).Object = "master key " + id
	snap, err := a.Reads.Settled(r.Context())
	if err != nil {
		return err
	}
	for _, v := range masterKeys(snap) {
		if v.ID == id {
			v.Began = began
			return respond.JSON(w, http.StatusOK, v)
		}
	}
	return respond.NotFound("master key", id) // dropped meanwhile
}

func (a *MasterKeysAPI) dropMasterKey(w http.ResponseWriter, r *http.Request) error {
	if a.Keys == nil {
		return errNoVault
	}
	id := r.PathValue("key")
	access.ExchangeOf(r.Context()).Object = "master key " + respond.Clip(id)
	if err := a.Keys.Drop(r.Context(), id); err != nil {
		return refusedOr(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *MasterKeysAPI) listMasterKeys(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, masterKeys(snap))
}

// masterKeys shows all master keys, the newest first. Before the first replacement the store has no record of the only
// key. That key is then the one that the data keys name or, before the first secret, the one that all servers hold.
func masterKeys(snap *store.Snapshot) (all []api.MasterKeyView) {
	inUse := snap.MasterInUse()
	for e := range snap.MasterKeys() {
		all = append(all, api.MasterKeyView{MasterKey: *e.Value})
	}
	if len(all) == 0 {
		first := cluster.MasterKey{ID: inUse, Number: 1}
		for e := range snap.Servers() {
			if first.ID == "" && len(e.Value.Masters) > 0 {
				first.ID = e.Value.Masters[0]
			}
		}
		for e := range snap.SecretKeys() {
			if first.Used.IsZero() || e.Value.Created.Before(first.Used) {
				first.Created, first.Used = e.Value.Created, e.Value.Created
			}
		}
		all = append(all, api.MasterKeyView{MasterKey: first})
		inUse = first.ID
	}
	wrapped, sealed := map[string]bool{}, map[string]int{}
	for e := range snap.SecretKeys() {
		wrapped[e.Value.Master] = true
	}
	for e := range snap.Secrets("") {
		if k, ok := snap.SecretKey(e.Value.Key); ok {
			sealed[k.Value.Master]++
		}
	}
	for i := range all {
		v := &all[i]
		v.Secrets, v.State = sealed[v.ID], stateOf(&v.MasterKey, inUse, wrapped[v.ID])
		for e := range snap.Servers() {
			if slices.Contains(e.Value.Masters, v.ID) {
				v.Holders = append(v.Holders, e.Value.Name)
			} else {
				v.Lacking = append(v.Lacking, e.Value.Name)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b api.MasterKeyView) int { return int(b.Number) - int(a.Number) })
	return all
}

// MasterKeyDeadline is how long servers may take to fetch a new master key.
const MasterKeyDeadline = time.Minute

// LackingKeys returns a sentence for each server without a master key that the store needs. Such a server cannot open
// secrets, or keeps a new key from being used.
func (a *MasterKeysAPI) LackingKeys(snap *store.Snapshot) (all []string) {
	for _, v := range masterKeys(snap) {
		if v.ID == "" || len(v.Lacking) == 0 {
			continue
		}
		servers, lacks, it := "server "+strings.Join(v.Lacking, ", "), "lacks", "it hands out"
		if len(v.Lacking) > 1 {
			servers, lacks, it = "servers "+strings.Join(v.Lacking, ", "), "lack", "they hand out"
		}
		const next = "A server gets it by itself once it runs and reaches one that has it; else copy that " +
			"line of secrets.key from there (`berth operator secrets keys` shows who has it)"
		switch {
		case v.State == api.MasterInUse || v.State == api.MasterReplaced && v.Secrets > 0:
			all = append(all, fmt.Sprintf(
				"%s %s the master key %s of secrets: %s no secret that is sealed under it. %s", servers, lacks, v.ID,
				it, next))
		case v.State == api.MasterHandedOut && a.Now().Sub(v.Created) > MasterKeyDeadline:
			all = append(all, fmt.Sprintf(
				"%s %s the new master key %s of secrets, which is not used before all have it. %s", servers, lacks,
				v.ID, next))
		}
	}
	return all
}

// stateOf returns the state of a master key.
func stateOf(m *cluster.MasterKey, inUse string, wraps bool) api.MasterKeyState {
	switch {
	case m.ID == inUse:
		return api.MasterInUse
	case !m.Dropped.IsZero() && !wraps:
		return api.MasterDropped
	case m.Used.IsZero() && m.Number > 1:
		return api.MasterHandedOut
	case wraps || m.Retired.IsZero():
		return api.MasterReplaced
	}
	return api.MasterKept
}

// Routes returns the operations of master keys.
func (a *MasterKeysAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "POST", Path: "/v1/secrets/rotate-key", Name: "rotateSecretsKey", Role: cluster.RoleAdmin,
			Summary: "Makes a new data key, seals all secrets with it and drops the older ones. The leader " +
				"completes an interrupted rotation.", Reply: reflect.TypeFor[api.SecretsKeyView](), Long: true,
			Serve: a.rotateSecretsKey,
		},
		{
			Method: "POST", Path: "/v1/secrets/rekey", Name: "rekeySecrets", Role: cluster.RoleAdmin,
			Summary: "Makes a new master key: all servers fetch it, then the leader seals all secrets under it. " +
				"While a replacement runs, the answer is its key.",
			Reply: reflect.TypeFor[api.MasterKeyView](),
			Serve: a.rekeySecrets,
		},
		{
			Method: "GET", Path: "/v1/secrets/master-keys", Name: "listMasterKeys", Role: cluster.RoleOperator,
			Summary: "The master keys by id: which one is used, which servers hold it, and how many secrets it " +
				"seals.", Query: []route.Parameter{route.Consistent()},
			Reply: reflect.TypeFor[[]api.MasterKeyView](),
			Serve: a.listMasterKeys,
		},
		{
			Method: "DELETE", Path: "/v1/secrets/master-keys/{key}", Name: "dropMasterKey", Role: cluster.RoleAdmin,
			Summary: "Removes an unused master key from the files of all servers. Older snapshots still need it.",
			Status:  http.StatusNoContent, Serve: a.dropMasterKey,
		},
	}
}

package catalog

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// ProfilesAPI lists, reads, writes and deletes profiles of machines. Operators alone read them, because their files may
// hold what others should not see.
type ProfilesAPI struct{ backend.Backend }

func profileView(snap *store.Snapshot, e store.Entry[cluster.Profile]) api.ProfileView {
	return api.ProfileView{Profile: *e.Value, Nodes: draft.ProfileNodes(snap, e.Value.Ref()), Revision: e.Modified}
}

func (a *ProfilesAPI) listProfiles(w http.ResponseWriter, r *http.Request) error {
	return lists.Serve(a.Lists, w, r, lists.Source[api.ProfileView]{
		List: "profiles", Topics: store.TopicNodes | store.TopicPools,
		All: func(snap *store.Snapshot) (all []lists.Item[api.ProfileView]) {
			for e := range snap.Profiles("") {
				v := profileView(snap, e)
				all = append(all, lists.Item[api.ProfileView]{Key: v.Ref().String(), Value: v})
			}
			slices.SortFunc(all, func(a, b lists.Item[api.ProfileView]) int { return cmp.Compare(a.Key, b.Key) })
			return all
		},
	})
}

// find returns a version of a profile, or the newest if the reference has none.
func (a *ProfilesAPI) find(snap *store.Snapshot, ref cluster.Ref) (v api.ProfileView, ok bool) {
	if ref.Version > 0 {
		e, ok := snap.Profile(ref)
		if ok {
			v = profileView(snap, e)
		}
		return v, ok
	}
	for e := range snap.Profiles(ref.Name) {
		if e.Value.Version > v.Version {
			v, ok = profileView(snap, e), true
		}
	}
	return v, ok
}

// profileOf returns the reference in an address that route.Check has accepted.
func profileOf(r *http.Request) cluster.Ref {
	n, _ := strconv.Atoi(r.PathValue("version")) // without one it is 0
	return cluster.Ref{Name: r.PathValue("profile"), Version: n}
}

func (a *ProfilesAPI) readProfile(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	ref := profileOf(r)
	v, ok := a.find(snap, ref)
	if !ok {
		return respond.NotFound("profile", ref.String())
	}
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *ProfilesAPI) deleteProfile(w http.ResponseWriter, r *http.Request) error {
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		return d.RemoveProfile(profileOf(r), pre)
	})
}

// Routes returns the operations of profiles. Manifests write them.
func (a *ProfilesAPI) Routes() []route.Route {
	const all, newest, one = "/v1/profiles", "/v1/profiles/{profile}", "/v1/profiles/{profile}/{version}"
	view := reflect.TypeFor[api.ProfileView]()
	return []route.Route{
		{
			Method: "GET", Path: all, Name: "listMachineProfiles", Role: cluster.RoleOperator,
			Summary: "All versions of all profiles of machines.",
			Query:   route.ListParameters(), Reply: reflect.TypeFor[api.Page[api.ProfileView]](),
			Stream: route.MediaEventStream, Long: true, Serve: a.listProfiles,
		},
		{
			Method: "GET", Path: newest, Name: "readNewestMachineProfile", Role: cluster.RoleOperator,
			Summary: "The newest version of a profile of machines.",
			Query:   []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readProfile,
		},
		{
			Method: "GET", Path: one, Name: "readMachineProfile", Role: cluster.RoleOperator,
			Summary: "One version of a profile of machines.",
			Query:   []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readProfile,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteMachineProfile", Role: cluster.RoleOperator,
			Summary: "Deletes a version of a profile that no node has.", Writes: true, Status: http.StatusNoContent,
			Serve: a.deleteProfile,
		},
	}
}

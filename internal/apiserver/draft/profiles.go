package draft

import (
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// SetProfile drafts the write of a version of a profile, which is written once. The same content again changes nothing.
func (d *Draft) SetProfile(p *cluster.Profile) (api.Change, error) {
	ref := p.Ref()
	change := api.Change{Kind: cluster.KindProfile, Name: ref.String(), Action: api.ActionCreate}
	if old, ok := d.Snap.Profile(ref); ok {
		action, fields := Compare(old.Value, p)
		if action != api.ActionNone {
			return change, differs(ref, fields)
		}
		change.Action, change.Revision = action, old.Modified
		d.Require(d.Prefix.Profile(ref), old.Modified)
		return change, nil
	}
	d.Put(d.Prefix.Profile(ref), p, 0)
	return change, nil
}

// RemoveProfile drafts the deletion of a version of a profile. A version that nodes have is refused.
func (d *Draft) RemoveProfile(ref cluster.Ref, pre Precondition) error {
	e, ok := d.Snap.Profile(ref)
	if err := pre.Check(e.Modified); err != nil {
		return err
	}
	if !ok {
		return respond.NotFound("profile", ref.String())
	}
	if nodes := ProfileNodes(d.Snap, ref); len(nodes) > 0 {
		return respond.Problemf(http.StatusConflict, "the profile %s is that of %s: %s. Give them another version "+
			"first (berth node add)", ref, respond.Plural(len(nodes), "node"), firstNames(nodes))
	}
	key := d.Prefix.Profile(ref)
	d.Put(key, nil, e.Modified)
	d.Events = append(d.Events, cluster.Event{
		Type: "profile.deleted", Reason: cluster.ReasonDeleted, Message: "the user deleted the profile " + ref.String(),
	})
	return nil
}

// ProfileNodes returns the nodes that were set up with a version of a profile, by name.
func ProfileNodes(snap *store.Snapshot, ref cluster.Ref) (names []string) {
	for e := range snap.Hosts() {
		if s := e.Value.Setup; s != nil && s.Profile != nil && *s.Profile == ref && !e.Value.Gone {
			names = append(names, e.Value.Name)
		}
	}
	slices.Sort(names)
	return names
}

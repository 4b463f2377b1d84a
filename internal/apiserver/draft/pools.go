package draft

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// maxNamedNodes is how many nodes of a pool the refusal of its deletion names.
const maxNamedNodes = 5

// SetPool drafts the write of a pool's settings.
func (d *Draft) SetPool(p *cluster.Pool, pre Precondition) (api.Change, error) {
	change := api.Change{Kind: cluster.KindPool, Name: p.Name, Action: api.ActionCreate}
	old, ok := d.Snap.Pool(p.Name)
	if err := pre.Check(old.Modified); err != nil {
		return change, err
	}
	if ok {
		change.Revision = old.Modified
		change.Action, change.Fields = Compare(old.Value, p)
	}
	d.Require(d.Prefix.Pool(p.Name), old.Modified)
	if change.Action != api.ActionNone {
		d.Put(d.Prefix.Pool(p.Name), p, old.Modified)
	}
	return change, nil
}

// RemovePool drafts the deletion of a pool's settings. A pool with nodes is refused: the nodes would stay in a pool of
// that name, with other settings. A node that joins at the same time does no harm, because a pool needs no record.
func (d *Draft) RemovePool(name string, pre Precondition) error {
	e, ok := d.Snap.Pool(name)
	if err := pre.Check(e.Modified); err != nil {
		return err
	}
	if nodes := d.Snap.PoolNodes(name); len(nodes) > 0 {
		return respond.Problemf(http.StatusConflict, "pool %s still has %s: %s. Take each out with berth node pool "+
			"NODE --none first; to remove only its settings, write the pool without them",
			name, respond.Plural(len(nodes), "node"), firstNames(nodes))
	}
	if !ok {
		return respond.NotFound("pool", name)
	}
	key := d.Prefix.Pool(name)
	d.Require(key, e.Modified)
	d.Put(key, nil, e.Modified)
	d.Events = append(d.Events, cluster.Event{
		Type: "pool.deleted", Reason: cluster.ReasonDeleted, Message: "the user deleted the pool " + name,
	})
	return nil
}

// firstNames lists names, the first maxNamedNodes of them.
func firstNames(names []string) string {
	if rest := len(names) - maxNamedNodes; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamedNodes], ", "), rest)
	}
	return strings.Join(names, ", ")
}

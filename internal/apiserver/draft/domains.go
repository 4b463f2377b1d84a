package draft

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// domains are the domains of a draft.
type domains struct{ *transaction }

// SetDomain drafts the write of a domain. It keeps the number, the override of mass silence, and the claim of a
// scheduler that stays the same. It gives a new domain a number.
func (d *domains) SetDomain(next *cluster.Domain, pre Precondition) (api.Change, error) {
	change := api.Change{Kind: cluster.KindDomain, Name: next.Name, Action: api.ActionCreate}
	old, ok := d.Snap.Domain(next.Name)
	if err := pre.Check(old.Modified); err != nil {
		return change, err
	}
	next.Number, next.RescheduleUntil, next.Claim = 0, time.Time{}, nil
	if ok {
		next.Number, next.RescheduleUntil = old.Value.Number, old.Value.RescheduleUntil
		if reflect.DeepEqual(old.Value.Scheduler, next.Scheduler) {
			next.Claim = old.Value.Claim
		}
		change.Revision = old.Modified
		change.Action, change.Fields = Compare(old.Value, next)
	}
	for i, pool := range next.Pools {
		for _, other := range d.otherDomains(next.Name) {
			if slices.Contains(other.Pools, pool) {
				return change, Conflictf(fmt.Sprintf("pools[%d]", i), "the pool %s belongs to the domain %s", pool,
					other.Name)
			}
			// A concurrent write that gives the pool to the other domain is refused.
			d.Require(d.Prefix.Domain(other.Name), d.revisionOf(other.Name))
		}
	}
	if next.Number == 0 && next.Name != cluster.DefaultDomain {
		if err := d.number(next); err != nil {
			return change, err
		}
		if ok { // another program made the record
			change.Action = api.ActionUpdate
		}
	}
	d.Require(d.Prefix.Domain(next.Name), old.Modified)
	if change.Action == api.ActionNone {
		return change, nil
	}
	d.Put(d.Prefix.Domain(next.Name), next, old.Modified)
	e := cluster.Event{Type: "domain.updated", Message: "the user changed the domain " + next.Name}
	if change.Action == api.ActionCreate {
		e = cluster.Event{Type: "domain.created", Message: "the user made the domain " + next.Name}
	}
	d.Events = append(d.Events, e)
	return change, nil
}

// revisionOf returns the revision of a domain's record, 0 if it has none.
func (d *domains) revisionOf(domain string) uint64 {
	e, _ := d.Snap.Domain(domain)
	return e.Modified
}

// otherDomains returns the records of all domains but one as they are after the draft, ordered by name.
func (d *domains) otherDomains(but string) (all []*cluster.Domain) {
	records := map[string]*cluster.Domain{}
	for _, name := range d.Snap.Domains() {
		if e, ok := d.Snap.Domain(name); ok {
			records[name] = e.Value
		}
	}
	for _, record := range d.writes { // order-free: a map is filled
		if r, ok := record.(*cluster.Domain); ok {
			records[r.Name] = r
		}
	}
	delete(records, but)
	for _, name := range slices.Sorted(maps.Keys(records)) {
		all = append(all, records[name])
	}
	return all
}

// number gives a new domain the number after the last one that was given, which is in the record of the default domain.
func (d *domains) number(next *cluster.Domain) error {
	others := len(d.otherDomains(next.Name))
	key := d.Prefix.Domain(cluster.DefaultDomain)
	e, ok := d.Snap.Domain(cluster.DefaultDomain)
	last := cluster.Domain{Name: cluster.DefaultDomain}
	if written, drafted := d.writes[key].(*cluster.Domain); drafted {
		last = *written
	} else if ok {
		last = *e.Value
	}
	if others >= cluster.MaxDomains || last.Number >= cluster.MaxDomainNumber {
		return Conflictf("name", "no more domains are possible: there may be %d at a time, and %d in the life of a "+
			"store", cluster.MaxDomains, cluster.MaxDomainNumber)
	}
	last.Number++
	next.Number = last.Number
	d.Put(key, &last, e.Modified)
	return nil
}

// RemoveDomain drafts the deletion of a domain that holds neither clusters nor nodes.
func (d *domains) RemoveDomain(name string, pre Precondition) error {
	e, ok := d.Snap.Domain(name)
	if err := pre.Check(e.Modified); err != nil {
		return err
	}
	if name == cluster.DefaultDomain {
		return respond.Problemf(http.StatusConflict, "the domain %s always exists", name)
	}
	if !ok {
		return respond.NotFound("domain", name)
	}
	var held []string
	for c := range d.Snap.Clusters() {
		if c.Value.InDomain() == name {
			held = append(held, "cluster "+c.Value.Name)
		}
	}
	for h := range d.Snap.Hosts() {
		if n := h.Value.Name; !h.Value.Gone && d.Snap.WantedDomain(n) == name {
			held = append(held, "node "+n)
		}
	}
	for n := range d.Snap.Nodes() {
		if at := "node " + n.Value.Name; n.Value.Domain == name && !slices.Contains(held, at) {
			held = append(held, at)
		}
	}
	if len(held) > 0 {
		return respond.Problemf(http.StatusConflict, "the domain %s still holds %s. Delete its clusters, and give its "+
			"nodes to another domain (berth node domain NODE %s)", name, firstNames(held), cluster.DefaultDomain)
	}
	d.Remove(d.Prefix.Domain(name), e.Modified, cluster.Event{
		Type: "domain.deleted", Reason: cluster.ReasonDeleted, Message: "the user deleted the domain " + name,
	})
	// With the leader's record, the fence of its writes is gone.
	if l, ok := d.Snap.Leader(name); ok {
		d.Put(d.Prefix.Leader(name), nil, l.Modified)
	}
	if r, ok := d.Snap.Recovery(name); ok {
		d.Put(d.Prefix.Recovery(name), nil, r.Modified)
	}
	for p := range d.Snap.Plans(e.Value.Number) {
		d.Put(p.Key, nil, p.Modified)
	}
	return nil
}

// RequireDomain adds the existence of a domain as a precondition of an object in it, which has the field domain.
func (d *domains) RequireDomain(name string) error {
	if name == "" || name == cluster.DefaultDomain {
		return nil
	}
	if _, ok := d.writes[d.Prefix.Domain(name)].(*cluster.Domain); ok {
		return nil
	}
	if _, ok := d.Snap.DomainNumber(name); ok {
		d.Require(d.Prefix.Domain(name), d.revisionOf(name))
		return nil
	}
	known := d.Snap.Domains()
	for _, o := range d.otherDomains(name) {
		if !slices.Contains(known, o.Name) {
			known = append(known, o.Name)
		}
	}
	return Faultf("domain", "there is no domain %s; there are %s", name, strings.Join(known, ", "))
}

// keepsDomain refuses the change of the domain of a cluster with services or jobs: their tasks run on nodes of the
// former one.
func (d *domains) keepsDomain(was, next *cluster.Cluster) error {
	if was == nil || was.InDomain() == next.InDomain() {
		return nil
	}
	for range d.Snap.Services(next.Name) {
		return d.domainConflict(was, next)
	}
	for range d.Snap.Jobs(next.Name) {
		return d.domainConflict(was, next)
	}
	for range d.Snap.Crons(next.Name) {
		return d.domainConflict(was, next)
	}
	return nil
}

func (d *domains) domainConflict(was, next *cluster.Cluster) error {
	return Conflictf("domain", "cluster %s is in the domain %s and holds services, jobs or crons, whose tasks run on "+
		"nodes of that domain: delete them first, or make another cluster in %s", next.Name, was.InDomain(),
		next.InDomain())
}

package draft

import (
	"fmt"
	"net/http"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// definitions are the versions of task definitions of a draft.
type definitions struct {
	*transaction
	written map[cluster.Ref]*cluster.TaskDefinition
	newest  map[string]int
	// visible and addable are what sees and mayAdd compute once, because it walks many attempts.
	visible func(cluster.Ref) bool
	addable func(name string) bool
}

// sees reports whether the caller sees a version of a definition.
func (d *definitions) sees(ref cluster.Ref) bool {
	if !d.Caller.IsLimited() {
		return true
	}
	if d.visible == nil {
		d.visible = d.Caller.VisibleDefinitions(d.Snap)
	}
	return d.visible(ref)
}

// mayAdd reports whether the caller may add a version to a name.
func (d *definitions) mayAdd(name string) bool {
	if !d.Caller.IsLimited() {
		return true
	}
	if d.addable == nil {
		d.addable = d.Caller.AddableDefinitions(d.Snap)
	}
	return d.addable(name)
}

// SetDefinition drafts the write of a version of a definition. A version is written once.
func (d *definitions) SetDefinition(def *cluster.TaskDefinition) (api.Change, error) {
	def.Inline = false
	return d.writeVersion(def)
}

// writeVersion drafts the write of a version of a definition, which may come from a template. A user's write of a
// version that came from a template makes it the user's. A caller with a limit adds no version to the names of others.
func (d *definitions) writeVersion(def *cluster.TaskDefinition) (api.Change, error) {
	ref := def.Ref()
	def.Deleted, def.Unused = false, time.Time{}
	change := api.Change{Kind: cluster.KindTaskDefinition, Name: ref.String(), Action: api.ActionCreate}
	if old, ok := d.Snap.Definition(ref); ok {
		def.PinAs(old.Value) // a definition that is written again has no digests
		present := *old.Value
		present.Deleted, present.Inline, present.Unused = false, def.Inline, time.Time{}
		action, fields := Compare(&present, def)
		if action != api.ActionNone {
			switch {
			case d.sees(ref):
			case !d.mayAdd(ref.Name):
				return change, taken(ref.Name)
			default:
				fields = nil // they hold values of the present version
			}
			return change, differs(ref, fields)
		}
		change.Action, change.Revision = action, old.Modified
		d.written[ref] = def
		if old.Value.Deleted || old.Value.Inline && !def.Inline { // the write ends the deletion
			d.Put(d.Prefix.Definition(ref), def, old.Modified)
		} else if !old.Value.Unused.IsZero() {
			d.Put(d.Prefix.Definition(ref), *def, old.Modified) // by value: this is no event
		}
		return change, nil
	}
	d.written[ref] = def // also if it is refused, so that references to it are no further faults
	if !d.mayAdd(ref.Name) {
		return change, taken(ref.Name)
	}
	d.Put(d.Prefix.Definition(ref), def, 0)
	newest, rev, _ := d.Snap.NewestDefinition(def.Name)
	if n := max(newest.Version, d.newest[def.Name]); def.Version > n {
		d.newest[def.Name] = def.Version
		d.Put(d.Prefix.NewestDefinition(def.Name), store.Newest{Name: def.Name, Version: def.Version}, rev)
	}
	return change, nil
}

// takenText says that a caller with a limit may not add a version to a name.
func takenText(name string) string {
	return fmt.Sprintf("the name %s is taken, and a token that is limited to clusters adds versions only to names "+
		"that these clusters alone use: choose another name", name)
}

// taken returns the conflict of takenText.
func taken(name string) error {
	return respond.Problemf(http.StatusConflict, "%s", takenText(name))
}

// differs returns the conflicts of a version that exists with other content, one for each field.
func differs(ref cluster.Ref, fields []api.FieldChange) error {
	p := respond.Problemf(http.StatusConflict,
		"%s exists with another content, and a version is written once: give the new content another version", ref)
	for _, f := range fields {
		p.Faults = append(p.Faults,
			cluster.Fault{
				Path:    f.Path,
				Message: fmt.Sprintf("is %s here and %s in the stored %s", orNothing(f.New), orNothing(f.Old), ref),
			})
	}
	return p
}

func orNothing(text string) string {
	if text == "" {
		return "not set"
	}
	return text
}

// Resolve sets the newest version of a definition if a reference names none, and adds the definition's revision as a
// precondition. For a caller with a limit there are only the versions that it sees or that the draft writes.
func (d *definitions) Resolve(ref *cluster.Ref, path string) error {
	if ref.Version == 0 {
		newest := max(d.newestSeen(ref.Name), d.newest[ref.Name])
		if newest == 0 {
			return Faultf(path, "%s", d.missing(ref.Name))
		}
		if _, rev, ok := d.Snap.NewestDefinition(ref.Name); ok {
			d.Require(d.Prefix.NewestDefinition(ref.Name), rev)
		}
		ref.Version = newest
	}
	if d.written[*ref] != nil {
		return nil
	}
	e, ok := d.Snap.Definition(*ref)
	if !ok || !d.sees(*ref) {
		if newest := d.newestSeen(ref.Name); newest != 0 {
			return Faultf(path, "%s; the newest is %s", d.missing(ref.String()),
				cluster.Ref{Name: ref.Name, Version: newest})
		}
		return Faultf(path, "%s", d.missing(ref.String()))
	}
	if e.Value.Deleted {
		return Faultf(path, "task definition %s is being deleted: write it again to keep it", *ref)
	}
	if !e.Value.Unused.IsZero() { // its age begins again
		def := *e.Value
		def.Unused = time.Time{}
		d.written[*ref] = &def
		d.Put(d.Prefix.Definition(*ref), def, e.Modified) // by value: this is no event
		return nil
	}
	// The exact revision is needed: a deletion marks the record first, and must see every later reference.
	d.Require(d.Prefix.Definition(*ref), e.Modified)
	return nil
}

// newestSeen returns the newest version of a name, 0 if there is none. For a caller with a limit it is the newest that
// the caller sees or that the draft writes.
func (d *definitions) newestSeen(name string) int {
	newest, _, _ := d.Snap.NewestDefinition(name)
	if !d.Caller.IsLimited() {
		return newest.Version
	}
	version := 0
	for e := range d.Snap.Definitions(name) {
		if ref := e.Value.Ref(); ref.Version > version && (d.written[ref] != nil || d.sees(ref)) {
			version = ref.Version
		}
	}
	return version
}

// missing says that a definition does not exist. For a caller with a limit the sentence is the same for one that exists
// and that it does not see.
func (d *definitions) missing(what string) string {
	if d.Caller.IsLimited() {
		return fmt.Sprintf("there is no task definition %s that the clusters of your token use: write it in the same "+
			"request", what)
	}
	return "there is no task definition " + what
}

// Definition returns a definition of the draft or the store, nil if there is none that the caller sees.
func (d *definitions) Definition(ref cluster.Ref) *cluster.TaskDefinition {
	if def := d.written[ref]; def != nil {
		return def
	}
	e, ok := d.Snap.Definition(ref)
	if !ok || !d.sees(ref) {
		return nil
	}
	return e.Value
}

package draft

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// maxCompared limits the versions of a definition with which a template is compared, the newest first. Older content
// gets a new version.
const maxCompared = 100

// maxVersion is the highest version that the server counts to.
const maxVersion = math.MaxInt32

// SameVersion returns the version of a definition that has the content of def: prefer if it is such a version, else the
// newest one. Versions that are being deleted, and those for which sees returns false, do not count. Images of
// def without digests have those of the compared version.
func SameVersion(snap *store.Snapshot, def *cluster.TaskDefinition, prefer cluster.Ref,
	sees func(cluster.Ref) bool,
) (cluster.Ref, bool) {
	wanted := contentOf(def)
	same := func(old *cluster.TaskDefinition) bool {
		return !old.Deleted && sees(old.Ref()) && bytes.Equal(contentOf(old), wanted) && sameContent(old, def)
	}
	if prefer.Name == def.Name {
		if e, ok := snap.Definition(prefer); ok && same(e.Value) {
			return prefer, true
		}
	}
	var versions []*cluster.TaskDefinition
	for e := range snap.Definitions(def.Name) {
		versions = append(versions, e.Value)
	}
	compared := 0
	for _, old := range slices.Backward(versions) {
		if compared++; compared > maxCompared {
			break
		}
		if same(old) {
			return old.Ref(), true
		}
	}
	return cluster.Ref{}, false
}

// contentOf returns what a definition says, besides its version, what the server notes about that, and the digests of
// images. Definitions of equal content may still differ in digests.
func contentOf(d *cluster.TaskDefinition) []byte {
	bare := *d
	bare.Version, bare.Inline, bare.Unused, bare.Deleted = 0, false, time.Time{}, false
	bare.Containers = slices.Clone(bare.Containers)
	for i := range bare.Containers {
		bare.Containers[i].Digest = ""
	}
	text, _ := json.Marshal(&bare) // definitions always marshal
	return text
}

// sameContent reports whether a definition differs from a present version in nothing but the version.
func sameContent(old, def *cluster.TaskDefinition) bool {
	next := *def
	next.Version, next.Inline, next.Unused = old.Version, old.Inline, old.Unused
	next.PinAs(old)
	action, _ := Compare(old, &next)
	return action == api.ActionNone
}

// resolveTemplate replaces a template by the reference to a version of the same content. If there is none, it drafts
// the write of the next version. It returns the fields in which the template differs from the version that the owner
// had, which may be the zero Ref.
func (d *definitions) resolveTemplate(t *cluster.InlineDefinition, had cluster.Ref) (cluster.Ref,
	[]api.FieldChange, error,
) {
	def := t.TaskDefinition
	def.Version, def.Deleted, def.Unused = 0, false, time.Time{}
	ref, ok := d.drafted(&def)
	if !ok {
		ref, ok = SameVersion(d.Snap, &def, had, d.sees)
	}
	if ok {
		if err := d.Resolve(&ref, ""); err != nil {
			return ref, nil, err
		}
	} else {
		newest, _, _ := d.Snap.NewestDefinition(def.Name)
		highest := max(newest.Version, d.newest[def.Name])
		if highest >= maxVersion {
			return ref, nil, Faultf("name", "the version %d of %s is too high for a next one: give the template "+
				"another name", highest, def.Name)
		}
		if !d.mayAdd(def.Name) {
			return ref, nil, Faultf("name", "%s", takenText(def.Name))
		}
		def.Version = highest + 1
		ref = def.Ref()
		def.Inline = true
		if _, err := d.writeVersion(&def); err != nil {
			return ref, nil, err
		}
	}
	old, next := d.Definition(had), d.Definition(ref)
	if old == nil || had == ref {
		return ref, nil, nil
	}
	before, after := *old, *next
	before.Version, after.Version = 0, 0
	before.Deleted, before.Inline = false, after.Inline
	before.Unused, after.Unused = time.Time{}, time.Time{}
	_, fields := Compare(&before, &after)
	return ref, fields, nil
}

// drafted returns the version of the same content that the draft writes.
func (d *definitions) drafted(def *cluster.TaskDefinition) (cluster.Ref, bool) {
	newest := d.newest[def.Name]
	for version := newest; version > max(0, newest-maxCompared); version-- {
		ref := cluster.Ref{Name: def.Name, Version: version}
		if other := d.written[ref]; other != nil && sameContent(other, def) {
			return ref, true
		}
	}
	return cluster.Ref{}, false
}

// resolveDefinition completes the reference of an owner, from its template if it has one; before is the path of the
// owner's field, with a point at its end. It returns the field that holds the definition, and the changes of a template
// from the version that the owner had.
func (d *definitions) resolveDefinition(ref *cluster.Ref, template **cluster.InlineDefinition, had cluster.Ref,
	before string,
) (definitionField, []api.FieldChange, error) {
	if *template == nil {
		field := definitionField{path: before + "definition"}
		return field, nil, d.Resolve(ref, field.path)
	}
	field := definitionField{path: before + "template", inline: true}
	resolved, changes, err := d.resolveTemplate(*template, had)
	if faults, ok := errors.AsType[cluster.Faults](err); ok {
		return field, nil, strictjson.PrefixPaths(faults, field.path)
	}
	if err != nil {
		return field, nil, err
	}
	*ref, *template = resolved, nil
	for i := range changes {
		changes[i].Path = field.path + "." + changes[i].Path
	}
	return field, changes, nil
}

// inlineNames returns the names of the definitions that are inside of an owner for its users: those of the templates of
// this write, and those that the present owner lists in before and whose version stays. Fields belong to refs. Old are
// the references of the present owner.
func inlineNames(fields []definitionField, refs, old []cluster.Ref, before []string) (all []string) {
	had := make(map[cluster.Ref]bool, len(old))
	for _, ref := range old {
		had[ref] = true
	}
	for i, ref := range refs {
		_, listed := slices.BinarySearch(before, ref.Name)
		if fields[i].inline || had[ref] && listed {
			all = append(all, ref.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// definitionsOf returns the definitions of steps, in their order.
func definitionsOf(steps []cluster.Step) []cluster.Ref {
	refs := make([]cluster.Ref, len(steps))
	for i := range steps {
		refs[i] = steps[i].Definition
	}
	return refs
}

package projection

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const (
	// maxUnusedDefinitions is how many unused versions of a task definition are kept, besides the newest version and
	// those in use.
	maxUnusedDefinitions = 10
	// definitionsInterval is the time between two scans for surplus versions.
	definitionsInterval = time.Hour
	// maxDefinitionWrites bounds the versions that are marked or removed in one step.
	maxDefinitionWrites = 200
)

// definitionSweep removes versions of task definitions that nothing uses: those beyond the last few, and all versions
// of a name where all came from templates, because their service, job or cron is gone.
//
// A version is removed in two steps. The first step marks it. Writes that refer to it compare its exact revision, so
// writes from before the mark fail from then on. The second step removes the version if a snapshot with the mark shows
// no use, and otherwise removes the mark. The next scan finds marks that another server left behind.
type definitionSweep struct {
	due time.Duration // on the boot-time clock
}

// units returns what is to be written from a snapshot. It scans at most once in definitionsInterval, and again
// immediately after a mark.
func (d *definitionSweep) units(snap *store.Snapshot, prefix store.Prefix, now time.Duration) (units []store.Unit,
	err error,
) {
	if now < d.due {
		return nil, nil
	}
	d.due = now + definitionsInterval
	used := snap.UsedDefinitions()
	var idle []store.Entry[cluster.TaskDefinition] // unused versions of one definition, the oldest first
	kept := 0                                      // other versions of it, and those that users wrote
	write := func(event *cluster.Event, writes ...store.RecordWrite) {
		if err != nil || len(units) >= maxDefinitionWrites {
			return
		}
		var u store.Unit
		for _, w := range writes {
			u.Compare(w.Key, w.Modified)
			if w.Record == nil {
				u.Delete(w.Key)
			} else if err = u.Put(w.Key, w.Record); err != nil {
				return
			}
		}
		if event != nil {
			u.Event(*event)
		}
		units = append(units, u)
		d.due = now
	}
	marked := func(e store.Entry[cluster.TaskDefinition], deleted bool) store.RecordWrite {
		def := *e.Value
		def.Deleted = deleted
		return store.RecordWrite{Key: prefix.Definition(def.Ref()), Modified: e.Modified, Record: &def}
	}
	mark := func() {
		surplus := max(0, len(idle)-maxUnusedDefinitions)
		if kept == 0 {
			surplus = len(idle)
		}
		for _, e := range idle[:surplus] {
			write(nil, marked(e, true))
		}
		idle, kept = idle[:0], 0
	}
	name, removing := "", false
	for e := range snap.Definitions("") {
		if name != e.Value.Name {
			mark()
			name, removing = e.Value.Name, false
		}
		newest, _, _ := snap.NewestDefinition(name)
		if !e.Value.Deleted && (used[e.Value.Ref()] || !e.Value.Inline) {
			kept++
		}
		switch ref := e.Value.Ref(); {
		case e.Value.Deleted && used[ref]:
			write(&cluster.Event{Type: "definition.updated", Message: store.KeptDefinition(ref)}, marked(e, false))
		case e.Value.Deleted && !removing: // the next step removes others of the name: each may be the newest by then
			removing = true
			removed := snap.RemoveDefinition(prefix, e)
			write(&removed.Event, removed.Writes...)
		case !e.Value.Deleted && !used[ref] && (ref != newest || kept == 0):
			idle = append(idle, e)
		}
	}
	mark()
	return units, err
}

package projection

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/boottime"
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
	// clockHold is how long the wall clock must run without a jump before a version is removed by its age.
	clockHold = 10 * time.Minute
)

// definitionSweep removes versions of task definitions that nothing names: those beyond the last few, all versions of a
// name where all came from templates, because their service, job or cron is gone, and, if keep is set, those that
// nothing has named for so long. The newest version of a name becomes too old only together with all others, so that no
// number of a version is given twice while the name is in use.
//
// A version is removed in two steps. The first step marks it. Writes that refer to it compare its exact revision, so
// writes from before the mark fail from then on. The second step removes the version if a snapshot with the mark shows
// no use, and otherwise removes the mark. The next scan finds marks that another server left behind.
//
// The age of a version is in its record (TaskDefinition.Unused), so it does not begin again with a new leader.
type definitionSweep struct {
	keep time.Duration    // 0 for ever
	now  func() time.Time // the wall clock
	due  time.Duration    // on the boot-time clock
	// jumps are those of the wall clock between calls of units. Ages count from the boot-time trustedFrom on: a clock
	// that was set may be wrong, and be set right again.
	jumps       boottime.Jumps
	isScanned   bool // units was called
	trustedFrom time.Duration
}

// noteJump has ages count later if the wall clock was set since the last call. boot is the present boot-time.
func (d *definitionSweep) noteJump(wall time.Time, boot time.Duration) {
	if d.jumps.Since(wall, boot) != 0 || !d.isScanned {
		d.trustedFrom = boot + clockHold
	}
	d.isScanned = true
}

// keepNow returns for how long versions are kept, 0 for ever. boot is the present boot-time.
func (d *definitionSweep) keepNow(boot time.Duration) time.Duration {
	if boot >= d.trustedFrom {
		return d.keep
	}
	if d.keep > 0 {
		d.due = min(d.due, d.trustedFrom)
	}
	return 0
}

// units returns what is to be written from a snapshot. It scans at most once in definitionsInterval, and again
// immediately after a write.
func (d *definitionSweep) units(snap *store.Snapshot, prefix store.Prefix, now time.Duration) ([]store.Unit, error) {
	wall := d.now()
	d.noteJump(wall, now)
	if now < d.due {
		return nil, nil
	}
	d.due = now + definitionsInterval
	s := &definitionScan{
		snap: snap, prefix: prefix, used: snap.UsedDefinitions(), keep: d.keepNow(now), now: wall.UTC(),
	}
	var versions []store.Entry[cluster.TaskDefinition] // of one name
	for e := range snap.Definitions("") {
		if len(versions) > 0 && versions[0].Value.Name != e.Value.Name {
			s.judge(versions)
			versions = versions[:0]
		}
		versions = append(versions, e)
	}
	s.judge(versions)
	if len(s.units) > 0 {
		d.due = now
	}
	return s.units, s.err
}

// definitionScan is one scan over all versions.
type definitionScan struct {
	snap   *store.Snapshot
	prefix store.Prefix
	used   map[cluster.Ref]bool
	keep   time.Duration
	now    time.Time
	units  []store.Unit
	err    error
}

// judge decides about the versions of a name, the oldest first.
func (s *definitionScan) judge(versions []store.Entry[cluster.TaskDefinition]) {
	// Unused versions: idle are those that are removed by number, and aged and young all of them, by age.
	var idle, aged, young []store.Entry[cluster.TaskDefinition]
	kept, removing := 0, false // kept counts the versions that are used or a user's
	for _, e := range versions {
		ref := e.Value.Ref()
		newest, _, _ := s.snap.NewestDefinition(ref.Name)
		if !e.Value.Deleted && (s.used[ref] || !e.Value.Inline) {
			kept++
		}
		switch {
		case e.Value.Deleted && s.used[ref]:
			s.write(&cluster.Event{Type: "definition.updated", Message: store.KeptDefinition(ref)},
				change(s.prefix, e, func(t *cluster.TaskDefinition) { t.Deleted, t.Unused = false, time.Time{} }))
		case e.Value.Deleted && !removing: // the next step removes others: each may be the newest by then
			removing = true
			removed := s.snap.RemoveDefinition(s.prefix, e)
			s.write(&removed.Event, removed.Writes...)
		case e.Value.Deleted:
		case s.used[ref]:
			if !e.Value.Unused.IsZero() {
				s.write(nil, change(s.prefix, e, func(t *cluster.TaskDefinition) { t.Unused = time.Time{} }))
			}
		default:
			if s.isAged(e) {
				aged = append(aged, e)
			} else {
				young = append(young, e)
			}
			if ref != newest || kept == 0 {
				idle = append(idle, e)
			}
		}
	}
	surplus := max(0, len(idle)-maxUnusedDefinitions)
	if kept == 0 {
		surplus = len(idle)
	}
	s.mark(idle[:surplus])
	if len(aged) > 0 && len(aged) < len(versions) { // the newest waits for the others
		newest, _, _ := s.snap.NewestDefinition(aged[0].Value.Name)
		aged = slices.DeleteFunc(aged, func(e store.Entry[cluster.TaskDefinition]) bool {
			return e.Value.Ref() == newest
		})
	}
	isMarked := func(e store.Entry[cluster.TaskDefinition]) bool {
		return slices.ContainsFunc(idle[:surplus], func(i store.Entry[cluster.TaskDefinition]) bool {
			return i.Key == e.Key
		})
	}
	s.mark(slices.DeleteFunc(aged, isMarked))
	s.date(slices.DeleteFunc(young, isMarked))
}

// isAged reports whether nothing has named an unused version for long enough.
func (s *definitionScan) isAged(e store.Entry[cluster.TaskDefinition]) bool {
	return s.keep > 0 && !e.Value.Unused.IsZero() && s.now.Sub(e.Value.Unused) >= s.keep
}

// date begins the age of versions that have none.
func (s *definitionScan) date(versions []store.Entry[cluster.TaskDefinition]) {
	for _, e := range versions {
		if s.keep > 0 && e.Value.Unused.IsZero() {
			s.write(nil, change(s.prefix, e, func(t *cluster.TaskDefinition) { t.Unused = s.now }))
		}
	}
}

// mark marks versions as deleted.
func (s *definitionScan) mark(versions []store.Entry[cluster.TaskDefinition]) {
	for _, e := range versions {
		s.write(nil, change(s.prefix, e, func(t *cluster.TaskDefinition) { t.Deleted = true }))
	}
}

// change returns the write of a changed version.
func change(prefix store.Prefix, e store.Entry[cluster.TaskDefinition], by func(*cluster.TaskDefinition),
) store.RecordWrite {
	def := *e.Value
	by(&def)
	return store.RecordWrite{Key: prefix.Definition(def.Ref()), Modified: e.Modified, Record: &def}
}

// write adds a unit of writes with an event, unless it is nil. Each step has a limited number of units.
func (s *definitionScan) write(event *cluster.Event, writes ...store.RecordWrite) {
	if s.err != nil || len(s.units) >= maxDefinitionWrites {
		return
	}
	var u store.Unit
	for _, w := range writes {
		u.Compare(w.Key, w.Modified)
		if w.Record == nil {
			u.Delete(w.Key)
		} else if s.err = u.Put(w.Key, w.Record); s.err != nil {
			return
		}
	}
	if event != nil {
		u.Event(*event)
	}
	s.units = append(s.units, u)
}

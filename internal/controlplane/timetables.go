package controlplane

import (
	"strings"
	"time"

	"github.com/berthd/berth/internal/timetable"
)

// timetables are the schedules that were read, so that each is read once. One that cannot be read has no moments: the
// API server takes none, and a record of a newer Berth is left alone.
type timetables struct {
	read map[string]*timetable.Table // nil for one that cannot be read
}

// mostTables bounds the schedules that are kept.
const mostTables = 10_000

func newTimetables() *timetables { return &timetables{read: map[string]*timetable.Table{}} }

// table returns several schedules in one zone as one, or nil.
func (t *timetables) table(zone string, schedules ...string) *timetable.Table {
	key := zone + "\n" + strings.Join(schedules, "\n")
	table, ok := t.read[key]
	if ok {
		return table
	}
	if len(t.read) >= mostTables {
		clear(t.read)
	}
	table, err := timetable.ParseAll(schedules, zone)
	if err != nil {
		table = nil
	}
	t.read[key] = table
	return table
}

// last returns the newest moment of a schedule up to a time, zero for none.
func (t *timetables) last(schedule, zone string, until time.Time) time.Time {
	if table := t.table(zone, schedule); table != nil {
		return table.Last(until)
	}
	return time.Time{}
}

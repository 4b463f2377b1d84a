package crons

import (
	"strings"
	"time"

	"github.com/berthd/berth/internal/timetable"
)

// Timetables caches parsed schedules. A schedule that cannot be parsed has no moments: the API server rejects it, and
// one in a record of a newer Berth is left alone.
type Timetables struct {
	read map[string]*timetable.Table // nil for one that cannot be parsed
}

// maxTimetables bounds the cached schedules.
const maxTimetables = 10_000

// NewTimetables returns an empty cache.
func NewTimetables() *Timetables { return &Timetables{read: map[string]*timetable.Table{}} }

// table returns several schedules in one zone as one table; nil if one of them cannot be parsed.
func (t *Timetables) table(zone string, schedules ...string) *timetable.Table {
	key := zone + "\n" + strings.Join(schedules, "\n")
	table, ok := t.read[key]
	if ok {
		return table
	}
	if len(t.read) >= maxTimetables {
		clear(t.read)
	}
	table, err := timetable.ParseAll(schedules, zone)
	if err != nil {
		table = nil
	}
	t.read[key] = table
	return table
}

// Last returns the newest moment of a schedule up to a time; zero for none.
func (t *Timetables) Last(schedule, zone string, until time.Time) time.Time {
	if table := t.table(zone, schedule); table != nil {
		return table.Last(until)
	}
	return time.Time{}
}

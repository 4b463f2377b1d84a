// Package timetable reads schedules and finds their moments.
//
// A schedule is five fields, minute, hour, day of the month, month and day of the week, or one of "@yearly",
// "@monthly", "@weekly", "@daily" and "@hourly", in the local time of a time zone. If both the day of the month and
// that of the week are restricted, a day that meets one of them counts. If the clock leaps forward, the skipped moments
// come at the first moment after the leap, as one. If it is set back, a moment that occurs twice counts the first time
// only.
//
// The zones are those of the machine or, if it has none, the built-in ones.
package timetable

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a database of their own

	"github.com/netresearch/go-cron"

	"github.com/berthd/berth/internal/shorten"
)

// maxLength bounds the text of a schedule.
const maxLength = 256

// maxDays is the horizon of Next and Last: nine years, because after 2096 the next leap year is 2104.
const maxDays = 9 * 366

// Table is one or several schedules in one time zone. It does not change, and may be used concurrently. The zero
// Table has no moments.
type Table struct {
	zone      *time.Location
	schedules []schedule
}

// schedule is one expression. Bit n of a set is the number n.
type schedule struct {
	slots                []int // minutes of the day, ordered
	days, months, week   uint64
	anyDay, anyDayOfWeek bool
}

// wildcard is the bit by which the parser marks a field that was written "*".
const wildcard = 1 << 63

// Parse reads one schedule. The zone is a name of the time zone database, such as "Europe/Paris", or empty for UTC.
// Schedules that have no moment at all, such as for the 31st of February, are refused.
func Parse(expr, zone string) (*Table, error) { return ParseAll([]string{expr}, zone) }

// ParseAll reads several schedules in one zone. A moment of more than one of them is one moment.
func ParseAll(exprs []string, zone string) (*Table, error) {
	loc, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	t := &Table{zone: loc}
	for _, expr := range exprs {
		s, err := parse(expr)
		if err != nil {
			return nil, err
		}
		t.schedules = append(t.schedules, s)
	}
	return t, nil
}

// Zone finds a time zone by its name; the empty name is UTC. "Local" is refused: it would be another on each machine.
func Zone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`"Local" is not a time zone: it differs from machine to machine; want a name such as "Europe/Paris"`)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time zone: want a name such as \"Europe/Paris\", or none for UTC",
			clip(name))
	}
	return loc, nil
}

// parse reads one expression.
func parse(expr string) (schedule, error) {
	refuse := func(why any) (schedule, error) {
		return schedule{}, fmt.Errorf(
			"%q is not a schedule: %v; want minute, hour, day of the month, month and day of the week, such "+
				"as \"30 4 * * mon-fri\", or \"@daily\"",
			clip(expr), why)
	}
	switch {
	case len(expr) > maxLength:
		return refuse(fmt.Sprintf("it is longer than %d bytes", maxLength))
	case strings.Contains(expr, "="):
		return refuse("a time zone is a field of its own")
	}
	parser, err := cron.TryNewParser(
		cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	if err != nil {
		return schedule{}, err
	}
	// In lower case, as the parser takes the H of THU for a word of its own.
	read, err := parser.Parse(strings.ToLower(strings.TrimSpace(expr)))
	if err != nil {
		return refuse(err)
	}
	spec, ok := read.(*cron.SpecSchedule)
	if !ok {
		return refuse("it names no times of the day")
	}
	s := schedule{
		days: spec.Dom, months: spec.Month, week: spec.Dow, anyDay: spec.Dom&wildcard != 0,
		anyDayOfWeek: spec.Dow&wildcard != 0,
	}
	for hour := range 24 {
		for minute := range 60 {
			if spec.Hour>>hour&1 != 0 && spec.Minute>>minute&1 != 0 {
				s.slots = append(s.slots, 60*hour+minute)
			}
		}
	}
	if !s.comes() {
		return refuse("no month that it names has such a day")
	}
	return s, nil
}

// comes reports whether any day has moments of the schedule.
func (s *schedule) comes() bool {
	if !s.anyDayOfWeek && !s.anyDay || s.anyDay {
		return len(s.slots) > 0
	}
	for month := time.January; month <= time.December; month++ {
		longest := date(2024, month+1, 0).Day()
		if s.months>>month&1 != 0 && bits.TrailingZeros64(s.days) <= longest {
			return len(s.slots) > 0
		}
	}
	return false
}

// on reports whether the schedule has moments on a day.
func (s *schedule) on(day time.Time) bool {
	if s.months>>day.Month()&1 == 0 {
		return false
	}
	inMonth, inWeek := s.days>>day.Day()&1 != 0, s.week>>day.Weekday()&1 != 0
	if s.anyDay || s.anyDayOfWeek {
		return inMonth && inWeek
	}
	return inMonth || inWeek
}

// Next returns the first moment after a time, in UTC; the zero time if there is none within nine years.
func (t *Table) Next(after time.Time) (first time.Time) {
	for i := range t.schedules {
		if m := t.next(&t.schedules[i], after); first.IsZero() || !m.IsZero() && m.Before(first) {
			first = m
		}
	}
	return first
}

// Last returns the newest moment up to and including a time, in UTC; the zero time if there is none in the nine years
// before.
func (t *Table) Last(until time.Time) (newest time.Time) {
	for i := range t.schedules {
		if m := t.last(&t.schedules[i], until); m.After(newest) {
			newest = m
		}
	}
	return newest
}

// Between returns the moments after the first time and up to and including the second, in UTC, oldest first. If there
// are more than most, it returns the newest.
func (t *Table) Between(after, until time.Time, most int) []time.Time {
	var moments []time.Time
	for m := t.Last(until); len(moments) < most && m.After(after); m = t.Last(m.Add(-1)) {
		moments = append(moments, m)
	}
	slices.Reverse(moments)
	return moments
}

// Later slots never come before earlier ones, so a binary search finds the first that is late enough.

func (t *Table) next(s *schedule, after time.Time) time.Time {
	day := dayOf(after.In(t.zone))
	for range maxDays {
		if s.on(day) {
			i, _ := slices.BinarySearchFunc(s.slots, after, func(slot int, after time.Time) int {
				if t.at(day, slot).After(after) {
					return 1
				}
				return -1
			})
			if i < len(s.slots) {
				return t.at(day, s.slots[i])
			}
		}
		day = day.AddDate(0, 0, 1)
	}
	return time.Time{}
}

func (t *Table) last(s *schedule, until time.Time) time.Time {
	// a clock that was set back over midnight shows the day before again
	day := dayOf(until.In(t.zone)).AddDate(0, 0, 1)
	for range maxDays {
		if s.on(day) {
			i, _ := slices.BinarySearchFunc(s.slots, until, func(slot int, until time.Time) int {
				if t.at(day, slot).After(until) {
					return 1
				}
				return -1
			})
			if i > 0 {
				return t.at(day, s.slots[i-1])
			}
		}
		day = day.AddDate(0, 0, -1)
	}
	return time.Time{}
}

// at returns when the clock on the wall first shows a minute of a day, or leaps over it.
func (t *Table) at(day time.Time, slot int) time.Time {
	wall := day.Unix() + int64(slot)*60
	span := time.Unix(wall, 0).Add(-26 * time.Hour).In(t.zone) // before it by any zone
	for {
		start, end := span.ZoneBounds()
		_, offset := span.Zone()
		at := time.Unix(wall-int64(offset), 0)
		switch {
		case !start.IsZero() && at.Before(start):
			return start.UTC()
		case end.IsZero() || at.Before(end):
			return at.UTC()
		}
		span = end
	}
}

// dayOf returns the day that a clock shows, as its beginning in UTC.
func dayOf(clock time.Time) time.Time { return date(clock.Date()) }

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// clip shortens text for a message.
func clip(s string) string { return shorten.Marked(s, 64) }

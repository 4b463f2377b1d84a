package timetable_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/timetable"
)

// parse reads a schedule that has to be right.
func parse(t testing.TB, expr, zone string) *timetable.Table {
	t.Helper()
	table, err := timetable.Parse(expr, zone)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// utc reads a time that has to be right.
func utc(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", text+":00"[:3*(2-strings.Count(text, ":"))])
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// TestMoments lists the moments between two times, by the clock of UTC.
func TestMoments(t *testing.T) {
	for _, tt := range []struct {
		name, expr, zone, after, until string
		want                           []string
	}{
		{
			"minutes", "*/20 * * * *", "", "2026-11-20 10:00", "2026-11-20 11:00",
			[]string{"11-20 10:20", "11-20 10:40", "11-20 11:00"},
		},
		{"seconds", "* * * * *", "", "2026-11-20 10:00:30", "2026-11-20 10:01:59", []string{"11-20 10:01"}},
		{
			"daily", "@daily", "Europe/Paris", "2026-11-20 00:00", "2026-11-22 00:00",
			[]string{"11-20 23:00", "11-21 23:00"},
		},
		{
			"hourly", "@hourly", "Asia/Kolkata", "2026-11-20 00:00", "2026-11-20 02:00",
			[]string{"11-20 00:30", "11-20 01:30"},
		},
		{"monthly", "@monthly", "", "2026-11-20 00:00", "2027-01-31 00:00", []string{"12-01 00:00", "01-01 00:00"}},
		{
			"weekly, which is on Sundays", "@weekly", "", "2026-11-20 00:00", "2026-11-30 00:00",
			[]string{"11-22 00:00", "11-29 00:00"},
		},
		{
			"names", "0 9 * nov THU,Fri", "", "2026-11-18 00:00", "2026-11-21 00:00",
			[]string{"11-19 09:00", "11-20 09:00"},
		},
		{"Sunday is 0 and 7", "0 9 * * 7", "", "2026-11-20 00:00", "2026-11-25 00:00", []string{"11-22 09:00"}},
		{
			"either of two days", "0 9 21 * mon", "", "2026-11-20 00:00", "2026-11-24 00:00",
			[]string{"11-21 09:00", "11-23 09:00"},
		},
		{
			"in months that are long enough", "0 0 31 * *", "", "2026-09-01 00:00", "2027-01-01 00:00",
			[]string{"10-31 00:00", "12-31 00:00"},
		},
		{"in leap years", "0 0 29 2 *", "", "2096-03-01 00:00", "2104-12-01 00:00", []string{"02-29 00:00"}},

		// In Paris the clock leaps from 02:00 to 03:00 at 01:00 UTC on 2026-03-29 and is set back from 03:00 to 02:00
		// at 01:00 UTC on 2026-10-25.
		{
			"left out", "30 2 * * *", "Europe/Paris", "2026-03-28 00:00", "2026-03-31 00:00",
			[]string{"03-28 01:30", "03-29 01:00", "03-30 00:30"},
		},
		{"left out, as one", "*/20 2,3 * * *", "Europe/Paris", "2026-03-29 00:00", "2026-03-29 02:00", []string{
			"03-29 01:00", "03-29 01:20", "03-29 01:40",
		}},
		{
			"twice", "30 2 * * *", "Europe/Paris", "2026-10-24 12:00", "2026-10-27 00:00",
			[]string{"10-25 00:30", "10-26 01:30"},
		},
		{
			"all of the day, and none twice", "0,30 * * * *", "Europe/Paris", "2026-10-24 23:30", "2026-10-25 02:00",
			[]string{
				"10-25 00:00", "10-25 00:30", "10-25 02:00",
			},
		},
		// In Havana the clock leaps over midnight: from 2026-03-08 00:00 to 01:00.
		{"midnight left out", "0,30 0 * * *", "America/Havana", "2026-03-07 00:00", "2026-03-09 12:00", []string{
			"03-07 05:00", "03-07 05:30", "03-08 05:00", "03-09 04:00", "03-09 04:30",
		}},
		// On Lord Howe the clock leaps by half an hour.
		{"half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02 00:00", "2026-10-05 00:00", []string{
			"10-02 15:45", "10-03 15:30", "10-04 15:15",
		}},
		{"after half an hour", "0 4 * * *", "Australia/Lord_Howe", "2026-10-02 00:00", "2026-10-05 00:00", []string{
			"10-02 17:30", "10-03 17:00", "10-04 17:00",
		}},
		// In Newfoundland the clock was set back at one minute past midnight: the day before was shown again.
		{
			"over midnight", "0 0 * * *", "America/St_Johns", "2010-11-06 03:00", "2010-11-07 03:00",
			[]string{"11-07 02:30"},
		},
		// Samoa left out 2011-12-30 altogether.
		{"a day that never was", "0 12 * * *", "Pacific/Apia", "2011-12-29 00:00", "2012-01-01 00:00", []string{
			"12-29 22:00", "12-30 10:00", "12-30 22:00", "12-31 22:00",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := parse(t, tt.expr, tt.zone)
			after, until := utc(t, tt.after), utc(t, tt.until)
			show := func(list []time.Time) (texts []string) {
				for _, at := range list {
					texts = append(texts, at.Format("01-02 15:04"))
				}
				return texts
			}
			if diff := cmp.Diff(tt.want, show(table.Between(after, until, 100))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var forwards []time.Time
			for at := table.Next(after); !at.After(until); at = table.Next(at) {
				forwards = append(forwards, at)
			}
			if diff := cmp.Diff(tt.want, show(forwards)); diff != "" {
				t.Errorf("one after the other (-want +got):\n%s", diff)
			}
			last := table.Between(after, until, 1)
			if diff := cmp.Diff(tt.want[len(tt.want)-1:], show(last)); diff != "" {
				t.Errorf("the newest (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct{ expr, zone, want string }{
		{"", "", "is not a schedule"},
		{"* * * *", "", `"* * * *" is not a schedule: expected exactly 5 fields`},
		{"* * * * * *", "", "expected exactly 5 fields"},
		{"60 * * * *", "", "above maximum"},
		{"* 24 * * *", "", "above maximum"},
		{"* * 0 * *", "", "below minimum"},
		{"@every 5m", "", "it names no times of the day"},
		{"@reboot", "", "unrecognized descriptor"},
		{"0 0 31 2 *", "", "no month that it names has such a day"},
		{"0 0 31 4,6 *", "", "no month that it names has such a day"},
		{"TZ=Europe/Paris 0 0 * * *", "", "a time zone is a field of its own"},
		{strings.Repeat("1,", 500) + "1 * * * *", "", "longer than 256 bytes"},
		{"* * * * *", "Mars/Olympus", `"Mars/Olympus" is not a time zone`},
		{"* * * * *", "Local", "differs from machine to machine"},
		{"* * * * *", "../../etc/passwd", "is not a time zone"},
	} {
		_, err := timetable.Parse(tt.expr, tt.zone)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q in %q: %v, want %q", tt.expr, tt.zone, err, tt.want)
		}
	}
	if _, err := timetable.ParseAll([]string{"@daily", "x"}, ""); err == nil {
		t.Error("of several schedules one that cannot be read is not refused")
	}
}

func TestSeveral(t *testing.T) {
	table, err := timetable.ParseAll([]string{"0 12 * * *", "0 */6 * * *"}, "")
	if err != nil {
		t.Fatal(err)
	}
	got := table.Between(utc(t, "2026-11-20 00:00"), utc(t, "2026-11-21 00:00"), 10)
	want := []time.Time{
		utc(t, "2026-11-20 06:00"), utc(t, "2026-11-20 12:00"), utc(t, "2026-11-20 18:00"),
		utc(t, "2026-11-21 00:00"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none := new(timetable.Table); !none.Next(want[0]).IsZero() || !none.Last(want[0]).IsZero() {
		t.Error("a table without schedules has moments")
	}
}

// TestAgainstTheClock compares a table with a clock that is read every minute: a moment is the first time that the
// clock shows a minute of the schedule.
func TestAgainstTheClock(t *testing.T) {
	zones := []string{
		"", "Europe/Paris", "America/New_York", "America/Havana", "Australia/Lord_Howe", "Asia/Kathmandu",
		"Africa/Casablanca",
	}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		hour := rapid.SampledFrom([]string{"*", "0", "1", "2", "3", "1-3", "23"}).Draw(t, "hour")
		minute := rapid.SampledFrom([]string{"*", "0", "30", "*/15"}).Draw(t, "minute")
		table, err := timetable.Parse(minute+" "+hour+" * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		loc, err := timetable.Zone(zone)
		if err != nil {
			t.Fatal(err)
		}
		every, err := timetable.Parse("* * * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Date(2026, time.January, rapid.IntRange(1, 366).Draw(t, "day"),
			rapid.IntRange(0, 23).Draw(t, "at"), 0, 0, 0, time.UTC)
		end := begin.Add(12 * time.Hour)
		moments := map[time.Time]bool{}
		for _, m := range table.Between(begin, end, 10_000) {
			moments[m] = true
		}
		shown := map[string]bool{}
		for at := begin.Add(-3 * time.Hour); !at.After(end); at = at.Add(time.Minute) {
			clock := at.In(loc)
			face := clock.Format("02 15:04")
			first := !shown[face]
			shown[face] = true
			if !at.After(begin) {
				continue
			}
			_, before := at.Add(-time.Minute).In(loc).Zone()
			_, now := clock.Zone()
			want := first && shows(minute, clock.Minute()) && shows(hour, clock.Hour())
			leapt := now > before // the omitted moment comes now: see TestMoments
			if got := moments[at]; got != want && !leapt {
				t.Fatalf("at %s, %s by the clock: moment %v, want %v", at, clock, got, want)
			}
			if next := table.Next(at.Add(-time.Second)); next.Equal(at) != moments[at] {
				t.Fatalf("the next after %s is %s", at.Add(-time.Second), next)
			}
			if !moments[at] && table.Last(at).Equal(at) || every.Last(at).After(at) {
				t.Fatalf("the last up to %s is %s, and %s", at, table.Last(at), every.Last(at))
			}
		}
	})
}

// shows reports whether a field of the test's few kinds names n.
func shows(field string, n int) bool {
	switch field {
	case "*":
		return true
	case "*/15":
		return n%15 == 0
	case "1-3":
		return n >= 1 && n <= 3
	case "30":
		return n == 30
	case "23":
		return n == 23
	}
	return n == int(field[0]-'0')
}

// FuzzParse: no text makes the parser panic, and what is read has moments in order.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"* * * * *", "@daily", "0 0 29 2 *", "*/5 1-3,7 L * MON#2", "@every 1h", "0 0 31 2 *",
		"H H * * *", "59 23 31 12 7", "0 0 ? * ?",
	} {
		f.Add(s, "Europe/Paris")
	}
	f.Add("0 0 * * *", "UTC")
	f.Fuzz(func(t *testing.T, expr, zone string) {
		table, err := timetable.Parse(expr, zone)
		if err != nil {
			return
		}
		at := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		next, last := table.Next(at), table.Last(at)
		if !next.After(at) || last.After(at) || last.IsZero() {
			t.Errorf("%q in %q: after %s comes %s, and before was %s", expr, zone, at, next, last)
		}
		if !table.Last(next).Equal(next) || !table.Next(last).Equal(next) {
			t.Errorf("%q in %q: %s and %s do not follow each other", expr, zone, last, next)
		}
	})
}

func BenchmarkBetween(b *testing.B) {
	table := parse(b, "* * * * *", "Europe/Paris")
	until := utc(b, "2026-11-20 00:00")
	b.ReportAllocs()
	for b.Loop() {
		table.Between(time.Time{}, until, 100)
	}
}

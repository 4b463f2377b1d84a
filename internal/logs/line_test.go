package logs

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	at := time.Date(2026, 11, 20, 6, 0, 0, 5, time.UTC)
	for name, tc := range map[string]struct {
		in   string
		want Line
		bad  string
	}{
		"whole": {
			in:   "2026-11-20T06:00:00.000000005Z stdout F hello there",
			want: Line{Time: at, Stream: Stdout, Text: "hello there"},
		},
		"partial": {
			in:   "2026-11-20T06:00:00.000000005Z stderr P hel",
			want: Line{Time: at, Stream: Stderr, Text: "hel", Partial: true},
		},
		"empty": {in: "2026-11-20T06:00:00.000000005Z stdout F ", want: Line{Time: at, Stream: Stdout}},
		"zone": {
			in:   "2026-11-20T07:00:00.000000005+01:00 stdout F x",
			want: Line{Time: at, Stream: Stdout, Text: "x"},
		},
		"lost": {
			in:   "2026-11-20T06:00:00.000000005Z stderr F:lost=12 ",
			want: Line{Time: at, Stream: Stderr, Lost: 12},
		},
		"unknown tag": {
			in:   "2026-11-20T06:00:00.000000005Z stdout F:new x",
			want: Line{Time: at, Stream: Stdout, Text: "x"},
		},
		"no time":      {in: "hello", bad: "no time"},
		"wrong time":   {in: "yesterday stdout F x", bad: "RFC 3339"},
		"wrong stream": {in: "2026-11-20T06:00:00Z stdin F x", bad: "stream"},
		"wrong tag":    {in: "2026-11-20T06:00:00Z stdout X x", bad: "tag"},
		"wrong count":  {in: "2026-11-20T06:00:00Z stdout F:lost=-1 ", bad: "lost"},
		"no text":      {in: "2026-11-20T06:00:00Z stdout F", bad: "no text"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(tc.in))
			if tc.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tc.bad) {
					t.Fatalf("got error %v, want one about %q", err, tc.bad)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Fatalf("error %v, (-want +got):\n%s", err, diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("2026-11-20T06:00:00.000000005Z stdout F hello"))
	f.Add([]byte("2026-11-20T06:00:00.000000005Z stderr P "))
	f.Add([]byte("2026-11-20T06:00:00Z stderr F:lost=3 "))
	f.Add([]byte("2026-11-20T06:00:00+23:59 stdout F:a:b \xff\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Parse(b)
		if err != nil {
			return
		}
		if y := l.Time.Year(); y < 0 || y > 9999 {
			return // a time zone moved it out of the range of RFC 3339
		}
		out := Append(nil, l)
		again, err := Parse(out[:len(out)-1])
		if diff := cmp.Diff(l, again); err != nil || diff != "" {
			t.Fatalf("%q is written as %q: %v %s", b, out, err, diff)
		}
	})
}

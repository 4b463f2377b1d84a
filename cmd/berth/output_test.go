package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTableRender(t *testing.T) {
	titles := []string{"NAME", "STATE", "TASKS>", "EMPTY", "+ID", "MESSAGE"}
	rows := [][]string{
		{"web", "healthy", "3/3", "", "a1", ""},
		{"éclair", "failing", "10/12", "-", "b2", "a long message about it"},
	}
	tests := []struct {
		name string
		view view
		want string
	}{
		{"plain", view{}, `
NAME    STATE    TASKS  MESSAGE
web     healthy    3/3
éclair  failing  10/12  a long message about it
`},
		{"wide", view{wide: true}, `
NAME    STATE    TASKS  ID  MESSAGE
web     healthy    3/3  a1
éclair  failing  10/12  b2  a long message about it
`},
		{"narrow terminal", view{width: 40}, `
NAME    STATE    TASKS  MESSAGE
web     healthy    3/3
éclair  failing  10/12  a long message …
`},
		{"colours", view{color: true, width: 80}, "\nNAME    STATE    TASKS  MESSAGE\n" +
			"web     \x1b[32mhealthy\x1b[0m    3/3\néclair  \x1b[31mfailing\x1b[0m  10/12  a long message about it\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := table{titles: titles, rows: rows, state: 1}.render(test.view)
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), got); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrapped(t *testing.T) {
	text := "attempt 9 failed: it was restarted 2 times within 10m0s"
	tests := []struct {
		width int
		want  []string
	}{
		{0, []string{text}},
		{80, []string{text}},
		{30, []string{"attempt 9 failed: it was", "restarted 2 times within 10m0s"}},
		{3, []string{"attempt 9 failed: it", "was restarted 2", "times within 10m0s"}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, wrapped(text, test.width)); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", test.width, diff)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m",
		2 * time.Hour: "2h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v): got %s, want %s", d, got, want)
		}
	}
}

// TestProgressInPlace draws over what it drew before, and leaves nothing.
func TestProgressInPlace(t *testing.T) {
	var out bytes.Buffer
	a := newApp(nil, nil, &out)
	web, work := &target{name: name{wordService, "default", "web"}}, &target{name: name{wordJob, "ci", "work"}}
	p := a.newProgress([]*target{web, work})
	p.width = 40

	web.line = "starting     1 of 3 tasks healthy, and much more to say"
	p.show()
	web.line, web.done = "healthy", true
	p.show()
	work.failure, work.done, work.line = "failed", true, "failed"
	p.note("no server; trying again")
	p.show()
	p.end()

	want := "… service/web  starting     1 of 3 tas…\n… job/ci/work  waiting for the server\n" +
		"\x1b[2A\x1b[J" + "… job/ci/work  waiting for the server\n✓ service/web  healthy\n" +
		"\x1b[2A\x1b[J" + "berth: no server; trying again\n" +
		"✓ service/web  healthy\n✗ job/ci/work  failed\n" +
		"\x1b[2A\x1b[J"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("terminal (-want +got):\n%s", diff)
	}
}

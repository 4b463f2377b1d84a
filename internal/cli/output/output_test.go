package output

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
	"github.com/berthd/berth/internal/wording"
)

func TestTableRender(t *testing.T) {
	titles := []string{"NAME", "STATE", "TASKS>", "EMPTY", "+ID", "MESSAGE"}
	rows := [][]string{
		{"web", "healthy", "3/3", "", "a1", ""},
		{"éclair", "failing", "10/12", "-", "b2", "a long message about it"},
	}
	tests := []struct {
		name string
		view Layout
		want string
	}{
		{"plain", Layout{}, `
NAME    STATE    TASKS  MESSAGE
web     healthy    3/3
éclair  failing  10/12  a long message about it
`},
		{"wide", Layout{Wide: true}, `
NAME    STATE    TASKS  ID  MESSAGE
web     healthy    3/3  a1
éclair  failing  10/12  b2  a long message about it
`},
		{"narrow terminal", Layout{Width: 40}, `
NAME    STATE    TASKS
web     healthy    3/3
éclair  failing  10/12
    a long message about it
`},
		{"colours", Layout{Color: true, Width: 80}, "\nNAME    STATE    TASKS  MESSAGE\n" +
			"web     \x1b[32mhealthy\x1b[0m    3/3\néclair  \x1b[31mfailing\x1b[0m  10/12  a long message about it\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := Table{Titles: titles, Rows: rows, StateColumn: 1}.Render(test.view)
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), got); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBackingOffHasAColor: a task that waits for its next start is coloured like other tasks on their way.
func TestBackingOffHasAColor(t *testing.T) {
	word := taskview.StateBackingOff
	if got, want := colorWords(word), Colored(word, Yellow); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestServiceStatesHaveColors: no state of a service is shown without its colour.
func TestServiceStatesHaveColors(t *testing.T) {
	for _, state := range cluster.ServiceHealthy.Values() {
		if word := string(state); colorWords(word) == word {
			t.Errorf("%s has no colour", word)
		}
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
		if diff := cmp.Diff(test.want, Wrap(text, test.width)); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", test.width, diff)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m",
		2 * time.Hour: "2h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := wording.Span(d); got != want {
			t.Errorf("span(%v): got %s, want %s", d, got, want)
		}
	}
}

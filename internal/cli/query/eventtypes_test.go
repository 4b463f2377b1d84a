package query

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEventTypesAreDocumented checks that --type takes exactly the types of docs/reference/events.md.
func TestEventTypesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	typePattern := regexp.MustCompile("`([a-z-]+|…)\\.+([a-z-]+)`")
	var documented []string
	noun := ""
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, m := range typePattern.FindAllStringSubmatch(cells[1], -1) {
			if m[1] != "…" { // the noun of the type before
				noun = m[1]
			}
			documented = append(documented, noun+"."+m[2])
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(documented, slices.Sorted(slices.Values(eventTypes()))); diff != "" {
		t.Errorf("types of events (-documented +known):\n%s", diff)
	}
}

// TestReasonsAreDocumented checks that --reason takes exactly the reasons of docs/reference/reasons.md, which is
// generated from the constants of package cluster.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	if diff := cmp.Diff(documented, reasons()); diff != "" {
		t.Errorf("reasons (-documented +known):\n%s", diff)
	}
}

func TestUnknownReason(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"oom", ""},
		{"preempte", "--reason preempte: did you mean preempted?"},
		{"frobnicated", "--reason frobnicated: no event has this reason; want one such as exit, oom, unhealthy or node-down"},
	} {
		if got := checkReasons([]string{"exit", test.text}); got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.text, got, test.want)
		}
	}
}

func TestUnknownEventType(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"task.failed", ""},
		{"task", ""},
		{"task.faild", "--type task.faild: did you mean task.failed?"},
		{"tsk", "--type tsk: did you mean task?"},
		{"recovery.frobnicated", "--type recovery.frobnicated: want recovery.needed or recovery.decided"},
		{"tas.failed", "--type tas.failed: did you mean task.failed?"},
	} {
		got := ""
		if !isEventType(test.text) {
			got = unknownTypeText(test.text)
		}
		if got != test.want {
			t.Errorf("%s:\n got %q\nwant %q", test.text, got, test.want)
		}
	}
}

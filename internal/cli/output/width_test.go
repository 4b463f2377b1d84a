package output

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// tasksTable is a table like that of `berth ps`.
func tasksTable() Table {
	return Table{
		StateColumn: 1,
		Titles:      []string{"TASK", "STATE", "NODE", "ADDRESS", "DEFINITION", "TRY>", "AGE>", "MESSAGE"},
		Rows: [][]string{
			{
				"web.2.1", "failing", "n1", "admin=10.0.0.1:30003 http=10.0.0.1:30002", "web@2", "2", "90s",
				"check up: GET /healthz: 503 Service Unavailable, the last answer was: database is locked",
			},
			{"web.2.0", "healthy", "n1", "admin=10.0.0.1:30001 http=10.0.0.1:30000", "web@2", "", "60m", ""},
		},
	}
}

// TestTableWidths checks that lines fit into usual widths of terminals, and that the message is there in full.
func TestTableWidths(t *testing.T) {
	for width, want := range map[int]string{ // order-free: each width is a case of its own
		60: `
TASK     STATE    NODE  ADDRESS         DEFINITION  TRY  AGE
web.2.1  failing  n1    admin=10.0.0.…  web@2         2  90s
    check up: GET /healthz: 503 Service Unavailable, the
    last answer was: database is locked
web.2.0  healthy  n1    admin=10.0.0.…  web@2            60m
`,
		80: `
TASK     STATE    NODE  ADDRESS                             DEFINITION  TRY  AGE
web.2.1  failing  n1    admin=10.0.0.1:30003 http=10.0.0.…  web@2         2  90s
    check up: GET /healthz: 503 Service Unavailable, the last answer was:
    database is locked
web.2.0  healthy  n1    admin=10.0.0.1:30001 http=10.0.0.…  web@2            60m
`,
		120: `
TASK     STATE    NODE  ADDRESS                                   DEFINITION  TRY  AGE  MESSAGE
web.2.1  failing  n1    admin=10.0.0.1:30003 http=10.0.0.1:30002  web@2         2  90s  check up: GET /healthz: 503
                                                                                        Service Unavailable, the last
                                                                                        answer was: database is locked
web.2.0  healthy  n1    admin=10.0.0.1:30001 http=10.0.0.1:30000  web@2            60m
`,
		200: tasksTable().Render(Layout{}),
	} {
		got := tasksTable().Render(Layout{Width: width})
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), got); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
	}
}

// TestTableWithoutMessageWidth checks that columns of text are cut where no column is a message.
func TestTableWithoutMessageWidth(t *testing.T) {
	table := Table{Titles: []string{"IMAGE", "NODE", "SIZE>", "DIGEST"}, Rows: [][]string{
		{"registry.example/web:2", "n1", "40MiB", "sha256:ffff456789ab"},
	}}
	want := "IMAGE                   NODE   SIZE  DIGEST\nregistry.example/web:2  n1    40MiB  sha256:…\n"
	if diff := cmp.Diff(want, table.Render(Layout{Width: 45})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

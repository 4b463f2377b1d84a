package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
)

func TestReadReply(t *testing.T) {
	tests := []struct {
		name, in, want string
		wantErr        bool
	}{
		{name: "simple", in: "+OK\r\n", want: "OK"},
		{name: "bulk", in: "$5\r\na\r\nbc\r\n", want: "a\r\nbc"},
		{name: "empty bulk", in: "$0\r\n\r\n", want: ""},
		{name: "error", in: "-ERR no\r\n", wantErr: true},
		{name: "nothing there", in: "$-1\r\n", wantErr: true},
		{name: "huge", in: "$99999999999\r\n", wantErr: true},
		{name: "cut short", in: "$5\r\nab", wantErr: true},
		{name: "another kind", in: ":1\r\n", wantErr: true},
		{name: "empty", in: "\r\n", wantErr: true},
		{name: "end", in: "", wantErr: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readReply(bufio.NewReader(strings.NewReader(tt.in)))
			if got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("readReply: %q, %v, want %q, an error: %v", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "$3\r\nabc\r\n", "$-1\r\n", "-ERR\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := readReply(bufio.NewReader(strings.NewReader(in)))
		if err != nil && got != "" {
			t.Errorf("readReply(%q) = %q with the error %v", in, got, err)
		}
	})
}

func TestItems(t *testing.T) {
	want := []task{{ID: "a"}, {ID: "b"}}
	for _, in := range []string{`[{"id":"a"},{"id":"b"}]`, `{"items":[{"id":"a"},{"id":"b"}],"index":7}`} {
		got, err := items[task]([]byte(in))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("items(%s): %v (-want +got):\n%s", in, err, diff)
		}
	}
	if _, err := items[task]([]byte("ID  STATE")); err == nil {
		t.Error("items took a table")
	}
}

// results returns the output of the job's tasks, by (index, attempt), with a change for one.
func results(change func(index int, line string) string) string {
	var b strings.Builder
	for index := range jobTasks {
		attempt := 1
		if index == failsFirst {
			attempt = 2
		}
		line := fmt.Sprintf("2026-11-20T10:00:00Z squares.%d result index=%d attempt=%d sum=%d\n", index, index,
			attempt, squares(index))
		b.WriteString("some other line\n" + change(index, line))
	}
	return b.String()
}

func TestJobResults(t *testing.T) {
	tests := []struct {
		name   string
		change func(int, string) string
		want   string // part of the error; empty for none
	}{
		{name: "right", change: func(_ int, line string) string { return line }},
		{
			name: "one is missing", want: "task 5 has 0 results",
			change: func(index int, line string) string {
				if index == 5 {
					return ""
				}
				return line
			},
		},
		{
			name: "one twice", want: "task 2 has 2 results",
			change: func(index int, line string) string {
				if index == 2 {
					return line + line
				}
				return line
			},
		},
		{
			name: "the first attempt did not fail", want: "in attempt 1, want",
			change: func(_ int, line string) string { return strings.ReplaceAll(line, "attempt=2", "attempt=1") },
		},
		{
			name: "a wrong sum", want: "task 0 found the sum 1 ",
			change: func(index int, line string) string {
				if index == 0 {
					return "result index=0 attempt=1 sum=1\n"
				}
				return line
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := jobResults(results(tt.change))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("jobResults: %v, want %q", err, tt.want)
			}
		})
	}
}

func TestJobAttempts(t *testing.T) {
	var lines []string
	for index := range jobTasks {
		lines = append(lines, fmt.Sprintf("default.squares.1.square.%d 1\n", index))
	}
	second := fmt.Sprintf("default.squares.1.square.%d 2\n", failsFirst)
	tests := []struct {
		name  string
		lines []string
		holds bool
	}{
		{"each once, one again", append([]string{second}, lines...), true},
		{"none failed", lines, false},
		{"the second attempt ran twice", append([]string{second, second}, lines[1:]...), false},
		{"another had a second attempt", append([]string{"default.squares.1.square.0 2\n"}, lines...), false},
		{"nothing", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := jobAttempts(strings.Join(tt.lines, "")); (err == nil) != tt.holds {
				t.Errorf("jobAttempts: %v, want success: %v", err, tt.holds)
			}
		})
	}
}

func TestHammerVerdict(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused := errors.New("connection refused")
	tests := []struct {
		name  string
		notes func(h *hammer)
		holds bool
	}{
		{"both versions, none failed", func(h *hammer) {
			h.note(t.Context(), "2", nil)
			h.note(t.Context(), "1", nil)
		}, true},
		{"failed at the very end", func(h *hammer) {
			h.note(t.Context(), "1", nil)
			h.note(t.Context(), "2", nil)
			h.note(ended, "", refused)
		}, true},
		{"nothing sent", func(*hammer) {}, false},
		{"only the old version", func(h *hammer) { h.note(t.Context(), "1", nil) }, false},
		{"one failed", func(h *hammer) {
			h.note(t.Context(), "1", nil)
			h.note(t.Context(), "", refused)
			h.note(t.Context(), "2", nil)
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h hammer
			tt.notes(&h)
			if err := h.verdict(); (err == nil) != tt.holds {
				t.Errorf("verdict: %v, want success: %v", err, tt.holds)
			}
		})
	}
}

func TestProcessLives(t *testing.T) {
	if !processLives(os.Getpid()) {
		t.Error("this process does not live")
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if processLives(cmd.Process.Pid) {
		t.Error("a process that ended lives")
	}
}

func TestRepository(t *testing.T) {
	root, err := repository(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Error(err)
	}
}

// TestManifests checks that Berth reads the examples, in both forms.
func TestManifests(t *testing.T) {
	root, err := repository(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []bool{false, true} {
		d := &demo{examples: examples{root: root, data: t.TempDir(), images: "/out", plain: plain}}
		if err := d.writeManifests(); err != nil {
			t.Fatal(err)
		}
		for _, name := range manifests() {
			text, err := os.ReadFile(d.example(name))
			if err != nil {
				t.Fatal(err)
			}
			objects, err := manifest.Parse(name, text)
			if err != nil || len(objects) < 2 {
				t.Fatalf("%s: %d objects, %v, want a definition and what uses it", name, len(objects), err)
			}
			definition, ok := objects[0].Value.(*cluster.TaskDefinition)
			if !ok {
				t.Fatalf("%s: the first object is a %T", name, objects[0].Value)
			}
			c := definition.Containers[0]
			if filepath.IsAbs(c.Command[0]) != plain || (c.Image == "") != plain {
				t.Errorf("%s, plain %v: the command is %q, the image %q", name, plain, c.Command, c.Image)
			}
		}
	}
}

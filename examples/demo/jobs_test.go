package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
)

// fails reports whether an error is the wanted one: part of its text, or empty for none.
func fails(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}

func TestPipelineOrder(t *testing.T) {
	attempts := []string{"build.0 attempt 1 code 0", "sign.0 attempt 1 code 1", "publish.0 attempt 1 code 0"}
	tests := []struct {
		name, lines string // of the programs, separated by blanks
		want        string
	}{
		{"in order", "build.0 sign.0 publish.0", ""},
		{"nothing", "", "ran: []"},
		{"one is missing", "build.0 publish.0", "ran:"},
		{"one ran twice", "build.0 sign.0 sign.0 publish.0", "ran:"},
		{"build was not the first", "sign.0 build.0 publish.0", "want build"},
		{"publish did not wait", "build.0 publish.0 sign.0", "publish began before"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var lines strings.Builder
			for name := range strings.FieldsSeq(tt.lines) {
				lines.WriteString("default.pipeline.1." + name + " 1\n")
			}
			if err := pipelineOrder(lines.String(), attempts); !fails(err, tt.want) {
				t.Errorf("pipelineOrder: %v, want %q", err, tt.want)
			}
		})
	}
}

// queueOf is the queue that the demo expects, as `berth queue -o json` prints it, with a change.
func queueOf(t *testing.T, replace ...string) []queueRow {
	t.Helper()
	text := strings.NewReplacer(replace...).Replace(`[
		{"position": 1, "owner": {"name": "simulation"}, "tasks": 3, "reason": "gang", "message": "its gang waits",
			"promise": {"at": "2026-11-28T13:29:38Z", "after": "default.import.1.load.0"}},
		{"position": 4, "owner": {"name": "archive"}, "tasks": 1, "reason": "backfill", "message": "room is kept"}
	]`)
	var rows []queueRow
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestPromiseOf(t *testing.T) {
	tests := []struct {
		name    string
		replace []string
		want    string
	}{
		{name: "right"},
		{"another job is first", []string{"simulation", "icons"}, "1: 3 tasks of job/icons: its gang waits"},
		{"a task of the gang runs", []string{`"tasks": 3`, `"tasks": 2`}, "want the gang of 3 tasks"},
		{"another reason", []string{`"gang"`, `"resources"`}, "want the gang of 3 tasks"},
		{"no promise", []string{`"promise"`, `"other"`}, "no promise after job/import: \"its gang waits\""},
		{"after another job", []string{"import", "pipeline"}, "no promise after job/import"},
		{"no time", []string{`"at"`, `"time"`}, "no promise after job/import"},
		{"nothing is kept", []string{`"backfill"`, `"resources"`}, "room is kept for the gang"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, err := promiseOf(queueOf(t, tt.replace...))
			if !fails(err, tt.want) {
				t.Errorf("promiseOf: %v, want %q", err, tt.want)
			}
			if want := time.Date(2026, 11, 28, 13, 29, 38, 0, time.UTC); err == nil && !at.Equal(want) {
				t.Errorf("promiseOf: %v, want %v", at, want)
			}
		})
	}
	if _, err := promiseOf(nil); err == nil {
		t.Error("promiseOf accepts an empty queue")
	}
}

func TestStartedTogether(t *testing.T) {
	placed := time.Date(2026, 11, 28, 13, 24, 50, 0, time.UTC)
	tests := []struct {
		name   string
		change func(gang []task) []task
		want   string
	}{
		{"right", func(gang []task) []task { return gang }, ""},
		{"one is missing", func(gang []task) []task { return gang[1:] }, "2 attempts of the gang ran, want 3"},
		{"one failed", func(gang []task) []task { gang[2].State = "failed"; return gang }, "of the gang is failed"},
		{"one has no place", func(gang []task) []task { gang[0].Placed = nil; return gang }, "succeeded, placed <nil>"},
		{"one was placed later", func(gang []task) []task {
			later := placed.Add(time.Millisecond)
			gang[1].Placed = &later
			return gang
		}, "want the same moment"},
		{"one started after the promise", func(gang []task) []task {
			late := placed.Add(time.Hour)
			gang[1].Started = &late
			return gang
		}, "the queue promised"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gang := make([]task, gangTasks)
			for i := range gang {
				started := placed.Add(time.Second)
				gang[i] = task{Index: i, State: "succeeded", Placed: &placed, Started: &started}
			}
			if err := startedTogether(tt.change(gang), placed.Add(time.Minute)); !fails(err, tt.want) {
				t.Errorf("startedTogether: %v, want %q", err, tt.want)
			}
		})
	}
}

// TestJobsFillTheNode checks the sizes of the jobs on nodes of several sizes. Beside the import, one worker of the gang
// finds room, or one of the jobs behind it. Without the import the gang finds room, but not beside one of these jobs.
func TestJobsFillTheNode(t *testing.T) {
	root, err := repository(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, free := range []int{300, 1000, 1600, 1999, 2000, 3777, 64000} {
		cpu := map[string]int{}
		for _, name := range []string{"import.yaml", "gang.yaml", "backfill.yaml"} {
			text, err := os.ReadFile(filepath.Join(root, "examples", name))
			if err != nil {
				t.Fatal(err)
			}
			objects, err := manifest.Parse(name, scaleCPU(text, free))
			if err != nil {
				t.Fatal(err)
			}
			definition, ok := objects[0].Value.(*cluster.TaskDefinition)
			if !ok {
				t.Fatalf("%s: the first object is a %T", name, objects[0].Value)
			}
			cpu[definition.Name] = int(definition.Containers[0].Resources.CPU)
		}
		beside, worker, other := free-cpu["import"], cpu["simulation"], cpu["resize"]
		if beside < worker || beside >= gangTasks*worker || beside < other {
			t.Errorf("%d free CPU: %v leaves %d beside the import", free, cpu, beside)
		}
		if free < gangTasks*worker || free >= gangTasks*worker+other {
			t.Errorf("%d free CPU: the gang and another job do not compete: %v", free, cpu)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func lookup(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func TestRun(t *testing.T) {
	effects := filepath.Join(t.TempDir(), "effects")
	results := filepath.Join(t.TempDir(), "results")
	tests := []struct {
		name    string
		env     map[string]string
		wantOut string
		wantErr error // nil for none, errAny for any
	}{
		{name: "alone", wantOut: "task 0 of 1, attempt 1\nresult index=0 attempt=1 sum=332833500\n"},
		{
			name: "the first attempt fails",
			env: map[string]string{
				"BERTH_TASK": "t3", "BERTH_INDEX": "3", "BERTH_COUNT": "8", "BERTH_ATTEMPT": "1",
				"FAIL_FIRST_INDEX": "3", "EFFECTS": effects,
			},
			wantOut: "task 3 of 8, attempt 1\n",
			wantErr: plannedError{1},
		},
		{
			name: "the second does not",
			env: map[string]string{
				"BERTH_TASK": "t3", "BERTH_INDEX": "3", "BERTH_COUNT": "8", "BERTH_ATTEMPT": "2",
				"FAIL_FIRST_INDEX": "3", "EFFECTS": effects, "RESULTS": results, "WORK_TIME": "1ms",
			},
			wantOut: "task 3 of 8, attempt 2\nresult index=3 attempt=2 sum=12329833500\n",
		},
		{
			name:    "the first attempt fails with a code",
			env:     map[string]string{"FAIL_FIRST_CODE": "75"},
			wantOut: "task 0 of 1, attempt 1\n",
			wantErr: plannedError{75},
		},
		{
			name:    "no code",
			env:     map[string]string{"FAIL_FIRST_CODE": "0"},
			wantOut: "task 0 of 1, attempt 1\nresult index=0 attempt=1 sum=332833500\n",
		},
		{
			name:    "alone at the meeting",
			env:     map[string]string{"BERTH_TASK": "c.j.1.s.0", "MEET": filepath.Join(t.TempDir(), "meet")},
			wantOut: "task 0 of 1, attempt 1\nall 1 tasks run\nresult index=0 attempt=1 sum=332833500\n",
		},
		{name: "bad code", env: map[string]string{"FAIL_FIRST_CODE": "none"}, wantErr: errAny},
		{name: "bad index", env: map[string]string{"BERTH_INDEX": "-1"}, wantErr: errAny},
		{name: "bad count", env: map[string]string{"BERTH_COUNT": "many"}, wantErr: errAny},
		{
			name: "bad time", env: map[string]string{"WORK_TIME": "soon"}, wantOut: "task 0 of 1, attempt 1\n",
			wantErr: errAny,
		},
		{
			name: "no place for effects", env: map[string]string{"EFFECTS": t.TempDir()},
			wantOut: "task 0 of 1, attempt 1\n", wantErr: errAny,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), lookup(tt.env), &out)
			if errors.Is(tt.wantErr, errAny) && err == nil || !errors.Is(tt.wantErr, errAny) &&
				!errors.Is(err, tt.wantErr) {
				t.Errorf("run: %v, want %v", err, tt.wantErr)
			}
			if out.String() != tt.wantOut {
				t.Errorf("printed %q, want %q", out.String(), tt.wantOut)
			}
		})
	}
	if got, err := os.ReadFile(results); err != nil || string(got) != "result index=3 attempt=2 sum=12329833500\n" {
		t.Errorf("results %q, %v, want the one that was printed", got, err)
	}
	got, err := os.ReadFile(effects)
	if err != nil || string(got) != "t3 1\nt3 2\n" {
		t.Errorf("effects %q, %v, want one line for each attempt", got, err)
	}
}

var errAny = errors.New("any error")

func TestRunStopsOnRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := run(ctx, lookup(map[string]string{"WORK_TIME": "1h"}), &out)
	if err == nil || strings.Contains(out.String(), "result") {
		t.Errorf("run: %v, printed %q, want an error and no result", err, out.String())
	}
}

func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{75: fmt.Errorf("run: %w", plannedError{75}), 1: errAny} {
		if got := exitCode(err); got != want {
			t.Errorf("exitCode(%v) = %d, want %d", err, got, want)
		}
	}
}

// TestMeet checks that a task waits for all others of its step and run, and only for them.
func TestMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "meet")
		for _, other := range []string{"default.j.1.s.0\n", "default.j.2.other.1\n", "default.j.2.s.1\n"} {
			if err := appendLine(name, other); err != nil {
				t.Fatal(err)
			}
		}
		met := make(chan error, 1)
		go func() { met <- meet(t.Context(), name, "default.j.2.s.0", 3) }()
		time.Sleep(time.Minute) // in-bubble: the file is read often enough
		select {
		case err := <-met:
			t.Fatalf("meet returned %v with two of three tasks there", err)
		default:
		}
		if err := appendLine(name, "default.j.2.s.2\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-met; err != nil {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := meet(ended, name, "default.j.2.s.0", 4); err == nil || !strings.Contains(err.Error(), "3 of 4") {
			t.Errorf("meet: %v, want that 3 of 4 tasks are there", err)
		}
	})
}

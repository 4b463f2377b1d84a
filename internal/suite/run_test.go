package suite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/suite"
)

var _ suite.T = (*testing.T)(nil)

// cases returns one case for each body, with letters as names.
func cases(bodies ...func(suite.T)) (all []suite.Case[int]) {
	for i, body := range bodies {
		all = append(all, suite.Case[int]{Name: string(rune('a' + i)), Run: func(t suite.T, _ int) { body(t) }})
	}
	return all
}

func runAll(ctx context.Context, all []suite.Case[int]) []suite.Result {
	return slices.Collect(suite.Run(ctx, all, func(suite.T) int { return 0 }))
}

func TestRun(t *testing.T) {
	for name, tc := range map[string]struct {
		body     func(suite.T)
		outcome  suite.Outcome
		messages []string // the beginning of each
	}{
		"silent":  {func(suite.T) {}, suite.Passed, nil},
		"logs":    {func(t suite.T) { t.Logf("log %d", 1) }, suite.Passed, []string{"log 1"}},
		"error":   {func(t suite.T) { t.Errorf("one"); t.Logf("two") }, suite.Failed, []string{"one", "two"}},
		"fatal":   {func(t suite.T) { t.Fatalf("one"); t.Logf("two") }, suite.Failed, []string{"one"}},
		"skip":    {func(t suite.T) { t.Skipf("no ip"); t.Logf("two") }, suite.Skipped, []string{"no ip"}},
		"panic":   {func(suite.T) { panic("oops") }, suite.Failed, []string{"panic: oops\ngoroutine "}},
		"goexit":  {func(suite.T) { runtime.Goexit() }, suite.Failed, []string{"the case ended its goroutine"}},
		"skipped": {func(t suite.T) { t.Errorf("one"); t.Skipf("two") }, suite.Failed, []string{"one", "two"}},
		"cleanups": {func(t suite.T) {
			t.Cleanup(func() { t.Logf("last") })
			t.Cleanup(func() { t.Fatalf("middle") })
			t.Cleanup(func() {
				t.Cleanup(func() { t.Logf("nested") })
				t.Logf("first: %v", t.Context().Err())
			})
			t.Logf("body: %v", t.Context().Err())
		}, suite.Failed, []string{"body: <nil>", "first: context canceled", "nested", "middle", "last"}},
		"cleanup after fatal": {func(t suite.T) {
			t.Cleanup(func() { panic("late") })
			t.Fatalf("one")
		}, suite.Failed, []string{"one", "panic: late\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			results := runAll(t.Context(), cases(tc.body, func(suite.T) {}))
			if len(results) != 2 || results[1].Outcome != suite.Passed || results[1].Name != "b" {
				t.Fatalf("got %+v, want two results, and that the next case passed", results)
			}
			got := results[0]
			if got.Outcome != tc.outcome || len(got.Messages) != len(tc.messages) {
				t.Fatalf("got %+v, want %s with %q", got, tc.outcome, tc.messages)
			}
			for i, want := range tc.messages {
				if !strings.HasPrefix(got.Messages[i], want) {
					t.Errorf("message %d: got %q, want %q", i, got.Messages[i], want)
				}
			}
		})
	}
}

func TestRunMakesTheSubjectInsideTheCase(t *testing.T) {
	open := func(t suite.T) int { t.Fatalf("no engine"); return 1 }
	all := []suite.Case[int]{{Name: "a", Run: func(t suite.T, _ int) { t.Errorf("ran") }}}
	got := slices.Collect(suite.Run(t.Context(), all, open))
	if len(got) != 1 || got[0].Outcome != suite.Failed || !slices.Equal(got[0].Messages, []string{"no engine"}) {
		t.Errorf("got %+v, want that the case failed without an engine", got)
	}
}

func TestRunStopsWithItsReader(t *testing.T) {
	ran := 0
	for range suite.Run(t.Context(), cases(func(suite.T) { ran++ }, func(suite.T) { ran++ }),
		func(suite.T) int { return 0 }) {
		break
	}
	if ran != 1 {
		t.Errorf("%d cases ran after the reader stopped, want 1", ran)
	}
}

func TestTempDirs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var dirs []string
	got := runAll(t.Context(), cases(func(t suite.T) {
		for range 2 {
			dir := t.TempDir()
			dirs = append(dirs, dir)
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
				t.Fatalf("write: %v", err)
			}
		}
	}))
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 || got[0].Outcome != suite.Passed || len(dirs) != 2 ||
		filepath.Base(dirs[0]) == filepath.Base(dirs[1]) {
		t.Errorf("got %+v with %q, left %v, error %v; want two directories that are removed", got, dirs, left, err)
	}
}

// TestRunEndsWithItsContext ends the context under a case that obeys it, one that does not, and one that never runs.
func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		for name, tc := range map[string]struct {
			body func(suite.T)
			took time.Duration
			want []string
		}{
			"obeys": {
				func(t suite.T) { <-t.Context().Done(); t.Errorf("%v", context.Cause(t.Context())) },
				time.Second,
				[]string{"enough", "not run: enough"},
			},
			"does not": {
				func(suite.T) { <-release }, time.Second + time.Minute, []string{
					"given up: the case did not end within 1m0s after the end of the run (enough)", "not run: enough",
				},
			},
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
			began := time.Now()
			var got []string
			for _, r := range runAll(ctx, cases(tc.body, func(suite.T) {})) {
				got = append(got, r.Messages...)
				if r.Outcome != suite.Failed {
					t.Errorf("%s: %s: got outcome %s, want failed", name, r.Name, r.Outcome)
				}
			}
			cancel()
			if took := time.Since(began); took != tc.took {
				t.Errorf("%s: took %v, want %v", name, took, tc.took)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: messages (-want +got):\n%s", name, diff)
			}
		}
	})
}

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stream is a run with a pass, a failed subtest, two skips, a package that does not
// build, one that panics while a test waits for its turn, one without tests and one whose result is remembered.
const stream = `{"Action":"start","Package":"m/a"}
{"Action":"output","Package":"m/a","Test":"TestOne","Output":"    a_test.go:3: quiet\n"}
{"Action":"pass","Package":"m/a","Test":"TestOne","Elapsed":0.1}
{"Action":"output","Package":"m/a","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"m/a","Test":"TestRoot","Output":"    kit.go:9: left out: needs root\n"}
{"Action":"output","Package":"m/a","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestRoot"}
{"Action":"skip","Package":"m/a","Test":"TestMute"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.2s\n"}
{"Action":"pass","Package":"m/a","Elapsed":0.2}
{"Action":"output","Package":"m/b","Test":"TestBad/sub","Output":"    b_test.go:5: got 1, want 2\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad/sub"}
{"Action":"fail","Package":"m/b","Test":"TestBad"}
{"Action":"output","Package":"m/b","Output":"FAIL\n"}
{"Action":"fail","Package":"m/b","Elapsed":1.5}
{"ImportPath":"m/c [m/c.test]","Action":"build-output","Output":"c/c.go:3:1: syntax error\n"}
{"ImportPath":"m/c [m/c.test]","Action":"build-fail"}
{"Action":"output","Package":"m/c","Output":"FAIL\tm/c [build failed]\n"}
{"Action":"fail","Package":"m/c","Elapsed":0,"FailedBuild":"m/c [m/c.test]"}
not an event
{"Action":"output","Package":"m/d","Test":"TestBoom","Output":"panic: boom\n"}
{"Action":"output","Package":"m/d","Test":"TestDone","Output":"--- PASS: TestDone (0.00s)\n"}
{"Action":"output","Package":"m/d","Test":"TestDone","Output":"SIGQUIT: quit\n"}
{"Action":"output","Package":"m/d","Test":"TestDone","Output":"goroutine 7\n"}
{"Action":"pass","Package":"m/d","Test":"TestDone"}
{"Action":"output","Package":"m/d","Test":"TestBeside","Output":"=== RUN   TestBeside\n"}
{"Action":"output","Package":"m/d","Test":"TestBeside","Output":"=== PAUSE TestBeside\n"}
{"Action":"output","Package":"m/d","Output":"FAIL\tm/d\t0.1s\n"}
{"Action":"fail","Package":"m/d","Elapsed":0.1}
{"Action":"skip","Package":"m/e","Elapsed":0}
{"Action":"output","Package":"m/f","Output":"ok  \tm/f\t(cached)\n"}
{"Action":"pass","Package":"m/f","Elapsed":0}
`

const report = `ok        0.2s  m/a
--- m/b TestBad/sub
    b_test.go:5: got 1, want 2
--- m/b TestBad
FAIL
FAIL      1.5s  m/b
c/c.go:3:1: syntax error
FAIL      0.0s  m/c
not an event
--- m/d (how its process ended)
SIGQUIT: quit
goroutine 7
--- m/d TestBoom (never finished)
panic: boom
FAIL	m/d	0.1s
FAIL      0.1s  m/d
ok        0.0s  m/f  (passed before, as it is)

Left out:
  the race detector: no C compiler
  m/a TestMute: no reason given
  m/a TestRoot: needs root

Failed:
  m/b TestBad/sub
    b_test.go:5: got 1, want 2
  m/d TestBoom
    panic: boom

2 passed, 4 failed, 3 skipped
`

func TestSummary(t *testing.T) {
	s := summary{leftOut: []string{"the race detector: no C compiler"}}
	var out bytes.Buffer
	if err := s.read(strings.NewReader(stream), &out); err != nil {
		t.Fatal(err)
	}
	s.print(&out, false)
	if diff := cmp.Diff(report, out.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// The sample in testdata passes, skips and fails by name.
func TestRunOnRealGoTest(t *testing.T) {
	tests := []struct {
		name     string
		noSkip   string
		pattern  string
		wantErr  bool
		wantLast string
	}{
		{name: "all pass", pattern: "TestPasses", wantLast: "1 passed, 0 failed"},
		{name: "one is left out", pattern: "TestPasses|TestSkips", wantLast: "1 passed, 0 failed, 1 skipped"},
		{
			name: "none may be left out", noSkip: "1", pattern: "TestSkips", wantErr: true,
			wantLast: "0 passed, 0 failed, 1 skipped",
		},
		{name: "one fails", pattern: "TestFails", wantErr: true, wantLast: "0 passed, 1 failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("BERTH_TEST_NO_SKIP", tt.noSkip)
			var stdout, stderr bytes.Buffer
			err := run(t.Context(), []string{"--", "go", "test", "-run", tt.pattern, "./testdata/sample"}, &stdout,
				&stderr)
			if (err != nil) != tt.wantErr {
				t.Errorf("run: %v, want an error: %v\n%s%s", err, tt.wantErr, stdout.String(), stderr.String())
			}
			lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
			if got := lines[len(lines)-1]; got != tt.wantLast {
				t.Errorf("last line %q, want %q", got, tt.wantLast)
			}
		})
	}
}

func TestRunRefusesOtherCommands(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"--", "true"}, &stdout, &stderr); err == nil {
		t.Error("run took a command that is not go test")
	}
}

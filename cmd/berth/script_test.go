package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berthd/berth/internal/cli"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/testkit"
)

// steady is how long a command in a script sees the same time: the printed ages must not depend on the machine.
const steady = 10 * time.Second

// TestMain lets scripts run this binary as berth, at a time of their own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"berth-main": main, // with its signals, at the time that it is
		"berth": func() {
			a := session.New(os.Stdin, os.Stdout, os.Stderr)
			began, start := time.Now(), clitest.Start()
			a.Now = func() time.Time {
				took := time.Since(began)
				if took < steady {
					took = 0 // else ages would grow on a slow machine
				}
				return start.Add(took)
			}
			os.Exit(cli.Run(context.Background(), a, os.Args[1:]))
		},
	})
}

// TestScripts runs testdata/*.txtar: what a person types, and what is printed. Besides the commands of
// testscript there are
//
//	world FILE...   the fake server shows these, one after the other
//	calls FILE      compares what was changed on the server
//	code N CMD...   runs a command that must exit with the code
//	complete PATTERN ARG...  completes a command line until a line matches: a server that is slow yields no names
//	paste PATTERN CMD...  runs a command with the words that the group of the pattern matches in the last output
//	transcript FILE runs the commands of a transcript and compares all output (transcript_test.go)
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("BERTH_TEST_UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			f := clitest.NewFake()
			env.Defer(f.Close)
			env.Values["fake"] = f
			env.Setenv("BERTH_ADDR", f.URL)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, ".config"))
			env.Setenv("TZ", "UTC")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second to end under -race
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"world": func(ts *testscript.TestScript, _ bool, args []string) {
				files := make([]string, len(args))
				for i, a := range args {
					files[i] = ts.MkAbs(a)
				}
				ts.Check(ts.Value("fake").(*clitest.Fake).Load(files...))
			},
			"node":    serveHost,
			"ownnode": serveOwnHost,
			"calls": func(ts *testscript.TestScript, _ bool, args []string) {
				f := ts.Value("fake").(*clitest.Fake)
				f.Mutex.Lock()
				defer f.Mutex.Unlock()
				got := strings.Join(f.Calls, "\n")
				if want := strings.TrimSpace(ts.ReadFile(args[0])); got != want {
					ts.Fatalf("calls:\n got %s\nwant %s", got, want)
				}
			},
			"complete": func(ts *testscript.TestScript, _ bool, args []string) {
				pattern, words := regexp.MustCompile("(?m)"+args[0]), append([]string{"__complete"}, args[1:]...)
				ctx, cancel := testkit.WithLimit(context.Background(), 10*time.Second)
				defer cancel()
				ts.Check(testkit.Poll(ctx, func() error {
					if err := ts.Exec("berth", words...); err != nil {
						return err
					}
					if got := ts.ReadFile("stdout"); !pattern.MatchString(got) {
						return fmt.Errorf("complete %q: got\n%s, want a line %s", args[1:], got, args[0])
					}
					return nil
				}))
			},
			"paste":      paste,
			"transcript": func(ts *testscript.TestScript, _ bool, args []string) { compareTranscript(ts, args[0]) },
			"code": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := "0"
				if exit, ok := err.(interface{ ExitCode() int }); ok {
					got = strconv.Itoa(exit.ExitCode())
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if got != args[0] {
					ts.Fatalf("exit code: got %s, want %s", got, args[0])
				}
			},
		},
	})
}

// paste runs a command with the words that a person would copy from the output of the last command.
func paste(ts *testscript.TestScript, _ bool, args []string) {
	printed := ts.ReadFile("stdout") + ts.ReadFile("stderr")
	found := regexp.MustCompile("(?m)" + args[0]).FindStringSubmatch(printed)
	if found == nil {
		ts.Fatalf("paste: %s does not match what was printed:\n%s", args[0], printed)
	}
	words := append(args[1:], strings.Fields(found[1])...)
	ts.Check(ts.Exec(words[0], words[1:]...))
}

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build events
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// skipped is a test that was left out.
type skipped struct{ pkg, test, reason string }

// summary counts the tests and subtests of a run. A package that fails without a
// failed test (it does not build, panics, or runs out of time) counts as one.
type summary struct {
	passed, failed int
	skipped        []skipped
	leftOut        []string
	failures       []string // of failed tests with output, with its first lines

	slow   []slowTest
	output map[string][]string // of tests that have not passed, by package and test
	broken map[string]bool     // packages with a failed test
	dumps  map[string][]string // of processes that died, by package, where a test seemed to have written them
}

// read follows the events of a run until its end, and writes each package's result and the output of failures. A line
// that is no event is passed on.
func (s *summary) read(r io.Reader, w io.Writer) error {
	s.output, s.broken, s.dumps = map[string][]string{}, map[string]bool{}, map[string][]string{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				fmt.Fprintln(w, strings.TrimRight(line, "\n"))
			} else {
				s.add(e, w)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read go test: %w", err)
		}
	}
}

func (s *summary) add(e event, w io.Writer) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(w, e.Output)
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.pkg(e, w)
			return
		}
		s.test(e, w)
		delete(s.output, key)
	}
}

// slowTest is a test with all of its subtests, and how many seconds it took. Time in which it waited for its turn does
// not count.
type slowTest struct {
	name    string
	seconds float64
}

const (
	slowSeconds  = 10 // a test that takes longer is slow
	maxSlowTests = 15 // number of listed slow tests
)

// printSlow writes the slowest tests.
func (s *summary) printSlow(w io.Writer) {
	slices.SortStableFunc(s.slow, func(a, b slowTest) int { return cmp.Compare(b.seconds, a.seconds) })
	for i, t := range s.slow[:min(len(s.slow), maxSlowTests)] {
		if i == 0 {
			fmt.Fprintf(w, "\nSlowest of %d tests that took longer than %d s:\n", len(s.slow), slowSeconds)
		}
		fmt.Fprintf(w, "  %7.1fs  %s\n", t.seconds, t.name)
	}
}

func (s *summary) test(e event, w io.Writer) {
	if e.Elapsed > slowSeconds && !strings.Contains(e.Test, "/") {
		s.slow = append(s.slow, slowTest{e.Package + " " + e.Test, e.Elapsed})
	}
	out := s.output[e.Package+" "+e.Test]
	switch e.Action {
	case "pass":
		s.passed++
		s.keepDump(e.Package, out)
	case "fail":
		s.failed++
		s.broken[e.Package] = true
		fmt.Fprintf(w, "--- %s %s\n%s", e.Package, e.Test, strings.Join(out, ""))
		s.failure(e.Package+" "+e.Test, out)
	case "skip":
		s.skipped = append(s.skipped, skipped{e.Package, e.Test, skipReason(out)})
	}
}

// pkg writes the line of a package. Packages without tests are not worth one.
func (s *summary) pkg(e event, w io.Writer) {
	out := s.output[e.Package+" "]
	delete(s.output, e.Package+" ")
	switch e.Action {
	case "pass":
		again := ""
		if strings.Contains(strings.Join(out, ""), "\t(cached)") {
			again = "  (passed before, as it is)"
		}
		fmt.Fprintf(w, "ok    %7.1fs  %s%s\n", e.Elapsed, e.Package, again)
	case "fail":
		if !s.broken[e.Package] {
			s.failed++
		}
		s.unfinished(e.Package, w)
		if e.FailedBuild == "" {
			fmt.Fprint(w, strings.Join(out, ""))
		}
		fmt.Fprintf(w, "FAIL  %7.1fs  %s\n", e.Elapsed, e.Package)
	}
}

// unfinished writes the output of the tests that were running when their package died.
func (s *summary) unfinished(pkg string, w io.Writer) {
	var keys []string
	for key := range s.output {
		if out := s.output[key]; strings.HasPrefix(key, pkg+" ") && !waited(out) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if dump := s.dumps[pkg]; len(dump) > 0 {
		fmt.Fprintf(w, "--- %s (how its process ended)\n%s", pkg, strings.Join(dump, ""))
		s.failure(pkg, dump)
	}
	for _, key := range keys {
		fmt.Fprintf(w, "--- %s (never finished)\n%s", key, strings.Join(s.output[key], ""))
		s.failure(key, s.output[key])
		delete(s.output, key)
	}
}

// keepDump keeps the end of a test's output from where it is the dump of a process that died. Go takes it for the
// output of the test that wrote last, which may have passed.
func (s *summary) keepDump(pkg string, out []string) {
	for i, line := range out {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") ||
			strings.HasPrefix(line, "SIGQUIT: ") {
			s.dumps[pkg] = append(s.dumps[pkg], out[i:]...)
			return
		}
	}
}

// waited reports whether a test's last output says that it waits for its turn among others (t.Parallel).
func waited(out []string) bool {
	return len(out) > 0 && strings.HasPrefix(out[len(out)-1], "=== PAUSE ")
}

// maxPlaces is the number of repeated output lines of a failed test at the end.
const maxPlaces = 5

// failure keeps the lines that say why a test failed: what it reported, or the panic it died of.
func (s *summary) failure(key string, out []string) {
	var places []string
	for _, line := range out {
		if len(places) < maxPlaces && (place.MatchString(line) || strings.HasPrefix(line, "panic: ")) {
			places = append(places, "    "+strings.TrimSpace(line))
		}
	}
	if len(places) > 0 {
		s.failures = append(s.failures, "  "+key+"\n"+strings.Join(places, "\n"))
	}
}

// place matches the "file_test.go:12: " before a test's message.
var place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// skipReason returns the reason of a skipped test: the last line of its output that is not part of the frame that go
// test draws around it.
func skipReason(out []string) string {
	for _, line := range slices.Backward(out) {
		if loc := place.FindStringIndex(line); loc != nil {
			return strings.TrimPrefix(strings.TrimSpace(line[loc[1]:]), "left out: ")
		}
	}
	return "no reason given"
}

func (s *summary) skippedCount() int { return len(s.skipped) + len(s.leftOut) }

// print ends the run: the left out tests, the reasons of failures, and the counts alone on the last line.
func (s *summary) print(w io.Writer, strict bool) {
	if s.skippedCount() > 0 {
		fmt.Fprintln(w, "\nLeft out:")
	}
	for _, text := range s.leftOut {
		fmt.Fprintf(w, "  %s\n", text)
	}
	slices.SortFunc(s.skipped, func(a, b skipped) int {
		return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test)
	})
	for _, sk := range s.skipped {
		fmt.Fprintf(w, "  %s %s: %s\n", sk.pkg, sk.test, sk.reason)
	}
	if strict {
		fmt.Fprintln(w, "Nothing may be left out here.")
	}
	s.printSlow(w)
	if len(s.failures) > 0 {
		fmt.Fprintf(w, "\nFailed:\n%s\n", strings.Join(s.failures, "\n"))
	}
	fmt.Fprintf(w, "\n%d passed, %d failed", s.passed, s.failed)
	if n := s.skippedCount(); n > 0 {
		fmt.Fprintf(w, ", %d skipped", n)
	}
	fmt.Fprintln(w)
}

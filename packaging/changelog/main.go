// Command changelog joins the fragments of changes into the changelog, when a release is made:
//
//	go run ./packaging/changelog -version 0.1.0
//
// It adds a chapter for the version to CHANGELOG.md, removes the fragments from changelog/unreleased, and writes the
// version to the file VERSION. The fragments have the form that changelog/unreleased/README.md describes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	err := run(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "changelog:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("changelog", flag.ContinueOnError)
	flags.SetOutput(stderr)
	tree := flags.String("tree", ".", "`DIR` of the source tree")
	version := flags.String("version", "", "the version of the release, such as 0.1.0")
	date := flags.String("date", time.Now().UTC().Format(time.DateOnly), "the date of the release")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if !releases.MatchString(*version) {
		return fmt.Errorf("version %q: want MAJOR.MINOR.PATCH, such as 0.1.0 (make changelog VERSION=0.1.0)", *version)
	}
	if _, err := time.Parse(time.DateOnly, *date); err != nil {
		return fmt.Errorf("date %q: want YYYY-MM-DD", *date)
	}
	return release(*tree, *version, *date)
}

var releases = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// release moves the fragments of a tree into its changelog.
func release(tree, version, date string) error {
	dir := filepath.Join(tree, "changelog", "unreleased")
	fragments, err := readFragments(dir)
	if err != nil {
		return err
	}
	if len(fragments) == 0 {
		return fmt.Errorf("%s has no fragments: nothing to release", dir)
	}
	name := filepath.Join(tree, "CHANGELOG.md")
	old, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	text, err := withChapter(string(old), version, chapter(version, date, fragments))
	if err != nil {
		return err
	}
	// The fragments go last: an interrupted run loses none, and a repeated one names the chapter that is there.
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil { // the mode of a file that exists stays
		return fmt.Errorf("write the changelog: %w", err)
	}
	file := filepath.Join(tree, "VERSION")
	if err := os.WriteFile(file, []byte(version+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the version: %w", err)
	}
	for _, f := range fragments {
		if err := os.Remove(f.file); err != nil {
			return fmt.Errorf("remove a fragment: %w", err)
		}
	}
	return nil
}

// fragment is one change.
type fragment struct {
	file    string
	kind    string // the heading of its section
	heading string // without the kind
	text    string
}

// sections are the kinds of changes in the order of a chapter. The prefix begins the heading of a fragment.
func sections() []struct{ prefix, title string } {
	return []struct{ prefix, title string }{
		{"Security: ", "Security"},
		{"", "New"},
		{"Changed: ", "Changed"},
		{"Fixed: ", "Fixed"},
		{"Removed: ", "Removed"},
	}
}

// readFragments returns the fragments in a folder by the names of their files. The error lists all faults.
func readFragments(dir string) ([]fragment, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, fmt.Errorf("list the fragments: %w", err)
	}
	var fragments []fragment
	var faults []error
	for _, file := range files {
		if filepath.Base(file) == "README.md" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a fragment: %w", err)
		}
		f, err := parseFragment(string(data))
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file, err))
		}
		f.file = file
		fragments = append(fragments, f)
	}
	return fragments, errors.Join(faults...)
}

// otherKind finds words in a heading that look like a kind and are none.
var otherKind = regexp.MustCompile(`^(Added|Change|Changes|Deprecated|Fix|Fixes|New|Remove): `)

// parseFragment reads a heading and its paragraphs.
func parseFragment(data string) (fragment, error) {
	first, text, _ := strings.Cut(data, "\n")
	heading, ok := strings.CutPrefix(first, "# ")
	text = strings.TrimSpace(text)
	switch {
	case !ok || heading == "":
		return fragment{}, errors.New(`the first line is no heading: want "# What changed"`)
	case text == "":
		return fragment{}, errors.New("no paragraph follows the heading")
	case strings.Contains(text, "\n#"):
		return fragment{}, errors.New("a second heading: want one fragment for each change")
	}
	f := fragment{kind: "New", heading: heading, text: strings.ReplaceAll(text, "](../../", "](")}
	for _, s := range sections() {
		if rest, ok := strings.CutPrefix(heading, s.prefix); ok && s.prefix != "" {
			f.kind, f.heading = s.title, rest
			return f, nil
		}
	}
	if word := otherKind.FindStringSubmatch(heading); word != nil {
		return fragment{}, fmt.Errorf("kind %q: want Security, Changed, Fixed, Removed or none", word[1])
	}
	return f, nil
}

// chapter returns the text of a release.
func chapter(version, date string, fragments []fragment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s (%s)\n", version, date)
	for _, s := range sections() {
		title := "\n### " + s.title + "\n"
		for _, f := range fragments {
			if f.kind != s.title {
				continue
			}
			fmt.Fprintf(&b, "%s\n#### %s\n\n%s\n", title, upper(f.heading), f.text)
			title = ""
		}
	}
	return b.String()
}

// upper begins a heading with a capital, as one that followed a kind may lack it.
func upper(heading string) string { return strings.ToUpper(heading[:1]) + heading[1:] }

// withChapter adds a chapter to a changelog, before those of older releases.
func withChapter(changelog, version, chapter string) (string, error) {
	intro, older, found := strings.Cut(changelog, "\n## ")
	if strings.HasPrefix(older, version+" ") || strings.Contains(older, "\n## "+version+" ") {
		return "", fmt.Errorf("CHANGELOG.md has a chapter for %s already", version)
	}
	text := strings.TrimRight(intro, "\n") + "\n\n" + chapter
	if found {
		text += "\n## " + older
	}
	return text, nil
}

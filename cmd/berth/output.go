package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Outputs.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

func (a *app) checkOutput(cmd *cobra.Command) error {
	known := []string{outputTable, outputWide, outputJSON, outputYAML}
	if slices.Contains(known, a.output) {
		return nil
	}
	var err error
	if a.shape, err = newShape(a.output); a.shape != nil || err != nil {
		return err
	}
	return &usageError{
		cmd.CommandPath(),
		fmt.Sprintf("-o %s: want one of %s, jsonpath=PATH, go-template=TEMPLATE", a.output, strings.Join(known, ", ")),
	}
}

// data reports whether values are printed for programs, not tables for people.
func (a *app) data() bool {
	return a.output == outputJSON || a.output == outputYAML || a.shape != nil
}

// printData prints a value as JSON or YAML, or as the user's path or template says.
func (a *app) printData(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	out := b.Bytes()
	if a.shape != nil {
		value, err := generic(out)
		if err != nil {
			return err
		}
		return a.shape.write(a.stdout, value)
	}
	if a.output == outputYAML {
		text, err := toYAML(out)
		if err != nil {
			return err
		}
		out = text
	}
	_, err := a.stdout.Write(out)
	return err
}

// printLine prints a value of a stream as one line of JSON, as a YAML document, or as the user's path or template says
// with the line ended.
func (a *app) printLine(v any) error {
	if a.output == outputYAML {
		if _, err := io.WriteString(a.stdout, "---\n"); err != nil {
			return err
		}
		return a.printData(v)
	}
	if a.shape != nil {
		var b bytes.Buffer
		one := *a
		one.stdout = &b
		if err := one.printData(v); err != nil {
			return err
		}
		if text := b.Bytes(); len(text) > 0 && text[len(text)-1] != '\n' {
			b.WriteByte('\n')
		}
		_, err := a.stdout.Write(b.Bytes())
		return err
	}
	return json.NewEncoder(a.stdout).Encode(v)
}

// table is rows of cells under titles. A title that begins with "+" is shown with -o wide only, one
// that ends with ">" is set to the right.
type table struct {
	titles []string
	rows   [][]string
	indent string
	// state is the column that is coloured by its word; 0 is none.
	state int
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// brief empties the messages, so that they are left out: what stands beside the table tells the same.
func (t table) brief() table {
	c := slices.Index(t.titles, "MESSAGE")
	for _, row := range t.rows {
		row[c] = ""
	}
	return t
}

// printTable prints a table to standard output.
func (a *app) printTable(t table) error {
	_, err := io.WriteString(a.stdout, t.render(view{
		wide: a.output == outputWide, color: a.colors(a.stdout), width: terminalWidth(a.stdout),
	}))
	return err
}

// view is how tables are shown. Width is 0 where lines may be of any length.
type view struct {
	wide, color bool
	width       int
}

// render returns the table as text: columns as wide as their widest cell, two spaces between them,
// the last one cut where a terminal ends. Columns without any content are left out.
func (t table) render(v view) string {
	shown := t.shown(v.wide)
	widths := make([]int, len(t.titles))
	for _, c := range shown {
		widths[c] = utf8.RuneCountInString(plainTitle(t.titles[c]))
		for _, row := range t.rows {
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
		}
	}
	var b strings.Builder
	line := func(cell func(int) string, paint bool) {
		var l strings.Builder
		room := v.width - utf8.RuneCountInString(t.indent)
		for i, c := range shown {
			text := cell(c)
			last := i == len(shown)-1
			if last && v.width > 0 {
				text = cut(text, room)
			}
			pad := strings.Repeat(" ", max(0, widths[c]-utf8.RuneCountInString(text)))
			room -= widths[c] + 2
			if paint && v.color && c == t.state && c > 0 {
				text = painted(text)
			}
			switch {
			case strings.HasSuffix(t.titles[c], ">"):
				l.WriteString(pad + text)
			case last:
				l.WriteString(text)
			default:
				l.WriteString(text + pad)
			}
			if !last {
				l.WriteString("  ")
			}
		}
		b.WriteString(strings.TrimRight(t.indent+l.String(), " ") + "\n")
	}
	if len(t.titles) > 0 && strings.Join(t.titles, "") != "" {
		line(func(c int) string { return plainTitle(t.titles[c]) }, false)
	}
	for _, row := range t.rows {
		line(func(c int) string { return row[c] }, true)
	}
	return b.String()
}

// wrapped cuts text into lines of a width, between words; a width of 0 or less is any.
func wrapped(text string, width int) []string {
	const least = 20
	if width <= 0 {
		return []string{text}
	}
	width = max(width, least)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// shown returns the columns to print.
func (t table) shown(wide bool) []int {
	var shown []int
	for c, title := range t.titles {
		if strings.HasPrefix(title, "+") && !wide {
			continue
		}
		filled := slices.ContainsFunc(t.rows, func(row []string) bool { return row[c] != "" && row[c] != "-" })
		if c == 0 || filled || len(t.rows) == 0 {
			shown = append(shown, c)
		}
	}
	return shown
}

func plainTitle(title string) string {
	return strings.TrimSuffix(strings.TrimPrefix(title, "+"), ">")
}

// cut shortens text to a width, at least to a few signs.
func cut(text string, width int) string {
	width = max(width, 10)
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// Colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	grey   = "90"
)

// painted colours the words that tell how something is.
func painted(text string) string {
	word, _, _ := strings.Cut(text, " ")
	color := ""
	switch word {
	case "healthy", "ready", "succeeded", "create", "complete":
		color = green
	case "failing", "failed", "degraded", "down", "lost", "rejected", "rolled-back", "crash-loop", "rollout-failed",
		troubleLost, troubleGivenUp:
		color = red
	case "warning", "pending", "starting", "rolling-out", "suspect", "preparing", "assigned", "draining", "joining",
		"update", "stopping", "deleting",
		"rolling", "canary", "paused", "pressure", troubleHeld, troubleMissed, troubleNoMore, troubleHungry:
		color = yellow
	case "stopped", "cancelled", "drained", "suspended", "superseded":
		color = grey
	}
	return colored(text, color)
}

func colored(text, color string) string {
	if color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// colors reports whether output to w is coloured.
func (a *app) colors(w io.Writer) bool {
	return a.env("NO_COLOR") == "" && a.env("TERM") != "dumb" && terminalWidth(w) > 0
}

// terminalWidth returns how many columns the terminal behind w has, or 0 if there is none.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// age says how long ago something was: "5s", "3m", "2h", "4d"; "" for never.
func (a *app) age(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return span(a.now().Sub(at))
}

func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// count says "1 task", "2 tasks".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

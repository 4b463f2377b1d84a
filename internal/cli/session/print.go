package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/blockyaml"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/wording"
)

// Output prints what a command answers, in the form that -o names. Copies print in another form, or to another writer.
type Output struct {
	Stdout    io.Writer
	Format    string
	Template  output.Template // for -o jsonpath and go-template, else nil
	NoHeaders bool            // print tables without their titles
	repeats   bool            // data has the form of a stream, see Session.Repeat
}

// CheckOutput refuses an unknown --output, and compiles the template or query in it.
func (o *Output) CheckOutput(cmd *cobra.Command) error {
	known := []string{output.OutputTable, output.OutputWide, output.OutputJSON, output.OutputYAML}
	if slices.Contains(known, o.Format) || o.Format == output.OutputName && cmd.Annotations[listAnnotation] != "" {
		return nil
	}
	if o.Format == output.OutputName {
		return &UsageError{cmd.CommandPath(), "-o name: it is for commands that list objects, such as 'berth ps'"}
	}
	var err error
	if o.Template, err = output.NewTemplate(o.Format, o.NoHeaders); o.Template != nil || err != nil {
		return err
	}
	return &UsageError{
		cmd.CommandPath(),
		fmt.Sprintf("-o %s: want one of %s, name, custom-columns=TITLE:.path,…, jsonpath=PATH, "+
			"go-template=TEMPLATE", o.Format, strings.Join(known, ", ")),
	}
}

// WantsData reports whether the output is data for programs. Otherwise commands print tables.
func (o *Output) WantsData() bool {
	return o.PrintsDocuments() || o.Template != nil
}

// PrintsDocuments reports whether the output is JSON or YAML.
func (o *Output) PrintsDocuments() bool {
	return o.Format == output.OutputJSON || o.Format == output.OutputYAML
}

// PrintData prints a value as JSON or YAML, or through the user's query or template.
func (o *Output) PrintData(v any) error {
	if o.repeats && o.PrintsDocuments() {
		once := *o
		once.repeats = false
		return once.PrintItem(v)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	out := b.Bytes()
	if o.Template != nil {
		value, err := output.Decode(out)
		if err != nil {
			return err
		}
		return o.Template.Write(o.Stdout, value)
	}
	if o.Format == output.OutputYAML {
		text, err := blockyaml.FromJSON(out)
		if err != nil {
			return err
		}
		out = text
	}
	_, err := o.Stdout.Write(out)
	return err
}

// PrintItem prints an element of a stream: one line of JSON, a YAML document, or one line through the user's query or
// template.
func (o *Output) PrintItem(v any) error {
	if o.Format == output.OutputYAML {
		if _, err := io.WriteString(o.Stdout, "---\n"); err != nil {
			return err
		}
		return o.PrintData(v)
	}
	if columns, ok := o.Template.(*output.Columns); ok {
		value, err := decoded(v)
		if err != nil {
			return err
		}
		return columns.WriteItem(o.Stdout, value)
	}
	if o.Template != nil {
		var b bytes.Buffer
		one := *o
		one.Stdout = &b
		if err := one.PrintData(v); err != nil {
			return err
		}
		if text := b.Bytes(); len(text) > 0 && text[len(text)-1] != '\n' {
			b.WriteByte('\n')
		}
		_, err := o.Stdout.Write(b.Bytes())
		return err
	}
	return json.NewEncoder(o.Stdout).Encode(v)
}

// decoded returns a value as templates see it.
func decoded(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	return output.Decode(text)
}

// PrintTable prints a table on standard output, with short references.
func (s *Session) PrintTable(t output.Table) error {
	_, err := io.WriteString(s.Stdout, s.ShortenTable(t).Render(output.Layout{
		Wide: s.Format == output.OutputWide, Color: s.HasColors(s.Stdout), Width: output.TerminalWidth(s.Stdout),
		NoTitles: s.NoHeaders,
	}))
	return err
}

// PrintList prints a list: its elements for programs, their names, or a table. For a list without elements it prints
// the message none.
func PrintList[T any](s *Session, all []T, none string, table func([]T) output.Table) error {
	switch {
	case s.WantsData():
		return s.PrintData(output.EmptyIfNil(all))
	case len(all) == 0:
		s.Messagef("%s", none)
		return nil
	case s.Format == output.OutputName:
		return PrintNames(s, all)
	}
	return s.PrintTable(table(all))
}

// HasColors reports whether output to w is coloured.
func (s *Session) HasColors(w io.Writer) bool {
	return s.Env("NO_COLOR") == "" && s.Env("TERM") != "dumb" && output.TerminalWidth(w) > 0
}

// Age returns the time since at: "5s", "3m", "2h", "4d", or "" for the zero time.
func (s *Session) Age(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return wording.Span(s.Now().Sub(at))
}

// PrintDataOnly prints a value for programs, and nothing for people.
func (o *Output) PrintDataOnly(v any) error {
	if o.WantsData() {
		return o.PrintData(v)
	}
	return nil
}

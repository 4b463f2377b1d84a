package apply

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/fields"
	"github.com/berthd/berth/internal/manifest"
)

// fieldsWidth is the width of descriptions where no terminal has another one.
const fieldsWidth = 100

// fieldsCommand is `berth fields`.
type fieldsCommand struct{ *session.Session }

// NewFieldsCommand returns the command `berth fields`.
func NewFieldsCommand(sess *session.Session) *cobra.Command {
	f := &fieldsCommand{sess}
	return &cobra.Command{
		Use: "fields [KIND[.FIELD...]]", Short: "Explain the fields of manifests",
		Long: "Explains a field of manifests: its type, default, bounds, values and meaning, with the fields inside\n" +
			"of it. Without an argument it lists the kinds.",
		Args:              session.Arguments(0, 1, "a field, such as service.update"),
		ValidArgsFunction: f.complete, RunE: f.run,
	}
}

func (f *fieldsCommand) run(cmd *cobra.Command, args []string) error {
	d, err := fields.Parse(manifest.Schema())
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return f.printKinds(d)
	}
	field, err := d.Explain(args[0])
	if err != nil {
		return &session.UsageError{Command: cmd.CommandPath(), Message: err.Error()}
	}
	if f.WantsData() {
		return f.PrintData(field)
	}
	f.print(field)
	return nil
}

func (f *fieldsCommand) printKinds(d *fields.Document) error {
	if f.WantsData() {
		return f.PrintData(d.Kinds())
	}
	for _, kind := range d.Kinds() {
		field, err := d.Explain(kind)
		if err != nil {
			return err
		}
		f.Printf("%s", kind)
		f.printText("    ", field.Description)
	}
	f.Printf("\n'berth fields service' lists the fields of a service.")
	return nil
}

func (f *fieldsCommand) print(field fields.Field) {
	f.Printf("%s  (%s)", field.Path, typeText(&field))
	f.printText("    ", field.Description)
	f.printText("    ", valuesText(&field))
	for i := range field.Children {
		child := &field.Children[i]
		f.Printf("\n  %s  (%s)", child.Name, typeText(child))
		f.printText("      ", child.Description)
		f.printText("      ", valuesText(child))
	}
}

// typeText returns the type of a field, with its default and bounds.
func typeText(f *fields.Field) string {
	parts := []string{f.Type}
	if f.Required {
		parts = append(parts, "required")
	}
	if f.Bounds != "" {
		parts = append(parts, f.Bounds)
	}
	if f.Default != "" {
		parts = append(parts, "default "+f.Default)
	}
	return strings.Join(parts, ", ")
}

func valuesText(f *fields.Field) string {
	if len(f.Values) == 0 {
		return ""
	}
	return "one of " + strings.Join(f.Values, ", ")
}

// printText prints a text in lines that fit into the terminal.
func (f *fieldsCommand) printText(indent, text string) {
	width := output.TerminalWidth(f.Stdout)
	if width == 0 {
		width = fieldsWidth
	}
	if text == "" {
		return
	}
	for _, line := range output.Wrap(text, width-len(indent)) {
		f.Printf("%s%s", indent, line)
	}
}

// complete completes a path part by part.
func (f *fieldsCommand) complete(_ *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	d, err := fields.Parse(manifest.Schema())
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	above, _, deep := cutLast(text)
	var found []string
	if !deep {
		for _, kind := range d.Kinds() {
			found = append(found, strings.ToLower(kind))
		}
	} else if field, err := d.Explain(above); err == nil {
		for i := range field.Children {
			found = append(found, fmt.Sprintf("%s.%s", above, field.Children[i].Name))
		}
	}
	var fitting []string
	for _, path := range found {
		if strings.HasPrefix(path, text) {
			fitting = append(fitting, path)
		}
	}
	return fitting, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// cutLast cuts a path at its last point.
func cutLast(path string) (above, last string, found bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

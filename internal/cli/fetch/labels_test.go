package fetch

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cluster"
)

// TestLabelColumns checks that chosen labels are before the messages, and shown even if no object has them.
func TestLabelColumns(t *testing.T) {
	var l Labels
	cmd := &cobra.Command{}
	l.AddFlags(cmd, "nodes")
	if err := cmd.ParseFlags([]string{"-L", "example.com/tier,none", "-l", "a=b"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Parse(cmd); err != nil || l.Selector() != "a=b" {
		t.Errorf("the selector: %q, %v", l.Selector(), err)
	}
	table := output.Table{Titles: []string{"NAME", "MESSAGE"}, Rows: [][]string{{"x", "why"}, {"y", ""}}}
	own := []cluster.Labels{{"example.com/tier": "front"}, nil}
	l.AddColumns(&table, func(row int) cluster.Labels { return own[row] })
	want := `
NAME  TIER    NONE    MESSAGE
x     front   <none>  why
y     <none>  <none>
`
	if got := table.Render(output.Layout{}); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("got\n%swant%s", got, want)
	}
}

package fetch

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cluster"
)

// TestSelector checks the conditions of selectors against one set of labels.
func TestSelector(t *testing.T) {
	labels := cluster.Labels{"app": "shop", "tier": "", "example.com/owner": "ann"}
	for text, want := range map[string]bool{
		"app=shop": true, "app==shop": true, "app = shop": true, "app=bank": false, "tier=": true, "none=": false,
		"app!=shop": false, "app!=bank": true, "none!=x": true,
		"app": true, "tier": true, "none": false, "!app": false, "!none": true,
		"example.com/owner=ann,app": true, "app,!tier": false, "app=shop, tier": true,
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Matches(labels); got != want {
			t.Errorf("%q matches: got %v, want %v", text, got, want)
		}
	}
	if !(Selector{}).Matches(nil) {
		t.Error("an empty selector does not select everything")
	}
	for _, text := range []string{"", "a,,b", "=x", "!", "a b", "a in (b)", "!=x"} {
		if s, err := ParseSelector(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, s)
		}
	}
}

// TestLabelColumns checks that chosen labels are before the messages, and shown even if no object has them.
func TestLabelColumns(t *testing.T) {
	var l Labels
	cmd := &cobra.Command{}
	l.AddFlags(cmd, "nodes")
	if err := cmd.ParseFlags([]string{"-L", "example.com/tier,none", "-l", "a=b"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Parse(cmd); err != nil || !l.Matches(cluster.Labels{"a": "b"}) || l.Matches(nil) {
		t.Errorf("the selector: %v", err)
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

package query

import (
	"fmt"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/wording"
)

// printPlacement prints why a task is on its node, which nodes came next, and why the other nodes refuse it.
func printPlacement(sess *session.Session, v *api.PlaceView, pending bool) error {
	if v == nil {
		return nil
	}
	t := output.Table{Titles: []string{"", ""}, Indent: "  "}
	width := output.TerminalWidth(sess.Stdout) - len("  because  ")
	add := func(title, text string) {
		for _, line := range output.Wrap(sess.Shorten(wording.OneLine(text)), width) {
			t.Add(title, line)
			title = ""
		}
	}
	g := &v.DecisionTrace
	if !pending {
		here := "on " + v.Node
		if v.Here != "" {
			here += ": " + v.Here
		}
		add("here", here)
		add("", decisionText(sess, v))
	}
	for i, o := range v.Others {
		title := ""
		if i == 0 {
			title = "next"
		}
		add(title, o.Node+" is "+o.Text)
	}
	if g.More > 0 {
		add("", fmt.Sprintf("%s more of kinds that accept it", wording.Count(g.More, "node")))
	}
	for i, text := range v.Refusals {
		if pending { // the reasons above say what the task waits for
			break
		}
		title := ""
		if i == 0 {
			title = "not"
		}
		add(title, text)
	}
	if o := v.Asked; o != nil {
		add(o.Node, o.Text)
		for _, text := range o.Against {
			add("", "- "+text)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	sess.Printf("")
	return sess.PrintTable(t)
}

// decisionText describes when the placement was decided and among how many nodes, or that the decision is no longer
// kept.
func decisionText(sess *session.Session, v *api.PlaceView) string {
	g := &v.DecisionTrace
	if !v.Recorded {
		return "the original decision is no longer kept; this is the decision for the present " +
			"state, among " + wording.Count(g.Nodes, "node")
	}
	text := "decided " + sess.Age(g.At) + " ago among " + wording.Count(g.Nodes, "node")
	if others := g.Like - 1; others > 0 {
		text += ", with " + wording.Count(others, "task") + " like it"
	}
	if g.Before > 0 {
		text += ", after " + wording.Count(g.Before, "task") + " placed at the same time, whose resources count " +
			"as free here"
	}
	return text
}

// printSuggestions prints the changes that would place the task.
func printSuggestions(sess *session.Session, v *api.Explanation) {
	if len(v.Suggestions) == 0 {
		return
	}
	sess.Printf("")
	what := "it"
	if v.Task == "" {
		what = string(v.Waits)
	}
	if len(v.Suggestions) == 1 {
		sess.Printf("  to place %s:", what)
	} else {
		sess.Printf("  to place %s, any one of these:", what)
	}
	for _, sg := range v.Suggestions {
		for i, line := range output.Wrap(sess.Shorten(wording.OneLine(sg.Text)),
			output.TerminalWidth(sess.Stdout)-len("    - ")) {
			lead := "- "
			if i > 0 {
				lead = "  "
			}
			sess.Printf("    %s%s", lead, line)
		}
	}
}

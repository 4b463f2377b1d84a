package main

import (
	"fmt"

	"github.com/berthd/berth/api"
)

// printPlace prints why a task stands where it does, what came next, and why it is not elsewhere.
func (a *app) printPlace(v *api.PlaceView, pending bool) error {
	if v == nil {
		return nil
	}
	t := table{titles: []string{"", ""}, indent: "  "}
	width := terminalWidth(a.stdout) - len("  because  ")
	add := func(title, text string) {
		for _, line := range wrapped(shortTasks(oneLine(text)), width) {
			t.add(title, line)
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
		add("", a.decided(v))
	}
	for i, o := range v.Others {
		title := ""
		if i == 0 {
			title = "next"
		}
		add(title, o.Node+" is "+o.Text)
	}
	if g.More > 0 {
		add("", fmt.Sprintf("%s more of kinds that take it", count(g.More, "node")))
	}
	for i, text := range v.Refusals {
		if pending { // what it waits for is told above
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
	if len(t.rows) == 0 {
		return nil
	}
	a.say("")
	return a.printTable(t)
}

// decided says when a place was decided, and with how many others; or that nobody remembers.
func (a *app) decided(v *api.PlaceView) string {
	g := &v.DecisionTrace
	if !v.Recorded {
		return "what decided it is no longer kept; this is how it would be decided now, among " + count(g.Nodes, "node")
	}
	text := "decided " + a.age(g.At) + " ago among " + count(g.Nodes, "node")
	if others := g.Like - 1; others > 0 {
		text += ", with " + count(others, "task") + " like it"
	}
	if g.Before > 0 {
		text += ", after " + count(g.Before, "task") + " placed in the same moment, whose room is counted as free here"
	}
	return text
}

// printSuggestions prints what would let a task in.
func (a *app) printSuggestions(v *api.Explanation) {
	if len(v.Suggestions) == 0 {
		return
	}
	a.say("")
	what := "it"
	if v.Task == "" {
		what = shortTask(v.Waits)
	}
	if len(v.Suggestions) == 1 {
		a.say("  to place %s:", what)
	} else {
		a.say("  to place %s, any one of these:", what)
	}
	for _, sg := range v.Suggestions {
		for i, line := range wrapped(shortTasks(oneLine(sg.Text)), terminalWidth(a.stdout)-len("    - ")) {
			lead := "- "
			if i > 0 {
				lead = "  "
			}
			a.say("    %s%s", lead, line)
		}
	}
}

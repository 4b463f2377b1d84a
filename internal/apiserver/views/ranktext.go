package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// rankText describes the parts of a node's rank for people.
type rankText struct{ strategy cluster.Strategy }

// rankTextFor returns the texts for a task. An owner without a strategy gets the default of its kind, which decides how
// the part "fill" is read.
func rankTextFor(p *cluster.Pending) rankText {
	s := p.Placement.Strategy
	switch {
	case s != "":
	case p.Owner.Kind == cluster.KindJob:
		s = cluster.StrategyBinpack
	default:
		s = cluster.StrategySpread
	}
	return rankText{s}
}

// rankLevels returns the kinds of parts by importance. The kinds of one level are added up.
func rankLevels() [][]string {
	return [][]string{
		{"failed"},
		{"avoid"},
		{"affinity", "spread", "relation"},
		{"siblings"},
		{"worth"},
		{"balance"},
		{"images", "fill"},
		{"tasks"},
	}
}

// splitPart returns the kind of a part and its subject.
func splitPart(p cluster.RankPart) (kind, about string) {
	kind, about, _ = strings.Cut(p.Name, " ")
	return kind, about
}

// levelPoints returns the points of a node in some kinds together.
func levelPoints(c *cluster.Candidate, kinds []string) (sum int64) {
	for _, p := range c.Parts {
		kind, _ := splitPart(p)
		for _, k := range kinds {
			if k == kind {
				sum += p.Points
			}
		}
	}
	return sum
}

// partPoints returns the points of one part.
func partPoints(c *cluster.Candidate, name string) int64 {
	for _, p := range c.Parts {
		if p.Name == name {
			return p.Points
		}
	}
	return 0
}

// Units of the points in parts of ranks.
const (
	pointsPerWeight = 1000    // points of a preference with the weight 1
	fillPerPercent  = 30_000  // points of one percent of CPU, memory and disk each
	fullFill        = 3000000 // points of a full node
)

// fullness describes how full a node would be with the task: CPU, memory and disk together.
func (w rankText) fullness(c *cluster.Candidate) string {
	fill := partPoints(c, "fill")
	if w.strategy == cluster.StrategySpread {
		fill = fullFill - fill
	}
	return fmt.Sprintf("%d%% full", fill/fillPerPercent)
}

// describe returns the parts of a node's rank as text, the most important first.
func (w rankText) describe(c *cluster.Candidate) string {
	var all []string
	for _, p := range c.Parts {
		kind, about := splitPart(p)
		switch kind {
		case "failed":
			all = append(all, "attempts of it failed there, and no other node was feasible")
		case "avoid":
			all = append(all, "it has a taint with the effect prefer-no, and no other node was feasible")
		case "affinity":
			all = append(all, w.affinity(about, p.Points))
		case "spread":
			all = append(all, fmt.Sprintf("the spread over %s counts %s for it", about, weightText(p.Points)))
		case "relation":
			all = append(all, fmt.Sprintf("%s counts %s", about, weightText(p.Points)))
		case "siblings":
			all = append(all, fmt.Sprintf("%s of its own kind there", respond.Plural(int(-p.Points), "task")))
		case "images":
			all = append(all, "images are there already")
		}
	}
	if len(c.Parts) > 0 {
		all = append(all, w.fullness(c)+" with it")
	}
	return strings.Join(all, ", ")
}

func (w rankText) affinity(about string, points int64) string {
	if points < 0 {
		return fmt.Sprintf("%s lowers its score (%s)", about, weightText(points))
	}
	return fmt.Sprintf("%s raises its score (%s)", about, weightText(points))
}

// weightText returns points of preferences as weights: "+50", "-12.5".
func weightText(points int64) string {
	text := fmt.Sprintf("%+.1f", float64(points)/pointsPerWeight)
	return strings.TrimSuffix(text, ".0")
}

// compare describes the first level of parts in which the chosen node and another one differ.
func (w rankText) compare(chosen, other *cluster.Candidate) string {
	for _, kinds := range rankLevels() {
		a, b := levelPoints(chosen, kinds), levelPoints(other, kinds)
		if a == b {
			continue
		}
		return w.difference(kinds[0], chosen, other, b > a)
	}
	return "the same score; the name decides"
}

// difference describes the difference of two nodes in a kind of parts.
func (w rankText) difference(kind string, chosen, other *cluster.Candidate, better bool) string {
	side := map[bool]string{true: "better now", false: "worse"}[better]
	switch kind {
	case "failed":
		return side + ": attempts of it failed " + map[bool]string{true: "on " + chosen.Node, false: "there"}[better]
	case "avoid":
		return side + ": " + map[bool]string{true: chosen.Node, false: "it"}[better] + " has a taint to be avoided"
	case "affinity": // all preferences
		return side + ": " + w.preferenceText(chosen, other)
	case "siblings":
		return fmt.Sprintf("%s: %s of its own kind there, %d on %s", side,
			respond.Plural(int(-partPoints(other, "siblings")), "task"), -partPoints(chosen, "siblings"), chosen.Node)
	case "worth":
		return side + ": what is left of its devices would be of " +
			map[bool]string{true: "more", false: "less"}[better] + " use"
	case "balance":
		return side + ": free CPU and memory would be " + map[bool]string{true: "less", false: "further"}[better] +
			" apart"
	case "images":
		if images := partPoints(chosen, "images") - partPoints(other, "images"); images != 0 &&
			partPoints(chosen, "fill") == partPoints(other, "fill") {
			return side + ": " + map[bool]string{true: "more", false: "fewer"}[images < 0] + " of its images are there"
		}
		return fmt.Sprintf("%s: %s with it, %s %s", side, w.fullness(other), chosen.Node, w.fullness(chosen))
	}
	return fmt.Sprintf("%s: %d tasks there, %d on %s", side, tasksOn(other), tasksOn(chosen), chosen.Node)
}

func tasksOn(c *cluster.Candidate) int64 {
	n := partPoints(c, "tasks")
	return max(n, -n)
}

// preferenceText describes the preference in which two nodes differ most.
func (w rankText) preferenceText(chosen, other *cluster.Candidate) string {
	most, name := int64(0), ""
	for _, c := range []*cluster.Candidate{chosen, other} {
		for _, p := range c.Parts {
			kind, _ := splitPart(p)
			by := partPoints(chosen, p.Name) - partPoints(other, p.Name)
			if by = max(by, -by); by > most && (kind == "affinity" || kind == "spread" || kind == "relation") {
				most, name = by, p.Name
			}
		}
	}
	here, there := partPoints(chosen, name), partPoints(other, name)
	kind, about := splitPart(cluster.RankPart{Name: name})
	switch kind {
	case "spread":
		return fmt.Sprintf("%s of its tasks in the same %s",
			map[bool]string{true: "more", false: "fewer"}[here > there], about)
	case "relation":
		return fmt.Sprintf("%s counts %s there, %s on %s", about, weightText(there), weightText(here), chosen.Node)
	}
	return fmt.Sprintf("%s counts %s there, %s on %s", about, weightText(there), cmp.Or(weightText(here), "0"),
		chosen.Node)
}

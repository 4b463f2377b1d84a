package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// placeWords tells parts of ranks to people, for tasks of a strategy.
type placeWords struct{ strategy cluster.Strategy }

// wordsOf returns the words for a task. What fills nodes is told from what spreads by the strategy that is in force
// where the owner names none.
func wordsOf(p *cluster.Pending) placeWords {
	s := p.Placement.Strategy
	switch {
	case s != "":
	case p.Owner.Kind == cluster.KindJob:
		s = cluster.StrategyBinpack
	default:
		s = cluster.StrategySpread
	}
	return placeWords{s}
}

// levels lists the parts of a rank by their importance: what stands in one line decides together.
func levels() [][]string {
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

// part splits the name of a part into its kind and what it is about.
func part(p cluster.RankPart) (kind, about string) {
	kind, about, _ = strings.Cut(p.Name, " ")
	return kind, about
}

// points returns those that a node has of some kinds together.
func points(c *cluster.Candidate, kinds []string) (sum int64) {
	for _, p := range c.Parts {
		kind, _ := part(p)
		for _, k := range kinds {
			if k == kind {
				sum += p.Points
			}
		}
	}
	return sum
}

// of returns the points of one part.
func pointsOf(c *cluster.Candidate, name string) int64 {
	for _, p := range c.Parts {
		if p.Name == name {
			return p.Points
		}
	}
	return 0
}

const (
	point    = 1000    // thousandths of a weight
	fullPart = 30_000  // millionths of three resources, in a percent of all
	allFull  = 3000000 // the millionths of three resources
)

// full says how full a node would be with the task: its CPU, memory and disk taken together.
func (w placeWords) full(c *cluster.Candidate) string {
	fill := pointsOf(c, "fill")
	if w.strategy == cluster.StrategySpread {
		fill = allFull - fill
	}
	return fmt.Sprintf("%d%% full", fill/fullPart)
}

// praise says what speaks for a node, the most important first.
func (w placeWords) praise(c *cluster.Candidate) string {
	var all []string
	for _, p := range c.Parts {
		kind, about := part(p)
		switch kind {
		case "failed":
			all = append(all, "attempts of it failed there, and there was no other node")
		case "avoid":
			all = append(all, "it has a taint to be avoided, and there was no other node")
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
		all = append(all, w.full(c)+" with it")
	}
	return strings.Join(all, ", ")
}

func (w placeWords) affinity(about string, points int64) string {
	if points < 0 {
		return fmt.Sprintf("%s speaks against it (%s)", about, weightText(points))
	}
	return fmt.Sprintf("%s speaks for it (%s)", about, weightText(points))
}

// weightText says points of wishes as weights: "+50", "-12.5".
func weightText(points int64) string {
	text := fmt.Sprintf("%+.1f", float64(points)/point)
	return strings.TrimSuffix(text, ".0")
}

// compare says what decides between the node that was taken and another one: the first line of parts in which they
// differ.
func (w placeWords) compare(taken, other *cluster.Candidate) string {
	for _, kinds := range levels() {
		a, b := points(taken, kinds), points(other, kinds)
		if a == b {
			continue
		}
		return w.difference(kinds[0], taken, other, b > a)
	}
	return "as good; the name decides"
}

// difference says what one kind of parts decides.
func (w placeWords) difference(kind string, taken, other *cluster.Candidate, better bool) string {
	side := map[bool]string{true: "better now", false: "worse"}[better]
	switch kind {
	case "failed":
		return side + ": attempts of it failed " + map[bool]string{true: "on " + taken.Node, false: "there"}[better]
	case "avoid":
		return side + ": " + map[bool]string{true: taken.Node, false: "it"}[better] + " has a taint to be avoided"
	case "affinity": // all wishes
		return side + ": " + w.wishes(taken, other)
	case "siblings":
		return fmt.Sprintf("%s: %s of its own kind there, %d on %s", side,
			respond.Plural(int(-pointsOf(other, "siblings")), "task"), -pointsOf(taken, "siblings"), taken.Node)
	case "worth":
		return side + ": what is left of its devices would be of " +
			map[bool]string{true: "more", false: "less"}[better] + " use"
	case "balance":
		return side + ": free CPU and memory would be " + map[bool]string{true: "less", false: "further"}[better] +
			" apart"
	case "images":
		if images := pointsOf(taken, "images") - pointsOf(other, "images"); images != 0 &&
			pointsOf(taken, "fill") == pointsOf(other, "fill") {
			return side + ": " + map[bool]string{true: "more", false: "fewer"}[images < 0] + " of its images are there"
		}
		return fmt.Sprintf("%s: %s with it, %s %s", side, w.full(other), taken.Node, w.full(taken))
	}
	return fmt.Sprintf("%s: %d tasks there, %d on %s", side, tasksOn(other), tasksOn(taken), taken.Node)
}

func tasksOn(c *cluster.Candidate) int64 {
	n := pointsOf(c, "tasks")
	return max(n, -n)
}

// wishes says in which wish two nodes differ most.
func (w placeWords) wishes(taken, other *cluster.Candidate) string {
	most, name := int64(0), ""
	for _, c := range []*cluster.Candidate{taken, other} {
		for _, p := range c.Parts {
			kind, _ := part(p)
			by := pointsOf(taken, p.Name) - pointsOf(other, p.Name)
			if by = max(by, -by); by > most && (kind == "affinity" || kind == "spread" || kind == "relation") {
				most, name = by, p.Name
			}
		}
	}
	here, there := pointsOf(taken, name), pointsOf(other, name)
	kind, about := part(cluster.RankPart{Name: name})
	switch kind {
	case "spread":
		return fmt.Sprintf("%s of its tasks in the same %s",
			map[bool]string{true: "more", false: "fewer"}[here > there], about)
	case "relation":
		return fmt.Sprintf("%s counts %s there, %s on %s", about, weightText(there), weightText(here), taken.Node)
	}
	return fmt.Sprintf("%s counts %s there, %s on %s", about, weightText(there), cmp.Or(weightText(here), "0"),
		taken.Node)
}

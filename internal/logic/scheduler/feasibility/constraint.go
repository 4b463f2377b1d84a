package feasibility

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Matches reports whether the node meets the constraint. An attribute that the node lacks is "".
//
// node.executor has a value for each executor, and device.<type>.model one for each model. Such an attribute is equal
// to a value, or in a list, if one of its values is. It is not equal, or not in, if none is. node.class is the label
// "class". Comparisons of numbers (<, >) or versions (<=, >=) hold only if both sides are numbers or versions. An
// unknown operator or attribute matches nothing: its meaning cannot be known.
func Matches(c cluster.Constraint, n *fleet.Node) bool {
	if c.Attribute == fleet.AttributeVolume {
		return slices.Contains(n.Volumes, c.Value)
	}
	if lacks, ok := cluster.LacksFolder(c, n.Folders); ok {
		return lacks == ""
	}
	if c.Attribute == "node.executor" {
		return matchesSome(c, n.Executors)
	}
	if kind, count, ok := cluster.DeviceAttribute(c.Attribute); ok && !count {
		return matchesSome(c, n.Models(kind))
	}
	value, known := n.Attribute(c.Attribute)
	return known && matches(c, value)
}

// matchesSome is matches for an attribute with several values.
func matchesSome(c cluster.Constraint, values []string) bool {
	if len(values) == 0 {
		return matches(c, "")
	}
	one := func(v string) bool { return matches(c, v) }
	if c.Op == cluster.OpNotEqual || c.Op == cluster.OpNotIn {
		return !slices.ContainsFunc(values, func(v string) bool { return !one(v) })
	}
	return slices.ContainsFunc(values, one)
}

func matches(c cluster.Constraint, value string) bool {
	switch c.Op {
	case cluster.OpEqual, "":
		return value == c.Value
	case cluster.OpNotEqual:
		return value != c.Value
	case cluster.OpIn:
		return slices.Contains(c.Values, value)
	case cluster.OpNotIn:
		return !slices.Contains(c.Values, value)
	case cluster.OpExists:
		return value != ""
	case cluster.OpLess:
		order, ok := compareNumbers(value, c.Value)
		return ok && order < 0
	case cluster.OpMore:
		order, ok := compareNumbers(value, c.Value)
		return ok && order > 0
	case cluster.OpAtLeast:
		order, ok := compareVersions(value, c.Value)
		return ok && order >= 0
	case cluster.OpAtMost:
		order, ok := compareVersions(value, c.Value)
		return ok && order <= 0
	}
	return false
}

// compareNumbers compares two decimal numbers, as integers if both are; ok is false if either is no number.
func compareNumbers(a, b string) (order int, ok bool) {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y), true
	}
	f, errF := strconv.ParseFloat(a, 64)
	g, errG := strconv.ParseFloat(b, 64)
	if errF != nil || errG != nil || math.IsNaN(f) || math.IsNaN(g) {
		return 0, false
	}
	return cmp.Compare(f, g), true
}

// compareVersions compares the numbers between the dots one by one; missing numbers are 0. It ignores everything from
// the first character that is neither digit nor dot, so "6.1.0-18-amd64" is 6.1.0. ok is false if either does not begin
// with a digit, or with "v" and a digit.
func compareVersions(a, b string) (order int, ok bool) {
	a, okA := versionOf(a)
	b, okB := versionOf(b)
	if !okA || !okB {
		return 0, false
	}
	for a != "" || b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if order := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); order != 0 {
			return order, true
		}
	}
	return 0, true
}

// versionOf returns the leading digits and dots of a version.
func versionOf(s string) (string, bool) {
	s = strings.TrimPrefix(s, "v")
	end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end >= 0 {
		s = s[:end]
	}
	return s, s != "" && s[0] != '.'
}

// NamedValues returns the only values that meet a constraint; few is false if the constraint does not name them.
func NamedValues(c cluster.Constraint) (values []string, few bool) {
	switch c.Op {
	case cluster.OpEqual, "":
		return []string{c.Value}, true
	case cluster.OpIn:
		return c.Values, true
	case cluster.OpNotEqual, cluster.OpNotIn, cluster.OpExists, cluster.OpLess, cluster.OpMore, cluster.OpAtLeast,
		cluster.OpAtMost:
	}
	return nil, false
}

// Text returns a constraint as people write it: "label.zone = b", "node.arch in (amd64, arm64)",
// "label.gpu exists".
func Text(c cluster.Constraint) string {
	if c.Attribute == fleet.AttributeVolume {
		return volumeText(c)
	}
	if text, ok := folderText(c); ok {
		return text
	}
	op := cmp.Or(c.Op, cluster.OpEqual)
	switch op {
	case cluster.OpExists:
		return c.Attribute + " exists"
	case cluster.OpIn, cluster.OpNotIn:
		return c.Attribute + " " + string(op) + " (" + strings.Join(c.Values, ", ") + ")"
	case cluster.OpEqual, cluster.OpNotEqual, cluster.OpLess, cluster.OpMore, cluster.OpAtLeast, cluster.OpAtMost:
	}
	value := c.Value
	if value == "" {
		value = `""`
	}
	return c.Attribute + " " + string(op) + " " + value
}

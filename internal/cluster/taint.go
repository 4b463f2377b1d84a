package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// ParseTaint reads "dedicated=gpu:no-schedule", "dedicated:no-schedule", "dedicated=gpu" or "dedicated". Without an
// effect in the text, Effect is empty. A value that holds ":" needs an effect behind it.
func ParseTaint(s string) (Taint, error) {
	var t Taint
	rest, effect, found := cutLast(s, ":")
	if found {
		t.Effect = TaintEffect(effect)
		if err := t.Effect.known(); err != nil {
			return Taint{}, fmt.Errorf("%q: %w", clip(s), err)
		}
	}
	t.Key, t.Value, found = strings.Cut(rest, "=")
	switch {
	case !validLabelKey(t.Key):
		return Taint{}, fmt.Errorf(
			"%q is not a taint: want key=value:effect, the key of at most %d letters, digits, \"-\", \"_\", "+
				"\".\" and \"/\"", clip(s), MaxName)
	case found && t.Value == "":
		return Taint{}, fmt.Errorf("%q has no value after \"=\": want key=value:effect, or key:effect", clip(s))
	case len(t.Value) > MaxLabel || !printable(t.Value):
		return Taint{}, fmt.Errorf("%q has a value that is longer than %d bytes or not printable text", clip(s),
			MaxLabel)
	}
	return t, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// known returns an error for an unknown effect. For an effect of another system it names the effect of Berth.
func (e TaintEffect) known() error {
	if slices.Contains(e.Values(), e) {
		return nil
	}
	want := "want one of " + strings.Join(texts(e.Values()), ", ")
	switch string(e) { // the words of other systems
	case "NoSchedule":
		return fmt.Errorf("the effect %q is %s in Berth", e, TaintNoSchedule)
	case "PreferNoSchedule":
		return fmt.Errorf("the effect %q is %s in Berth", e, TaintAvoid)
	case "NoExecute":
		return fmt.Errorf("the effect %q is %s in Berth", e, TaintEvict)
	case "":
		return fmt.Errorf("there is no effect after \":\": %s", want)
	}
	return fmt.Errorf("%q is not an effect: %s", clip(string(e)), want)
}

// String returns the taint as ParseTaint reads it: "dedicated=gpu:no-schedule", or without the value if there is none.
func (t Taint) String() string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.effect())
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.effect())
}

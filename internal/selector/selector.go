// Package selector selects objects by their labels. The servers and the command line share the syntax.
package selector

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// requirement is one condition of a selector.
type requirement struct {
	key, value string
	// exists asks for the key with any value.
	exists bool
	// negated inverts the condition. An object without the key then meets it.
	negated bool
}

// Labels selects objects by their labels: an object must meet all requirements. The zero value selects all.
type Labels []requirement

// labelKey matches the key of a label.
var labelKey = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// maxRequirements bounds the conditions of a selector, because each is checked for each object.
const maxRequirements = 64

// Parse parses conditions that are separated by commas: key=value (or key==value), key!=value, key (any value) and !key
// (no such label), at most 64. An object without the key meets key!=value. The error names the first condition that is
// broken and the forms.
func Parse(text string) (Labels, error) {
	if n := strings.Count(text, ",") + 1; n > maxRequirements {
		return nil, fmt.Errorf("a label selector has at most %d conditions, and this one has %d", maxRequirements, n)
	}
	var all Labels
	for part := range strings.SplitSeq(text, ",") {
		r := requirement{key: strings.TrimSpace(part)}
		if key, value, ok := strings.Cut(r.key, "="); ok {
			r.value = strings.TrimSpace(strings.TrimPrefix(value, "="))
			r.key, r.negated = strings.CutSuffix(key, "!")
		} else {
			r.exists = true
			r.key, r.negated = strings.CutPrefix(r.key, "!")
		}
		if r.key = strings.TrimSpace(r.key); !labelKey.MatchString(r.key) {
			return nil, fmt.Errorf("%.100q is not a label selector: want key=value, key!=value, key or !key, "+
				"separated by commas", part)
		}
		all = append(all, r)
	}
	return all, nil
}

// Matches reports whether labels meet all requirements.
func (s Labels) Matches(labels cluster.Labels) bool {
	for _, r := range s {
		value, there := labels[r.key]
		if (there && (r.exists || value == r.value)) == r.negated {
			return false
		}
	}
	return true
}

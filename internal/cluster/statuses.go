package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of the statuses that a check of type http accepts. An answer has a status from 200 on, because those below
// only announce one.
const (
	minStatus = 200
	maxStatus = 599
	// MaxCheckStatuses bounds the list of statuses of a check.
	MaxCheckStatuses = 16
)

// StatusRange is an HTTP status or a range of statuses, both ends included. In JSON it is a number such as 401, or text
// such as "200-299".
type StatusRange struct{ First, Last int }

// ParseStatusRange reads a status such as "401", or a range such as "200-299". It does not check the bounds.
func ParseStatusRange(text string) (StatusRange, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, ok := statusNumber(from)
	last, ok2 := statusNumber(to)
	if !ok || !ok2 {
		return StatusRange{}, fmt.Errorf("%q is not a status or a range of statuses: want numbers such as 401 or "+
			"200-299", clip(text))
	}
	return StatusRange{first, last}, nil
}

// statusNumber reads a status in its only form: three digits.
func statusNumber(text string) (status int, ok bool) {
	status, err := strconv.Atoi(text)
	return status, err == nil && len(text) == 3 && text[0] >= '1'
}

// String returns "401" or "200-299".
func (r StatusRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalJSON writes a number, or text for a range.
func (r StatusRange) MarshalJSON() ([]byte, error) {
	if r.First == r.Last {
		return strconv.AppendInt(nil, int64(r.First), 10), nil
	}
	return json.Marshal(r.String())
}

// UnmarshalJSON reads a number or text.
func (r *StatusRange) UnmarshalJSON(b []byte) error {
	text, err := textOf(b)
	if err != nil {
		return err
	}
	*r, err = ParseStatusRange(text)
	return err
}

// AcceptsStatus reports whether an answer with an HTTP status is a success of the check.
func (c *Check) AcceptsStatus(status int) bool {
	if len(c.Statuses) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.ContainsFunc(c.Statuses, func(r StatusRange) bool { return r.First <= status && status <= r.Last })
}

// validateStatuses checks the accepted statuses of the check.
func (c *Check) validateStatuses(k check) {
	at := k.at("statuses")
	if c.Type != CheckHTTP {
		at.must(len(c.Statuses) == 0, "is for checks of type http only: leave it out")
		return
	}
	at.must(len(c.Statuses) <= MaxCheckStatuses, "holds %d statuses and ranges, at most %d are allowed",
		len(c.Statuses), MaxCheckStatuses)
	statuses := bounded(k.at("statuses"), c.Statuses, maxStatus-minStatus+1, "ranges")
	for i, r := range statuses {
		at := k.index("statuses", i)
		if r.First < minStatus || r.Last > maxStatus {
			at.fault("is %s: want statuses from %d to %d", r, minStatus, maxStatus)
			continue
		}
		if r.First > r.Last {
			at.fault("is %s: want the lower status first", r)
			continue
		}
		for _, earlier := range statuses[:i] {
			if earlier.First <= r.Last && r.First <= earlier.Last {
				at.fault("is %s, which overlaps %s in the same list", r, earlier)
				break
			}
		}
	}
}

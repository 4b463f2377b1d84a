package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Portion is a number of tasks, or a percentage of them: in manifests 2 or "25%".
type Portion struct {
	N       int
	Percent bool
}

// Of returns the portion of a count, rounded up.
func (p Portion) Of(count int) int {
	if !p.Percent {
		return p.N
	}
	return (count*p.N + 99) / 100
}

// String returns "2" or "25%".
func (p Portion) String() string {
	if p.Percent {
		return strconv.Itoa(p.N) + "%"
	}
	return strconv.Itoa(p.N)
}

// ParsePortion reads "2" or "25%".
func ParsePortion(s string) (Portion, error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 {
		return Portion{}, fmt.Errorf(
			"%q is not a number of tasks: want a number such as 2, or a share such as \"25%%\"", clip(s))
	}
	return Portion{n, percent}, nil
}

// MarshalJSON writes a number, or a text with a percent sign.
func (p Portion) MarshalJSON() ([]byte, error) {
	if p.Percent {
		return json.Marshal(p.String())
	}
	return json.Marshal(p.N)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Portion) UnmarshalJSON(b []byte) (err error) {
	var text string
	if json.Unmarshal(b, &text) != nil {
		text = string(b)
	}
	*p, err = ParsePortion(text)
	return err
}

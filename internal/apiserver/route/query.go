package route

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/spelling"
)

// Flag reports whether a query parameter is set: present, and neither "false" nor "0".
func Flag(r *http.Request, name string) bool {
	values, ok := r.URL.Query()[name]
	return ok && values[0] != "false" && values[0] != "0"
}

// Number returns a query parameter that is a number, or the fallback if it is absent.
func Number(r *http.Request, name string, fallback uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, BadQuery(name, "is %q, want a whole number that is not negative", respond.Clip(text))
	}
	return n, nil
}

// Duration returns a query parameter that is a duration, 0 if it is absent.
func Duration(r *http.Request, name string) (time.Duration, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, BadQuery(name, "is %q, want a duration such as \"30s\" or \"5m\"", respond.Clip(text))
	}
	return d, nil
}

// BadQuery returns the problem of a query parameter with a wrong value.
func BadQuery(name, format string, args ...any) *respond.Problem {
	p := respond.Problemf(http.StatusBadRequest, "the query has a fault")
	p.Faults = cluster.Faults{{Path: "?" + name, Message: respond.Problemf(0, format, args...).Detail}}
	return p
}

// kindFault returns why a parameter's text does not have its kind, or "". An empty text is accepted.
func kindFault(kind, text string) string {
	switch {
	case text == "":
	case kind == "boolean":
		if !slices.Contains([]string{"true", "false", "1", "0"}, text) {
			return fmt.Sprintf("is %q, want true or false", respond.Clip(text))
		}
	case kind == "integer":
		// the reader of the parameter checks the range
		if _, err := strconv.ParseInt(text, 10, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
			return fmt.Sprintf("is %q, want a whole number", respond.Clip(text))
		}
	}
	return ""
}

// Check refuses unknown query parameters and invalid path values.
func Check(rt *Route, r *http.Request) error {
	var faults cluster.Faults
	known := map[string]string{} // kinds by name
	for _, p := range rt.Query {
		known[p.Name] = p.Kind
	}
	for name, values := range r.URL.Query() { // order-free: the faults are sorted
		if kind, ok := known[name]; ok {
			if fault := kindFault(kind, values[0]); fault != "" {
				faults = append(faults, cluster.Fault{Path: "?" + name, Message: fault})
			}
			continue
		}
		text := "is not a known parameter"
		if near := spelling.Nearest(name, maps.Keys(known)); near != "" {
			text += "; did you mean " + strconv.Quote(near) + "?"
		}
		faults = append(faults, cluster.Fault{Path: "?" + strictjson.SafeKey(name), Message: text})
	}
	slices.SortFunc(faults, func(a, b cluster.Fault) int { return strings.Compare(a.Path, b.Path) })
	for _, name := range rt.Names() {
		value := r.PathValue(name)
		ok, want := cluster.ValidName(value), "1 to 63 of a-z, 0-9 and \"-\", a letter first, no \"-\" last"
		switch name {
		case "node", "server":
			ok, want = cluster.ValidNodeName(value), "lower-case letters, digits, \"-\" and \".\""
		case "task":
			_, ok = cluster.TaskID(value).Parts()
			want = "CLUSTER.SERVICE.GENERATION.INDEX or CLUSTER.JOB.GENERATION.STEP.INDEX, such as default.web.1.0"
		case "name_or_id":
			_, isTask := cluster.TaskID(value).Parts()
			ok = ok || isTask || cluster.ValidName("k"+value) // a UUID may begin with a digit
			want = "the name of a task, its id such as default.web.1.0, or the UUID of an attempt"
		case "version":
			want = "a number from 1 up"
			n, err := strconv.Atoi(value)
			ok = err == nil && n > 0
		case "key":
			ok = cluster.ValidName("k" + value) // an id may begin with a digit
		case "rebalancing":
			_, err := strconv.ParseUint(value, 10, 64)
			ok, want = err == nil || value == "last", "a number, or last"
		}
		if !ok {
			faults = append(faults, cluster.Fault{
				Path: name,
				Message: strconv.Quote(respond.Clip(value)) + " in the address is not a valid " + name + ": want " +
					want,
			})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	p := respond.Problemf(http.StatusBadRequest, "the address has %s", respond.Plural(len(faults), "fault"))
	p.Faults = faults
	return p
}

// WantsStream reports whether the client requests server-sent events.
func WantsStream(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, _, _ := strings.Cut(part, ";")
		if strings.TrimSpace(media) == "text/event-stream" {
			return true
		}
	}
	return false
}

package draft

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/apiserver/respond"
)

// Precondition is the demand of a request on the present state of the object that it changes.
type Precondition struct {
	match  []uint64 // If-Match; nil demands nothing
	exists bool     // If-Match: *
	Absent bool     // If-None-Match: *
}

// PreconditionOf reads the preconditions of a request from If-Match and If-None-Match.
func PreconditionOf(r *http.Request) (p Precondition, err error) {
	switch v := strings.TrimSpace(r.Header.Get("If-None-Match")); v {
	case "":
	case "*":
		p.Absent = true
	default:
		return p, respond.Problemf(http.StatusBadRequest, "If-None-Match takes only *: the object must not exist")
	}
	header := strings.TrimSpace(r.Header.Get("If-Match"))
	if header == "" {
		return p, nil
	}
	if header == "*" {
		p.exists = true
		return p, nil
	}
	for part := range strings.SplitSeq(header, ",") {
		text, err := strconv.Unquote(strings.TrimSpace(part))
		if err != nil {
			text = strings.TrimSpace(part)
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return p,
				respond.Problemf(http.StatusBadRequest, "If-Match is %s; want an ETag of this server such as \"17\"",
					respond.Clip(part))
		}
		p.match = append(p.match, n)
	}
	return p, nil
}

// Check compares the precondition with an object's revision, 0 for one that does not exist.
func (p Precondition) Check(modified uint64) error {
	switch {
	case p.Absent && modified != 0:
		return respond.Problemf(http.StatusPreconditionFailed,
			"the object exists already, at revision %d: read it, and change it with If-Match", modified)
	case (p.exists || p.match != nil) && modified == 0:
		return respond.Problemf(http.StatusPreconditionFailed,
			"the object does not exist: write it without If-Match to make it")
	case p.match != nil && !slices.Contains(p.match, modified):
		return respond.Problemf(http.StatusPreconditionFailed,
			"the object has changed: it is at revision %d; read it again and retry", modified)
	}
	return nil
}

package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestStatusRanges(t *testing.T) {
	for text, test := range map[string]struct{ first, last int }{
		`401`:       {401, 401},
		`"401"`:     {401, 401},
		`"200-299"`: {200, 299},
	} {
		var r cluster.StatusRange
		if err := json.Unmarshal([]byte(text), &r); err != nil || r.First != test.first || r.Last != test.last {
			t.Errorf("%s is %d to %d (%v), want %d to %d", text, r.First, r.Last, err, test.first, test.last)
		}
		written, err := json.Marshal(r)
		if want := strings.Trim(text, `"`); err != nil || strings.Trim(string(written), `"`) != want {
			t.Errorf("%s is written as %s (%v)", text, written, err)
		}
		var again cluster.StatusRange
		if err := json.Unmarshal(written, &again); err != nil || again != r {
			t.Errorf("%s is read as %v (%v)", written, again, err)
		}
	}
	for _, text := range []string{
		`""`, `"-"`, `"2xx"`, `"200-"`, `"-299"`, `" 200"`, `"+20"`, `"020"`, `20`, `2000`, `200.5`, `-200`, `2e2`,
		`true`, `null`, `[200]`, `"200-299-300"`, `"99999999999999999999"`,
	} {
		var r cluster.StatusRange
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s is read as %v", text, r)
		}
	}
}

func TestStatusesOfChecks(t *testing.T) {
	d := cluster.TaskDefinition{
		Name: "w", Version: 1, Containers: []cluster.Container{{Name: "a", Image: "a"}},
		Ports: []cluster.Port{{Name: "http"}},
	}
	only := func(c cluster.Check) string {
		d := d
		d.Checks = []cluster.Check{c}
		d.SetDefaults()
		if err := d.Validate(); err != nil {
			return err.Error()
		}
		return ""
	}
	many := make([]cluster.StatusRange, cluster.MaxCheckStatuses+1)
	for i := range many {
		many[i] = cluster.StatusRange{First: 400 + i, Last: 400 + i}
	}
	type ranges = []cluster.StatusRange
	for name, test := range map[string]struct {
		kind     cluster.CheckType
		statuses []cluster.StatusRange
		want     string // part of the fault; empty for none
	}{
		"all":           {cluster.CheckHTTP, ranges{{First: 200, Last: 599}}, ""},
		"as many":       {cluster.CheckHTTP, many[1:], ""},
		"too many":      {cluster.CheckHTTP, many, "checks[0].statuses: holds 17 statuses and ranges, at most 16"},
		"announcements": {cluster.CheckHTTP, ranges{{First: 100, Last: 200}}, "want statuses from 200 to 599"},
		"too high":      {cluster.CheckHTTP, ranges{{First: 500, Last: 600}}, "[0]: is 500-600: want"},
		"backwards":     {cluster.CheckHTTP, ranges{{First: 404, Last: 401}}, "want the lower status first"},
		"overlap": {
			cluster.CheckHTTP,
			[]cluster.StatusRange{{First: 401, Last: 401}, {First: 400, Last: 404}},
			"checks[0].statuses[1]: is 400-404, which overlaps 401 in the same list",
		},
		"tcp": {cluster.CheckTCP, ranges{{First: 200, Last: 200}}, "statuses: is for checks of type http only"},
	} {
		got := only(cluster.Check{Type: test.kind, Statuses: test.statuses})
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

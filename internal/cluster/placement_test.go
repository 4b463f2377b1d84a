package cluster_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// wholePlacement uses every field of a placement, and a gang, and has no fault.
const wholePlacement = `{"name": "train", "steps": [{"name": "a", "definition": "w@1", "count": 8, "gang": {"deadline": "10m"}, "placement": {
	"strategy": "whole", "anti_affinity": "require", "pool": "gpu",
	"constraints": [{"attribute": "node.pool", "op": "in", "values": ["gpu", "gpu-big"]}, {"attribute": "device.gpu.count", "op": ">", "value": "3"},
		{"attribute": "device.gpu.model", "value": "A100"}],
	"affinities": [{"attribute": "label.disk", "value": "ssd", "weight": 80}, {"attribute": "label.disk", "value": "hdd", "weight": -100},
		{"attribute": "node.arch", "op": "in", "values": ["amd64"]}],
	"spread": [{"attribute": "label.zone", "weight": 100, "targets": [{"value": "a", "percent": 60}, {"value": "", "percent": 40}]},
		{"attribute": "label.rack", "max_skew": 2}],
	"relations": [{"labels": {"app": "cache"}, "clusters": ["default", "shared"], "attribute": "label.rack", "weight": 20},
		{"labels": {"app": "cache", "noisy": "yes"}, "away": true, "required": true}],
	"distinct": [{"attribute": "node.name"}, {"attribute": "label.power", "most": 2}],
	"tolerations": [{"key": "dedicated", "value": "gpu", "effect": "no-schedule"}, {"key": "old"}, {"effect": "avoid"}, {}]}}]}`

// wholeDevices uses every field of requests for devices, and has no fault.
const wholeDevices = `{"name": "w", "version": 1, "containers": [
	{"name": "warm", "image": "w:1", "init": true, "resources": {"devices": [{"type": "gpu", "share": 250}]}},
	{"name": "main", "image": "w:1", "resources": {"devices": [
		{"models": ["A100", "H100"], "count": 2, "memory": "40GiB"}, {"type": "nic"}, {"share": 500, "memory": "8GiB"}, {"share": 1000}]}}]}`

func TestPlacementsWithoutFaults(t *testing.T) {
	checkFaults(t, parse[cluster.Job](t, wholePlacement).Validate(), nil)
	checkFaults(t, parse[cluster.TaskDefinition](t, wholeDevices).Validate(), nil)
	checkFaults(t, parse[cluster.Job](t,
		`{"name": "j", "steps": [{"name": "a", "definition": "w", "gang": {}}]}`).Validate(), nil)
	serviceFaults(t, `{"mode": "daemon", "count": 0, "placement": {"pool": "gpu", "tolerations": [{}],
		"relations": [{"labels": {"a": "b"}, "away": true, "required": true}]}}`)
}

func TestPlacementFaults(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		name, placement string
		want            []string
	}{
		{"words", `{"strategy": "best", "anti_affinity": "never", "pool": "GPU"}`, []string{
			"strategy: want one of binpack, spread, whole", "anti_affinity: want one of none", "pool: is not a name",
		}},
		{"attributes", `{"constraints": [{"attribute": "node.pools"}, {"attribute": "device.gpu.size"}, {"attribute": "device.GPU.count"},
			{"attribute": "device.gpu.model.count"}, {"attribute": "device..count"}, {"attribute": "device.count"}, {"attribute": ".count"}]}`, []string{
			"constraints[0].attribute: node.class, node.pool, \"device.<type>.model\"",
			"constraints[1].attribute: is not known",
			"constraints[2].attribute: is not known", "constraints[3].attribute: is not known",
			"constraints[4].attribute: is not known",
			"constraints[5].attribute: is not known", "constraints[6].attribute: is not known",
		}},
		{"affinities", `{"affinities": [{"attribute": "label.a", "value": "b", "weight": 101}, {"attribute": "label.a", "value": "b", "op": "=", "weight": -101},
			{"attribute": "node.colour", "op": "in", "values": ["a"]}, {"attribute": "label.a", "op": "in"}, {"attribute": "label.a", "op": "<", "value": "x"}]}`, []string{
			"affinities[0].weight: is 101, want a number from -100 to 100, and not 0", "affinities[1].weight: is -101",
			`affinities[1]: says "label.a = b", as affinities[0] does: keep one of them`,
			"affinities[2].attribute: is not known", "affinities[3].values: is empty",
			`affinities[4].value: "x" is not a number`,
		}},
		{"spread", `{"spread": [{"attribute": "node.executor", "weight": -1}, {"attribute": "label.a", "weight": 101, "max_skew": -1},
			{"attribute": "label.a"}, {"attribute": "device.gpu.model"}, {"attribute": "device.gpu.count"}, {"attribute": ""}]}`, []string{
			"spread[0].attribute: may have several values on a node",
			"spread[0].weight: is -1, want a number from 1 to 100",
			"spread[1].weight: is 101", "spread[1].max_skew: is -1, want a number from 0",
			`spread[2].attribute: "label.a" is already the attribute of spread[1]`,
			"spread[3].attribute: may have several values",
			"spread[5].attribute: is missing",
		}},
		{"targets", `{"spread": [{"attribute": "label.a", "max_skew": 1, "targets": [{"value": "a", "percent": 60}, {"value": "a", "percent": 41},
			{"value": "` + long + `", "percent": -1}, {"value": "c", "percent": 101}]}]}`, []string{
			"spread[0].max_skew: cannot be combined with targets",
			`spread[0].targets[1].value: "a" is already the value of targets[0]`,
			"spread[0].targets[2].value: is longer than 256 bytes",
			"spread[0].targets[2].percent: is -1, want a number from 0 to 100",
			"spread[0].targets[3].percent: is 101", "spread[0].targets: are 201 percent together",
		}},
		{"relations", `{"relations": [{"labels": {}, "weight": 101}, {"labels": {"a b": "c"}, "clusters": ["Ci", "ci", "ci"], "attribute": "node.executor"},
			{"labels": {"a": "b"}, "required": true, "weight": 5, "attribute": "label."}, {"labels": {"x": "y"}, "weight": -1}]}`, []string{
			"relations[0].labels: is empty", "relations[0].weight: is 101, want a number from 1 to 100",
			`relations[1].labels["a b"]: is not a label key`, `relations[1].clusters[0]: is not a name`,
			`relations[1].clusters[2]: "ci" is repeated`,
			"relations[1].attribute: may have several values", "relations[2].attribute: does not name a label",
			"relations[2].weight: is 5, but a required relation has no weight", "relations[3].weight: is -1",
		}},
		{"relations that say the same, or the opposite", `{"relations": [{"labels": {"a": "b"}, "clusters": ["x", "y"]}, {"labels": {"a": "b"}, "clusters": ["y", "x"], "attribute": "node.name"},
			{"labels": {"a": "b"}}, {"labels": {"a": "b"}, "away": true, "required": true}, {"labels": {"a": "b"}, "attribute": "label.rack", "away": true}]}`, []string{
			"relations[1]: has the same labels as relations[0]", "relations[3]: contradicts relations[2]",
		}},
		{"distinct", `{"distinct": [{"attribute": "node.name", "most": -1}, {"attribute": "node.name", "most": 2}, {"attribute": "node.rack"}]}`, []string{
			"distinct[0].most: is -1, want a number from 1",
			`distinct[1].attribute: "node.name" is already the attribute of distinct[0]`,
			"distinct[2].attribute: is not known",
		}},
		{"tolerations", `{"tolerations": [{"key": "a b"}, {"value": "x"}, {"key": "a", "value": "` + long +
			`"}, {"effect": "NoSchedule"}, {"key": "c"}, {"key": "c"}]}`, []string{
			`tolerations[0].key: "a b" is not a key`, `tolerations[1].value: is "x" without a key`,
			"tolerations[2].value: is longer than",
			"tolerations[3].effect: want one of no-schedule, avoid, evict",
			"tolerations[5]: is the same as tolerations[4]",
		}},
		{"too many", `{"affinities": [` + many(`{"attribute": "label.a", "value": "%d"}`, 65) + `], "spread": [` + many(`{"attribute": "label.a%d"}`, 17) + `],
			"relations": [` + many(`{"labels": {"a": "%d"}}`, 17) + `], "distinct": [` + many(`{"attribute": "label.a%d"}`, 17) + `], "tolerations": [` + many(`{"key": "a%d"}`, 65) + `]}`, []string{
			"affinities: holds 65 affinities", "spread: holds 17 spreads", "relations: holds 17 relations",
			"distinct: holds 17", "tolerations: holds 65",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.want {
				tt.want[i] = "placement." + tt.want[i]
			}
			serviceFaults(t, `{"placement": `+tt.placement+`}`, tt.want...)
		})
	}
	serviceFaults(t, `{"mode": "daemon", "count": 0, "placement": {"affinities": [{"attribute": "label.a", "value": "b"}], "spread": [{"attribute": "label.a"}],
		"distinct": [{"attribute": "label.a"}], "relations": [{"labels": {"a": "b"}}]}}`,
		"placement.affinities: is not for a daemon", "placement.spread: is not for a daemon",
		"placement.distinct: is not for a daemon",
		"placement.relations[0]: is a preference, and the tasks of a daemon have no choice")
	checkFaults(t, parse[cluster.Job](t,
		`{"name": "j", "steps": [{"name": "a", "definition": "w", "gang": {"deadline": "10ms"}, "placement": {"pool": "a/b"}}]}`).Validate(), []string{
		"steps[0].placement.pool: is not a name", "steps[0].gang.deadline: want a duration from 1s",
	})
	checkFaults(t, parse[cluster.Job](t,
		`{"name": "j", "steps": [{"name": "a", "definition": "w", "count": 1001, "gang": {}}]}`).Validate(), []string{
		"steps[0].gang: is of 1001 tasks, at most 1000 can be placed together",
	})
	serviceFaults(t, `{"on_violation": "stop", "placement": {"tolerations": [{"key": "a", "for": "1m"}, {"key": "b", "effect": "no-schedule", "for": "1m"}, {"key": "c", "effect": "evict", "for": "1ms"}]}}`,
		"placement.tolerations[0].for: delays an eviction: want effect evict",
		"placement.tolerations[1].for: delays an eviction", "placement.tolerations[2].for: want a duration from 1s",
		"on_violation: want one of keep, move")
	serviceFaults(t, `{"mode": "daemon", "count": 0, "on_violation": "move", "placement": {"tolerations": [{"key": "a", "effect": "evict", "for": "1m"}]}}`,
		"placement.tolerations[0].for: is not for a daemon", "on_violation: is not for a daemon")
	checkFaults(t, parse[cluster.Cluster](t, `{"name": "c", "preemption": "always"}`).Validate(),
		[]string{"preemption: want one of lower, never"})
}

// The taint that is the first to evict counts, and of several tolerations for one the longest.
func TestEvicts(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	taint := func(key string, effect cluster.TaintEffect, since time.Duration) cluster.Taint {
		return cluster.Taint{Key: key, Effect: effect, Since: at.Add(since)}
	}
	stays := func(key string, d time.Duration) cluster.Toleration {
		return cluster.Toleration{Key: key, Effect: cluster.TaintEvict, For: cluster.Duration(d)}
	}
	for _, tt := range []struct {
		name        string
		taints      []cluster.Taint
		tolerations []cluster.Toleration
		by          string
		until       time.Duration
	}{
		{"none", nil, nil, "", 0},
		{"others do not evict", []cluster.Taint{
			taint("a", cluster.TaintNoSchedule, 0),
			taint("b", cluster.TaintAvoid, 0),
		}, nil, "", 0},
		{
			"at once",
			[]cluster.Taint{taint("a", cluster.TaintEvict, 0)},
			[]cluster.Toleration{stays("b", time.Hour)},
			"a", 0,
		},
		{
			"tolerated",
			[]cluster.Taint{taint("a", cluster.TaintEvict, 0)},
			[]cluster.Toleration{stays("a", time.Minute), {Key: "a"}},
			"", 0,
		},
		{
			"for the longest",
			[]cluster.Taint{taint("a", cluster.TaintEvict, 0)},
			[]cluster.Toleration{stays("a", time.Minute), stays("", time.Hour)},
			"a", time.Hour,
		},
		{
			"the first of two",
			[]cluster.Taint{taint("a", cluster.TaintEvict, 0), taint("b", cluster.TaintEvict, -time.Hour)},
			[]cluster.Toleration{stays("a", time.Minute), stays("b", 30*time.Minute)},
			"b", -30 * time.Minute,
		},
	} {
		p := cluster.Placement{Tolerations: tt.tolerations}
		by, until, ok := p.Evicts(tt.taints)
		if ok != (tt.by != "") || by.Key != tt.by || ok && !until.Equal(at.Add(tt.until)) {
			t.Errorf("%s: %v, by %q at %v, want %q at %v", tt.name, ok, by.Key, until, tt.by, at.Add(tt.until))
		}
	}
	if stays("a", time.Minute).Tolerates(taint("a", cluster.TaintEvict, 0)) {
		t.Error("a toleration that lets a task stay for a while lets new ones come")
	}
}

// many joins n copies of a text, each with its number.
func many(format string, n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(parts, ", ")
}

func TestDeviceFaults(t *testing.T) {
	for _, tt := range []struct {
		name, devices string
		want          []string
	}{
		{"words", `[{"type": "GPU", "models": ["", "a", "a"]}]`, []string{
			"[0].type: is not a name", "[0].models[0]: is empty: write a model, or leave models out",
			`[0].models[2]: "a" is repeated`,
		}},
		{"numbers", `[{"count": -1, "memory": 40}, {"count": 1025, "share": -1}, {"share": 1001}, {"share": 500, "count": 2}]`, []string{
			"[0].count: is -1, want a number from 1 to 1024", "[0].memory: is 40 B, want from 1 MiB",
			"[1].count: is 1025", "[1].share: is -1, want a number of thousandths",
			"[2].share: is 1001", "[3].share: is a part of one device, and count is 2",
		}},
		{"twice", `[{"models": ["a"]}, {"type": "gpu", "models": ["a"], "count": 2}, {"models": ["b"]}, {"models": ["a"], "memory": "1GiB"}, {"share": 5}, {"share": 5}]`, []string{
			"[1]: requests the same as devices[0]: raise its count",
		}},
		{"many", `[` + many(`{"models": ["%d"]}`, 17) + `]`, []string{": holds 17 requests, at most 16"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.want {
				tt.want[i] = "containers[0].resources.devices" + tt.want[i]
			}
			checkFaults(t, parse[cluster.TaskDefinition](t,
				`{"name": "w", "version": 1, "containers": [{"name": "a", "image": "a", "resources": {"devices": `+tt.devices+`}}]}`).Validate(), tt.want)
		})
	}
	checkFaults(t, parse[cluster.TaskDefinition](t, `{"name": "w", "version": 1, "containers": [{"name": "a", "image": "a", "resources": {"devices": [{"count": 1000}]}},
		{"name": "b", "image": "a", "resources": {"devices": [{"count": 24, "type": "nic"}, {}, {"share": 500}]}}]}`).Validate(), []string{
		"containers: request 1025 devices together, at most 1024 are allowed",
	})
}

func TestHostAndFactFaults(t *testing.T) {
	checkFaults(t, parse[cluster.Host](t,
		`{"name": "n1", "pool": "gpu", "taints": [{"key": "a", "value": "b"}, {"key": "a", "effect": "evict"}, {"key": "example.com/a"}]}`).Validate(), nil)
	checkFaults(t, parse[cluster.Host](t,
		`{"name": "n1", "pool": "a b", "taints": [{"key": ""}, {"key": "a"}, {"key": "a", "value": "\n"}, {"key": "a", "effect": "NoExecute"}]}`).Validate(), []string{
		`taints[0].key: "" is not a key`, "taints[2].value: is longer than",
		"taints[2]: has the key and the effect of taints[1]",
		"taints[3].effect: want one of no-schedule, avoid, evict", `pool: "a b" is not a name`,
	})
	var many cluster.Host
	for i := range 65 {
		many.Taints = append(many.Taints, cluster.Taint{Key: fmt.Sprint("k", i)})
	}
	many.Name = "n1"
	checkFaults(t, many.Validate(), []string{"taints: holds 65 taints"})
	checkFaults(t, parse[cluster.Facts](t,
		`{"devices": [{"id": "GPU-1", "type": "gpu", "model": "A100", "memory": "80GiB", "numa": -1}, {"id": "GPU-2", "type": "gpu", "numa": 1}]}`).Validate(), nil)
	checkFaults(t, parse[cluster.Facts](t,
		`{"devices": [{"id": "", "type": "gpu", "numa": 0}, {"id": "b", "type": "", "numa": -2}, {"id": "b", "type": "gpu", "model": "\n", "memory": -1, "numa": 5000}]}`).Validate(), []string{
		`devices[0].id: "" is not an id`, `devices[1].type: "" is not a name`,
		"devices[1].numa: is -2, want a number from 0",
		`devices[2].id: "b" is already the id of devices[1]`, "devices[2].model: is longer",
		"devices[2].memory: is -1 B", "devices[2].numa: is 5000",
	})
}

func TestPlacementDefaults(t *testing.T) {
	s := parse[cluster.Service](t, `{"name": "web", "definition": "w@1", "count": 1, "placement": {
		"affinities": [{"attribute": "label.a", "value": "b"}], "spread": [{"attribute": "label.a"}], "distinct": [{"attribute": "label.a"}],
		"relations": [{"labels": {"a": "b"}}, {"labels": {"a": "c"}, "required": true}]}}`)
	s.SetDefaults()
	want := cluster.Placement{
		AntiAffinity: cluster.AntiAffinityPrefer,
		Affinities: []cluster.Affinity{
			{
				Constraint: cluster.Constraint{Attribute: "label.a", Op: cluster.OpEqual, Value: "b"},
				Weight:     cluster.DefaultWeight,
			},
		},
		Spread:   []cluster.Spread{{Attribute: "label.a", Weight: cluster.DefaultWeight}},
		Distinct: []cluster.Distinct{{Attribute: "label.a", Most: 1}},
		Relations: []cluster.Relation{
			{Labels: cluster.Labels{"a": "b"}, Attribute: "node.name", Weight: cluster.DefaultWeight},
			{Labels: cluster.Labels{"a": "c"}, Attribute: "node.name", Required: true},
		},
	}
	if diff := cmp.Diff(want, s.Placement); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h := cluster.Host{Name: "n1", Taints: []cluster.Taint{{Key: "a"}}}
	_ = h.Validate()
	if h.Taints[0].Effect != "" {
		t.Error("Validate changed the settings")
	}
	h.SetDefaults()
	if h.Taints[0].Effect != cluster.TaintNoSchedule {
		t.Errorf("the effect is %q", h.Taints[0].Effect)
	}
}

// TestValidateLeavesPlacementsAlone: validation checks a value with its defaults, but does not fill them in.
func TestValidateLeavesPlacementsAlone(t *testing.T) {
	const list = `{"affinities": [{"attribute": "label.a"}], "spread": [{"attribute": "label.a"}], "distinct": [{"attribute": "label.a"}], "relations": [{"labels": {"a": "b"}}],
		"constraints": [{"attribute": "label.a"}]}`
	for text, v := range map[string]func(string) (validated, validated){
		`{"name": "w", "definition": "w@1", "placement": ` + list +
			`}`: both[cluster.Service](t),
		`{"name": "w", "steps": [{"name": "a", "definition": "w@1", "placement": ` + list +
			`}]}`: both[cluster.Job](t),
		`{"name": "w", "job": {"steps": [{"name": "a", "placement": ` + list +
			`}]}}`: both[cluster.Cron](t),
		`{"name": "w", "containers": [{"name": "a", "resources": {"devices": [{}, {"share": 1}]}}]}`: both[cluster.TaskDefinition](t),
	} {
		got, want := v(text)
		_ = got.Validate()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

type validated interface{ Validate() error }

// both reads a text twice.
func both[T any, P interface {
	*T
	validated
}](t *testing.T) func(string) (validated, validated) {
	return func(text string) (validated, validated) { return P(parse[T](t, text)), P(parse[T](t, text)) }
}

func TestTaints(t *testing.T) {
	for _, tt := range []struct {
		taint, toleration string
		want              bool
	}{
		{`{"key": "a", "value": "b"}`, `{}`, true},
		{`{"key": "a", "value": "b"}`, `{"key": "a"}`, true},
		{`{"key": "a", "value": "b"}`, `{"key": "a", "value": "b", "effect": "no-schedule"}`, true},
		{`{"key": "a", "value": "b"}`, `{"key": "a", "value": "c"}`, false},
		{`{"key": "a"}`, `{"key": "a", "value": "c"}`, false},
		{`{"key": "a"}`, `{"key": "b"}`, false},
		{`{"key": "a", "effect": "evict"}`, `{"key": "a", "effect": "no-schedule"}`, false},
		{`{"key": "a", "effect": "evict"}`, `{"effect": "evict"}`, true},
	} {
		if got := parse[cluster.Toleration](t,
			tt.toleration).Tolerates(*parse[cluster.Taint](t, tt.taint)); got != tt.want {
			t.Errorf("%s tolerates %s: %v", tt.toleration, tt.taint, got)
		}
	}
	for want, taint := range map[string]cluster.Taint{
		"a:no-schedule": {Key: "a"},
		"a=b:evict":     {Key: "a", Value: "b", Effect: cluster.TaintEvict},
	} {
		if got := taint.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseTaint(t *testing.T) {
	for text, want := range map[string]cluster.Taint{
		"a":                      {Key: "a"},
		"a:evict":                {Key: "a", Effect: cluster.TaintEvict},
		"example.com/a=b c":      {Key: "example.com/a", Value: "b c"},
		"a=b=c:avoid":            {Key: "a", Value: "b=c", Effect: cluster.TaintAvoid},
		"a=http://b:no-schedule": {Key: "a", Value: "http://b", Effect: cluster.TaintNoSchedule},
	} {
		if got, err := cluster.ParseTaint(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "is not a taint", "=b": "is not a taint", "a b": "is not a taint", ":evict": "is not a taint",
		"a=": "has no value", "a=:evict": "has no value",
		"a:": "there is no effect", "a=b:c": `"c" is not an effect`, "a=http://b": `"//b" is not an effect`,
		"a:NoSchedule":         "is no-schedule in Berth",
		"a=b:PreferNoSchedule": "is avoid in Berth", "a:NoExecute": "is evict in Berth", "a=\n": "not printable",
	} {
		if got, err := cluster.ParseTaint(text); err == nil || !strings.Contains(err.Error(), want) ||
			got != (cluster.Taint{}) {
			t.Errorf("%q: got %+v, %v, want %s", text, got, err, want)
		}
	}
}

// FuzzTaint: a parsed taint is valid for a node, and its text parses to the same taint.
func FuzzTaint(f *testing.F) {
	for _, s := range []string{"a", "a=b:evict", "a=:avoid", "a:b:avoid", "a=b:c:avoid", "=", ":", "a=\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		taint, err := cluster.ParseTaint(s)
		if err != nil {
			return
		}
		h := cluster.Host{Name: "n1", Taints: []cluster.Taint{taint}}
		if err := h.Validate(); err != nil {
			t.Errorf("%q is read as %+v: %v", s, taint, err)
		}
		h.SetDefaults()
		if again, err := cluster.ParseTaint(taint.String()); err != nil || again != h.Taints[0] {
			t.Errorf("%q is read as %+v, and that as %+v, %v", s, taint, again, err)
		}
	})
}

func TestDevicesOfADefinition(t *testing.T) {
	for _, tt := range []struct{ name, containers, want string }{
		{"none", `[{"name": "a"}]`, `null`},
		{"defaults", `[{"resources": {"devices": [{}]}}]`, `[{"type": "gpu", "count": 1}]`},
		{
			"the sum", `[{"resources": {"devices": [{"count": 2}, {"type": "nic"}]}}, {"resources": {"devices": [{"type": "gpu"}, {"models": ["A100"]}]}}]`,
			`[{"type": "gpu", "count": 3}, {"type": "nic", "count": 1}, {"type": "gpu", "models": ["A100"], "count": 1}]`,
		},
		{
			"shares alone", `[{"resources": {"devices": [{"share": 300}, {"share": 500, "memory": "1GiB"}, {"memory": "2GiB"}]}}, {"resources": {"devices": [{}, {"share": 300}]}}]`,
			`[{"type": "gpu", "count": 1, "memory": "2GiB"}, {"type": "gpu", "count": 1}, {"type": "gpu", "count": 1, "share": 500, "memory": "1GiB"},
			  {"type": "gpu", "count": 1, "share": 300}, {"type": "gpu", "count": 1, "share": 300}]`,
		},
		{
			"an init container that requests less",
			`[{"init": true, "resources": {"devices": [{"share": 300, "memory": "1GiB"}]}}, {"resources": {"devices": [{}]}}]`,
			`[{"type": "gpu", "count": 1, "memory": "1GiB"}]`,
		},
		{"an init container that requests more", `[{"init": true, "resources": {"devices": [{"count": 2}]}}, {"init": true, "resources": {"devices": [{"type": "nic"}, {"share": 10}]}},
			{"resources": {"devices": [{"share": 700}]}}]`, `[{"type": "gpu", "count": 2}, {"type": "nic", "count": 1}]`},
		{
			"the larger share", `[{"init": true, "resources": {"devices": [{"share": 300, "memory": "2GiB"}]}}, {"resources": {"devices": [{"share": 700, "memory": "1GiB"}]}}]`,
			`[{"type": "gpu", "count": 1, "share": 700, "memory": "2GiB"}]`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := parse[cluster.TaskDefinition](t, `{"containers": `+tt.containers+`}`)
			want := *parse[[]cluster.DeviceRequest](t, tt.want)
			if diff := cmp.Diff(want, d.Devices()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			d.SetDefaults()
			if diff := cmp.Diff(want, d.Devices()); diff != "" {
				t.Errorf("with defaults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDevicesCoverAllContainers: the devices of a task suffice for its long-running containers together, and for each
// init container alone. Each requested device has a device of its kind to itself that is not smaller.
func TestDevicesCoverAllContainers(t *testing.T) {
	request := rapid.Custom(func(t *rapid.T) cluster.DeviceRequest {
		r := cluster.DeviceRequest{
			Type:   rapid.SampledFrom([]string{"gpu", "nic"}).Draw(t, "type"),
			Memory: cluster.Bytes(rapid.IntRange(0, 3).Draw(t, "memory")) * cluster.GiB,
			Count:  1, Share: rapid.SampledFrom([]int{0, 0, 100, 500, 1000}).Draw(t, "share"),
		}
		if r.Share == 0 {
			r.Count = rapid.IntRange(1, 3).Draw(t, "count")
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		d := cluster.TaskDefinition{Containers: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) cluster.Container {
			return cluster.Container{
				Init:      rapid.Bool().Draw(t, "init"),
				Resources: cluster.Resources{Devices: rapid.SliceOfN(request, 0, 3).Draw(t, "devices")},
			}
		}), 1, 4).Draw(t, "containers")}
		var together []cluster.DeviceRequest
		held := units(d.Devices())
		for _, c := range d.Containers {
			if !c.Init {
				together = append(together, c.Resources.Devices...)
			} else if missing := uncovered(c.Resources.Devices, held); missing != nil {
				t.Fatalf("%v has nothing for %v of an init container", held, missing)
			}
		}
		if missing := uncovered(together, held); missing != nil {
			t.Fatalf("%v has nothing for %v", held, missing)
		}
		if whole, want := len(held), len(units(together)); whole < want {
			t.Fatalf("%d devices for %d", whole, want)
		}
	})
}

// units lists single devices, the most demanding first, so the first that remains is the best match for each.
func units(requests []cluster.DeviceRequest) (all []cluster.DeviceRequest) {
	for _, r := range requests {
		n := r.Count
		for r.Count = 1; n > 0; n-- {
			all = append(all, r)
		}
	}
	return all
}

// uncovered tries all ways and returns a requested device that gets none of the held devices, or nil.
func uncovered(requests, held []cluster.DeviceRequest) *cluster.DeviceRequest {
	asked := units(requests)
	owner := make([]int, len(held)) // 1 + the index of the requested device that has it
	var give func(i int, seen []bool) bool
	give = func(i int, seen []bool) bool {
		for k, h := range held {
			fits := h.Type == asked[i].Type && h.Memory >= asked[i].Memory &&
				(h.Share == 0 || asked[i].Share != 0 && h.Share >= asked[i].Share)
			if !fits || seen[k] {
				continue
			}
			seen[k] = true
			if owner[k] == 0 || give(owner[k]-1, seen) {
				owner[k] = i + 1
				return true
			}
		}
		return false
	}
	for i := range asked {
		if !give(i, make([]bool, len(held))) {
			return &asked[i]
		}
	}
	return nil
}

// TestPlanRecordHasDevices: the devices of a task pass from the plan to the record of its attempt.
func TestPlanRecordHasDevices(t *testing.T) {
	use := []cluster.DeviceUse{{ID: "GPU-1", Share: 500, Memory: cluster.GiB}}
	p := cluster.PlanRecord{Owners: []cluster.PlanOwner{{Tasks: []cluster.Placed{{Devices: use}}}}}
	if got := p.Desired(&p.Owners[0], &p.Owners[0].Tasks[0]).Devices; !slices.Equal(got, use) {
		t.Errorf("got %v, want %v", got, use)
	}
}

// TestRecordsOmitUnusedFields: an optional field that is not used takes no space in a record.
func TestRecordsOmitUnusedFields(t *testing.T) {
	service := cluster.Service{Name: "web", Count: 1}
	service.SetDefaults()
	for want, record := range map[string]any{
		`{"i":1,"n":1,"u":"u","h":"n1"}`: cluster.Placed{
			Index: 1, Attempt: 1, UUID: "u",
			Node: "n1",
		},
		`{"anti_affinity":"prefer"}`:  service.Placement,
		`{"cpu":"1000m"}`:             cluster.Resources{CPU: 1000},
		`{"name":"n1","cordon":true}`: cluster.Host{Name: "n1", Cordon: true},
		`{"name":"a","definition":"w@1","count":2}`: cluster.Step{
			Name:       "a",
			Definition: cluster.Ref{Name: "w", Version: 1}, Count: 2,
		},
		`{"attribute":"label.a","op":"=","value":"b"}`: cluster.Constraint{
			Attribute: "label.a",
			Op:        cluster.OpEqual, Value: "b",
		},
		`{"i":1,"n":1,"u":"u","h":"n1","d":[{"id":"x","share":5}]}`: cluster.Placed{
			Index: 1, Attempt: 1, UUID: "u",
			Node: "n1", Devices: []cluster.DeviceUse{{ID: "x", Share: 5}},
		},
	} {
		if got, err := json.Marshal(record); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	for _, record := range []any{cluster.Desired{}, cluster.Observed{}, cluster.Facts{}} {
		if got, err := json.Marshal(record); err != nil || strings.Contains(string(got), "devices") {
			t.Errorf("%T without devices: %s, %v", record, got, err)
		}
	}
}

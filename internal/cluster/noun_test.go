package cluster_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "web-1": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-a": false, "a-": false, "1a": false, "A": false, "a.b": false,
		"a/b": false,
		"a@b": false, "ä": false, "a b": false, "a\x00": false,
	} {
		if got := cluster.ValidName(name); got != want {
			t.Errorf("ValidName(%q) = %v", name, got)
		}
	}
	for name, want := range map[string]bool{
		"n1": true, "1n": true, "n1.example": true, strings.Repeat("a", 63) + ".b": true, "10.0.0.1": true,
		"": false, ".": false, "a.": false, "-a": false, "a-.b": false, "N1": false, "a/b": false, "a b": false,
		strings.Repeat("a", 64): false, strings.Repeat("a.", 126) + "ab": false, strings.Repeat("a", 62) + "/": false,
	} {
		if got := cluster.ValidNodeName(name); got != want {
			t.Errorf("ValidNodeName(%q) = %v", name, got)
		}
	}
}

func TestTaskIDs(t *testing.T) {
	id := cluster.JobTask("ci", "build", 3, "test", 7)
	want := cluster.TaskParts{Cluster: "ci", Owner: "build", Generation: 3, Step: "test", Index: 7}
	if got, ok := id.Parts(); !ok || got != want {
		t.Errorf("%s: %+v, %v", id, got, ok)
	}
	for _, bad := range []cluster.TaskID{
		"", "a", "a.b.1", "a.b.1.s.2.3", "a.b.x.1", "a.b.1.-1", "a.b.01.1", "a.b.1.01", "a.b.+1.1", "A.b.1.1",
		"a.b.1.S.1", "a..1.1",
	} {
		if p, ok := bad.Parts(); ok {
			t.Errorf("%q is read as %+v", bad, p)
		}
	}
}

// FuzzTaskID: an id that can be taken apart has one reading.
func FuzzTaskID(f *testing.F) {
	f.Add("default.web.1.0")
	f.Add("ci.build.3.test.7")
	f.Add("a.b.18446744073709551615.9")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := cluster.TaskID(s).Parts()
		if !ok {
			return
		}
		again := cluster.ServiceTask(p.Cluster, p.Owner, p.Generation, p.Index)
		if p.Step != "" {
			again = cluster.JobTask(p.Cluster, p.Owner, p.Generation, p.Step, p.Index)
		}
		if string(again) != s {
			t.Errorf("%q is taken apart and made again as %q", s, again)
		}
	})
}

func TestRefs(t *testing.T) {
	for text, want := range map[string]cluster.Ref{"web": {Name: "web"}, "web@3": {Name: "web", Version: 3}} {
		got, err := cluster.ParseRef(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "@1", "web@", "web@0", "web@-1", "web@x", "we b@1", "web@1@2"} {
		if got, err := cluster.ParseRef(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

func TestQuantities(t *testing.T) {
	for text, want := range map[string]cluster.MilliCPU{
		`"500m"`: 500, `"0.5"`: 500, `0.5`: 500, `2`: 2000, `"2"`: 2000,
		`"0.0004"`: 0,
	} {
		var got cluster.MilliCPU
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("CPU %s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]cluster.Bytes{
		`512`: 512, `"512"`: 512, `"1KiB"`: 1024, `"1.5GiB"`: 3 << 29, `"10GB"`: 1e10, `"1 MiB"`: 1 << 20,
		`"1Mi"`: 1 << 20, `"7B"`: 7, `"64K"`: 64e3, `"64k"`: 64e3, `"64M"`: 64e6, `"1.5G"`: 15e8, `"2T"`: 2e12,
		`"2Ki"`: 2048, `"2Gi"`: 2 << 30, `"2Ti"`: 2 << 40, `"64GB"`: 64e9,
	} {
		var got cluster.Bytes
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("size %s: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{
		`"x"`, `"NaN"`, `"Inf"`, `"1e300"`, `null`, `{}`, `"9223372036854775807TiB"`, `""`,
		`true`, `"M"`, `"64MM"`, `"64iB"`,
	} {
		var cpu cluster.MilliCPU
		var size cluster.Bytes
		if err := json.Unmarshal([]byte(bad), &cpu); err == nil && bad != "null" {
			t.Errorf("CPU %s is read as %d", bad, cpu)
		}
		if err := json.Unmarshal([]byte(bad), &size); err == nil && bad != "null" {
			t.Errorf("size %s is read as %d", bad, size)
		}
	}
	for size, want := range map[cluster.Bytes]string{
		0: "0 B", 1023: "1023 B", cluster.MiB: "1 MiB", 200 * cluster.MiB: "200 MiB", 3 * cluster.GiB / 2: "1.5 GiB",
		-cluster.KiB: "-1 KiB",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d bytes are written %q, want %q", int64(size), got, want)
		}
	}
}

func TestDurations(t *testing.T) {
	var d cluster.Duration
	if err := json.Unmarshal([]byte(`"1m30s"`), &d); err != nil || time.Duration(d) != 90*time.Second {
		t.Errorf("%v, %v", d, err)
	}
	if err := json.Unmarshal([]byte(`5`), &d); err == nil || !strings.Contains(err.Error(), "with a unit") {
		t.Errorf("a number without a unit: %v", err)
	}
}

// TestQuantitiesSurviveJSON writes quantities and reads them again.
func TestQuantitiesSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type all struct {
			CPU  cluster.MilliCPU
			Size cluster.Bytes
			Span cluster.Duration
		}
		in := all{
			cluster.MilliCPU(rapid.Int64Range(math.MinInt64/2, math.MaxInt64/2).Draw(t, "cpu")),
			cluster.Bytes(rapid.Int64().Draw(t, "size")), cluster.Duration(rapid.Int64().Draw(t, "span")),
		}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out all
		if err := json.Unmarshal(b, &out); err != nil || out != in {
			t.Fatalf("%+v is written %s and read as %+v, %v", in, b, out, err)
		}
	})
}

// FuzzQuantities: no text makes a parser panic.
func FuzzQuantities(f *testing.F) {
	for _, s := range []string{"500m", "0.5", "1.5GiB", "10 kB", "NaN", "-1Ti", "1e18B", "web@3", "m", "B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = cluster.ParseMilliCPU(s)
		_, _ = cluster.ParseBytes(s)
		if r, err := cluster.ParseRef(s); err == nil {
			if again, err := cluster.ParseRef(r.String()); err != nil || again != r {
				t.Errorf("%q: %+v reads back as %+v, %v", s, r, again, err)
			}
		}
		cluster.ValidImage(s)
		cluster.ValidNodeName(s)
	})
}

func TestDemand(t *testing.T) {
	d := parse[cluster.TaskDefinition](t, `{"disk": 7, "containers": [
		{"name": "a", "init": true, "resources": {"cpu": 2, "memory": 10}},
		{"name": "b", "init": true, "resources": {"cpu": 1, "memory": 90}},
		{"name": "c", "resources": {"cpu": 1, "memory": 30}},
		{"name": "d", "resources": {"cpu": 0.5, "memory": 30}}]}`)
	if diff := cmp.Diff(cluster.Demand{CPU: 2000, Memory: 90, Disk: 7}, d.Demand()); diff != "" {
		t.Error(diff)
	}
}

func TestPinned(t *testing.T) {
	for _, tt := range []struct {
		text string
		want bool
	}{
		{`{}`, false},
		{`{"ports": [{"name": "a"}]}`, false},
		{`{"ports": [{"name": "a"}, {"name": "b", "port": 80}]}`, true},
		{`{"volumes": [{"name": "a"}]}`, true},
	} {
		if got := parse[cluster.TaskDefinition](t, tt.text).Pinned(); got != tt.want {
			t.Errorf("%s: pinned %v", tt.text, got)
		}
	}
}

func TestTokensAreOrdered(t *testing.T) {
	old, same := cluster.Token{Generation: 1, Incarnation: 9, Epoch: 9},
		cluster.Token{Generation: 2, Incarnation: 1, Epoch: 1}
	if old.Compare(same) >= 0 || same.Compare(old) <= 0 || same.Compare(same) != 0 {
		t.Error("the generation of the ownership goes first")
	}
}

func TestPlanRecordHasDesired(t *testing.T) {
	p := cluster.PlanRecord{Seq: 4, Token: cluster.Token{Epoch: 3}, At: time.Unix(9, 0), Owners: []cluster.PlanOwner{{
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "ci", Name: "build"}, Generation: 2, Step: "test",
		Count: 5, Priority: 6,
		Definition: cluster.Ref{Name: "b", Version: 1}, TimeLimit: 8, OnDisconnect: cluster.DisconnectWait,
		Tasks: []cluster.Placed{{Index: 3, Attempt: 2, UUID: "u", Node: "n1", Ports: map[string]int{"http": 30000}}},
	}}}
	want := &cluster.Desired{
		Task: "ci.build.2.test.3", Attempt: 2, UUID: "u", Node: "n1", Owner: p.Owners[0].Owner,
		Definition: p.Owners[0].Definition,
		Count:      5, Priority: 6, Ports: map[string]int{"http": 30000}, TimeLimit: 8,
		OnDisconnect: cluster.DisconnectWait,
		Token:        cluster.Token{Epoch: 3}, Placed: time.Unix(9, 0), Plan: 4,
	}
	if diff := cmp.Diff(want, p.Desired(&p.Owners[0], &p.Owners[0].Tasks[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRoutingKeys(t *testing.T) {
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"}
	for _, tt := range []struct {
		event cluster.Event
		want  string
	}{
		{cluster.Event{Type: "node.down", Node: "n1.example"}, "node.down._._._.n1-example"},
		{
			cluster.Event{Type: "task.failed", Cluster: "default", Owner: &owner, Task: "default.web.1.0", Node: "n1"},
			"task.failed.default.web.default-web-1-0.n1",
		},
	} {
		if got := tt.event.RoutingKey(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestConstraintsAsText(t *testing.T) {
	for want, c := range map[string]cluster.Constraint{
		"label.disk = ssd":       {Attribute: "label.disk", Value: "ssd"},
		"node.arch in (a, b)":    {Attribute: "node.arch", Op: cluster.OpIn, Values: []string{"a", "b"}},
		"label.gpu exists":       {Attribute: "label.gpu", Op: cluster.OpExists},
		"node.kernel >= 6.1":     {Attribute: "node.kernel", Op: cluster.OpAtLeast, Value: "6.1"},
		"node.os not-in (plan9)": {Attribute: "node.os", Op: cluster.OpNotIn, Values: []string{"plan9"}},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// FuzzRef checks that a parsed reference prints as the text that was parsed.
func FuzzRef(f *testing.F) {
	for _, s := range []string{
		"web", "web@1", "web@0", "web@-1", "web@01", "web@+1", "web@", "@1", "a@b@1",
		"web@99999999999999999999", "Web@1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := cluster.ParseRef(s)
		if err != nil {
			if r != (cluster.Ref{}) {
				t.Errorf("%q: %v and %v", s, r, err)
			}
			return
		}
		if !cluster.ValidName(r.Name) || r.Version < 0 {
			t.Errorf("%q reads as %+v", s, r)
		}
		if again, err := cluster.ParseRef(r.String()); err != nil || again != r {
			t.Errorf("%q reads as %v, which reads as %v, %v", s, r, again, err)
		}
		var back cluster.Ref
		text, err := json.Marshal(r)
		if err != nil || json.Unmarshal(text, &back) != nil || back != r {
			t.Errorf("%v is %s as JSON, which reads as %v, %v", r, text, back, err)
		}
	})
}

// FuzzImage checks that an accepted image name is a single word of few characters, which no program can take for a flag
// or a path.
func FuzzImage(f *testing.F) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for _, s := range []string{
		"redis:7", "reg.example:5000/a/b" + digest, "[::1]:5000/a:x", "a" + digest +
			digest, "..", "../a", "a/../b", "-a", "a:b:c", "a@", "http://a", "a\n", "\u202ea",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !cluster.ValidImage(s) {
			return
		}
		if s == "" || len(s) > 512 || s[0] == '-' || s[0] == '/' || strings.Contains(s, "//") ||
			strings.Contains(s, "/../") {
			t.Errorf("%q counts as the name of an image", s)
		}
		for _, c := range s {
			if c <= ' ' || c > '~' || strings.ContainsRune("\"'`$\\;&|<>?*", c) {
				t.Errorf("%q counts as the name of an image", s)
			}
		}
		if !strings.Contains(s, "@") && len(s)+len(digest) <= 512 && !cluster.ValidImage(s+digest) {
			t.Errorf("%q does not take a digest", s)
		}
	})
}

// TestDurationText checks that the text of a duration has no trailing parts that are 0.
func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{ // order-free: each duration is a case of its own
		0: "0s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 90 * time.Second: "1m30s",
		time.Hour + time.Second: "1h0m1s", 20 * time.Second: "20s", 250 * time.Millisecond: "250ms", -time.Hour: "-1h",
	} {
		if got := cluster.Duration(d).String(); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

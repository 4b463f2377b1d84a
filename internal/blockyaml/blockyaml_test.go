package blockyaml

import (
	"encoding/json"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFromJSON(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{
			"scalars", `{"a":"b","i":1,"f":0.50,"t":true,"z":null,"e":""}`,
			"a: b\ni: 1\nf: 0.50\nt: true\nz: null\ne: \"\"\n",
		},
		{
			"nested", `{"a":{"b":[1,{"c":2,"d":[]},[3,4]]},"e":{}}`,
			"a:\n  b:\n  - 1\n  - c: 2\n    d: []\n  - - 3\n    - 4\ne: {}\n",
		},
		{"list", `[{"a":1},{"a":2}]`, "- a: 1\n- a: 2\n"},
		{"empty", `[]`, "[]\n"},
		{"only text", `"a b"`, "a b\n"},
		{
			"quotes where they matter",
			`["no","1","a: b","web:1","- x","#x","a #b"," x","x ","a:","2026-11-20","node.name","é","1m30s","500m","1e3"]`,
			"- \"no\"\n- \"1\"\n- \"a: b\"\n- web:1\n- \"- x\"\n- \"#x\"\n- \"a #b\"\n- \" x\"\n- \"x \"\n- " +
				"\"a:\"\n- \"2026-11-20\"\n- node.name\n- \"é\"\n- 1m30s\n- 500m\n- \"1e3\"\n",
		},
		{
			"lines", `{"a":"one\ntwo\n","b":"one\n\n  two","c":"\n","d":"x \ny"}`,
			"a: |\n  one\n  two\nb: |-\n  one\n\n    two\nc: \"\\n\"\nd: \"x \\ny\"\n",
		},
		{"odd keys", `{"a b":1,"1":2,"a:":3}`, "a b: 1\n\"1\": 2\n\"a:\": 3\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := FromJSON([]byte(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("YAML (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := FromJSON([]byte(`{"a":[1`)); err == nil {
		t.Error("truncated JSON: got no error")
	}
}

// FuzzFromJSON checks that every JSON value survives the conversion.
func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `null`, `"x"`, `{"a":[[],[[1]],{"b":{}}]}`, `{"a":"- x"}`, `{"a":"\u0000\u0085\u2028\ufeff"}`,
		`{"a":"yes","b":"1e3","c":"0x1f","d":"~"}`,
		`{"a: b":" c","#":"x #y","":"","? a":"!t"}`, `{"a":"|\n x\n"}`, `{"a":" x\ny"}`, `{"a":"x\n\n\n"}`,
		`{"a":"\tx\n y"}`, `{"a":1e400}`, `{"a":[1`, `{"a" 1}`, `1 2`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, err := FromJSON(in); err != nil && json.Valid(in) {
			t.Fatalf("%q: %v", in, err)
		}
		var want, got any
		if json.Unmarshal(in, &want) != nil {
			return
		}
		in, err := json.Marshal(want) // a command encodes a Go value, so no key is duplicated
		if err != nil {
			t.Fatal(err)
		}
		out, err := FromJSON(in)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if err := yaml.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q: %v:\n%s", in, err, out)
		}
		back, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if err := json.Unmarshal(back, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Fatalf("%q (-want +got):\n%s\n%s", in, diff, out)
		}
	})
}

// TestFromJSONKeepsAll parses the YAML and compares the value.
func TestFromJSONKeepsAll(t *testing.T) {
	text := rapid.StringMatching(`[ -~é\n\t]{0,14}`)
	var value *rapid.Generator[any]
	value = rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return value }), 0, 3).Draw(t, "list")
		case 1:
			return rapid.MapOfN(rapid.StringMatching(`[a-zA-Z0-9 :.-]{1,5}`),
				rapid.Deferred(func() *rapid.Generator[any] { return value }), 0, 3).Draw(t, "object")
		case 2:
			return rapid.Bool().Draw(t, "bool")
		case 3:
			return float64(rapid.IntRange(-1000, 1000).Draw(t, "number"))
		}
		return text.Draw(t, "text")
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOfN(rapid.StringMatching(`[a-z]{1,5}`), value, 1, 3).Draw(t, "value")
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		out, err := FromJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		var got, plain any
		if err := yaml.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		back, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if json.Unmarshal(raw, &plain) != nil || json.Unmarshal(back, &again) != nil {
			t.Fatal("JSON that was just written cannot be read")
		}
		if diff := cmp.Diff(plain, again); diff != "" {
			t.Fatalf("value (-want +got):\n%s\n%s", diff, out)
		}
	})
}

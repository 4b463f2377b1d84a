package strictjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sameTree checks that both parsers return the same tree, or both fail.
func sameTree(t *testing.T, text []byte) {
	t.Helper()
	if !json.Valid(text) {
		return
	}
	want, err := parseSlowly(text)
	got, ok := parseValid(text)
	if ok != (err == nil) {
		t.Fatalf("%q: taken apart is %v, and token by token it says %v", text, ok, err)
	}
	if !ok {
		return
	}
	if diff := cmp.Diff(want.lines("", nil), got.lines("", nil)); diff != "" {
		t.Errorf("%q (-token by token +taken apart):\n%s", text, diff)
	}
}

// lines returns the values of a tree as lines.
func (t *tree) lines(at string, before []string) []string {
	all := append(before, fmt.Sprintf("%s %c %q keys %q twice %q values %d", at, t.kind, t.text, t.keys, t.twice,
		len(t.values)))
	for i, v := range t.values {
		all = v.lines(fmt.Sprintf("%s/%d", at, i), all)
	}
	return all
}

func TestTakeApart(t *testing.T) {
	many := strings.Repeat(`"k":1,`, 20)
	for _, text := range []string{
		`null`, ` true `, `false`, `-12.5e+7`, `"a\"b\\"`, `""`, `{}`, `[]`, "{ }\n", `[ [ ] , { } ]`,
		`{"a":1,"b":[true,false,null,"x",{"c":"d"}]}`, "\t{\r\n \"a\" : [ 1 , 2 ] , \"b\" : { \"c\" : null } }\n",
		`{"a":1,"a":2,"b":3,"a":4}`, `{` + many + `"z":2}`, `{"\u0061\n":1,"a\"":2,"\ud800":3,"":4}`,
		`{"é":"\u00e9","日本":"𝄞"}`, "[\"a\u2028b\"]",
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) +
			strings.Repeat("]", maxDepth+1),
		strings.Repeat(`{"a":`, maxDepth+2) + "1" + strings.Repeat("}", maxDepth+2),
	} {
		sameTree(t, []byte(text))
	}
	if _, ok := parseValid([]byte("[" + strings.Repeat("0,", maxValues) + "0]")); ok {
		t.Error("more values than are allowed were taken apart")
	}
}

// FuzzTakeApart checks that both parsers agree on any text.
func FuzzTakeApart(f *testing.F) {
	for _, seed := range []string{`{"a": [1, -0.5e3, "x\ty", {"b\u0041": null}], "a": true}`, `[[[]]]`, `"\\"`, ` 7 `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) { sameTree(t, text) })
}

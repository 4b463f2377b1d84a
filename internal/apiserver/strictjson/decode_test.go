package strictjson

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestDecode(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"fits", `{"name": "web", "count": 3, "definition": "web@1", "labels": {"a": "b"}}`, ""},
		{"null fields", `{"name": null, "count": null, "labels": null, "placement": null}`, ""},
		{"labels of numbers", `{"labels": {"a": 1}}`, `labels["a"]: is a number, want text`},
		{"a label twice", `{"labels": {"a": "1", "a": "2"}}`, `labels["a"]: is given twice`},
		{"a strange key", `{"a b.c": 1}`, `["a b.c"]: is not a known field`},
		{
			"in a list", `{"placement": {"constraints": [{}, {"attribut": "x"}]}}`,
			`placement.constraints[1].attribut: is not a known field; did you mean "attribute"?`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var svc cluster.Service
			faults, err := Decode([]byte(test.text), &svc)
			if err != nil || faults.Error() != test.want {
				t.Errorf("got %v, %v, want %q", faults, err, test.want)
			}
		})
	}
}

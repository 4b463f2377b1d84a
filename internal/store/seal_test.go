package store

import (
	"bytes"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestSeal(t *testing.T) {
	value, err := Encode(&cluster.Desired{Task: "c.web.1.0", Attempt: 1, UUID: "u", Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if !sealHolds(value) {
		t.Errorf("%s: its own seal does not hold", value)
	}
	if d, err := Decode[cluster.Desired](value); err != nil || d.UUID != "u" || d.Node != "n1" {
		t.Errorf("got %+v %v", d, err)
	}
	for i := range value {
		other := bytes.Clone(value)
		if other[i] ^= 1; sealHolds(other) {
			t.Errorf("%s: byte %d was changed and the seal still matches", other, i)
		}
	}
	for _, other := range []string{"", "{}", `{"v":1,"task":"c.web.1.0"}`, `"}`, `,"seal":"0123456789abcdef"}`} {
		if sealHolds([]byte(other)) {
			t.Errorf("%q: the seal matches", other)
		}
	}
}

func TestRecordsOfAttemptsAreSealed(t *testing.T) {
	for _, record := range []any{&cluster.Desired{}, cluster.Desired{}, &cluster.Observed{}, cluster.Observed{}} {
		if value, err := Encode(record); err != nil || !sealHolds(value) {
			t.Errorf("%T: got %s %v, want it sealed", record, value, err)
		}
	}
	if value, err := Encode(&cluster.Outcome{}); err != nil || sealHolds(value) {
		t.Errorf("got %s %v, want no seal", value, err)
	}
}

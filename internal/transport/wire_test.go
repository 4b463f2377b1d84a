package transport

import (
	"encoding/json"
	"testing"
)

// FuzzMessages reads arbitrary messages. Each accepted message can be written and read again.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`{"assignment":{"task":"c.s.1.0","attempt":1,"uuid":"u","definition":"d@1","rev":7}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		again[Message](t, b)
		again[Registration](t, b)
		again[Report](t, b)
		again[ReportReply](t, b)
		again[AssignmentsRequest](t, b)
	})
}

func again[T any](t *testing.T, b []byte) {
	t.Helper()
	var v, w T
	if json.Unmarshal(b, &v) != nil {
		return
	}
	out, err := json.Marshal(&v)
	if err != nil {
		return // a definition that names no version cannot be written
	}
	if err := json.Unmarshal(out, &w); err != nil {
		t.Errorf("%T: %s was read, written as %s, and cannot be read again: %v", v, b, out, err)
	}
}

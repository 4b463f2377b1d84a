package collector

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
)

// Any message on the collector's socket is refused or a known request, and opens nothing outside the folder that the
// request names.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"op":"attach","attachment":{"id":"a","dir":"/x","log_dir":"/y"}}`))
	f.Add([]byte(`{"op":"finish","attachment":{"id":"../../etc/passwd"}}`))
	f.Add([]byte(`{"op":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		req, err := decodeRequest(b)
		if err != nil {
			return
		}
		id := req.Attachment.ID
		if file := attachedFile("/folder", id); (req.Op == opAttach || req.Op == opFinish) &&
			filepath.Dir(file) != "/folder" {
			t.Errorf("%q leads to %s", id, file)
		}
		again, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeRequest(again)
		if err != nil {
			t.Fatal(err)
		}
		if third, err := json.Marshal(back); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%s became %s: %v", again, third, err)
		}
	})
}

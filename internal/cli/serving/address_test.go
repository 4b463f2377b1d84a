package serving

import "testing"

func TestListenable(t *testing.T) {
	for text, good := range map[string]bool{
		"0.0.0.0:7072": true, ":7072": true, "[::]:7072": true, "127.0.0.1:0": true,
		"": false, "7072": false, "h:7072": false, "10.0.0.1": false, "10.0.0.1:x": false, "10.0.0.1:99999": false,
	} {
		if err := checkListenAddress(text); (err == nil) != good {
			t.Errorf("listenable(%q): got %v, want good: %v", text, err, good)
		}
	}
}

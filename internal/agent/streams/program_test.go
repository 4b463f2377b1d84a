package streams

import (
	"strings"
	"testing"
)

func TestPortsOfPrograms(t *testing.T) {
	p := runningProgram{ports: map[string]int{"http": 30001, "metrics": 30002}}
	for name, want := range map[string]int{"http": 30001, "30002": 30002, "6060": 6060} { // order-free: each by itself
		if got, err := p.port(name); err != nil || got != want {
			t.Errorf("port %s: got %d %v, want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"", "0", "65536", "-1", "htp"} {
		if got, err := p.port(name); err == nil || !strings.Contains(err.Error(), "[http metrics]") {
			t.Errorf("port %q: got %d %v", name, got, err)
		}
	}
}

package serving

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
)

func TestReservedPorts(t *testing.T) {
	for _, test := range []struct{ text, want, fault string }{
		{"", "", ""},
		{"22", "22", ""},
		{"8000-8003, 22,23,8002", "22-23,8000-8003", ""},
		{"1-4096", "1-4096", ""},
		{"0", "", `"0" is not a port`},
		{"65536", "", `"65536" is not a port`},
		{"ssh", "", `"ssh" is not a port`},
		{"90-80", "", `"90-80" is not a port`},
		{"22,", "", `"" is not a port`},
		{"-5", "", `"-5" is not a port`},
		{"1-65535", "", "names 65535 ports, at most 4096 are allowed"},
		{"ssh,0,22", "", `--reserved-ports: "0" is not a port`},
		{"ssh,0,22", "", `--reserved-ports: "ssh" is not a port`},
	} {
		t.Run(test.text, func(t *testing.T) {
			f, list := portFlags{text: test.text}, &session.Faults{}
			f.check(list)
			got := strings.Join(list.List, "; ")
			switch {
			case test.fault == "" && (got != "" || output.PortRanges(f.reserved) != test.want):
				t.Errorf("got %s and %v, want %s", output.PortRanges(f.reserved), got, test.want)
			case test.fault != "" && !strings.Contains(got, test.fault):
				t.Errorf("got %v, want %s", got, test.fault)
			}
		})
	}
}

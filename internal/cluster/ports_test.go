package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestReservedPortsOfHost(t *testing.T) {
	many := make([]PortRange, MaxReservedPorts+1)
	for i := range many {
		many[i] = "1-65535"
	}
	for _, test := range []struct {
		name   string
		ranges []PortRange
		want   string // of all faults
	}{
		{"none", nil, ""},
		{"ports and ranges", []PortRange{"22", "8000-8100", "8050-8060", "65535", "1"}, ""},
		{"as many as allowed", []PortRange{"1-4096", "5-10"}, ""},
		{
			"all faults at once",
			[]PortRange{"0", "22", "65536", "ssh", "90-80", "", "-5", "7-", "+7", "08", "1-2-3", " 9"},
			"[0]: \"0\"; [2]: \"65536\"; [3]: \"ssh\"; [4]: \"90-80\"; [5]: \"\"; [6]: \"-5\"; [7]: \"7-\"; [8]: \"+7\"; " +
				"[9]: \"08\"; [10]: \"1-2-3\"; [11]: \" 9\"",
		},
		{"too many ports", []PortRange{"1-4097"}, ": names 4097 ports, at most 4096 are allowed"},
		{
			"too many ranges", many,
			": holds 4097 ranges, at most 4096 are allowed; : names 65535 ports, at most 4096 are allowed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := Host{Name: "n1", ReservedPorts: test.ranges}
			var got []string
			for _, f := range FaultsOf(h.Validate()) {
				message := strings.TrimSuffix(f.Message,
					" is not a port or a range of ports: want numbers from 1 to 65535, such as 22 or 8000-8100")
				got = append(got, strings.TrimPrefix(f.Path, "reserved_ports")+": "+message)
			}
			if text := strings.Join(got, "; "); text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}

// TestPortRanges compares the ports of ranges with those of a set, and reads them again from the fewest ranges.
func TestPortRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges []PortRange
		set := map[int]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "ranges") {
			first := rapid.IntRange(1, 60).Draw(t, "first")
			last := first + rapid.IntRange(0, 9).Draw(t, "more")
			ranges = append(ranges, PortRange(fmt.Sprintf("%d-%d", first, last)))
			for p := first; p <= last; p++ {
				set[p] = true
			}
		}
		ports := Ports(ranges)
		if len(ports) != len(set) || !slices.IsSorted(ports) ||
			slices.ContainsFunc(ports, func(p int) bool { return !set[p] }) {
			t.Fatalf("%v has the ports %v", ranges, ports)
		}
		again := PortRangesOf(ports)
		if !slices.Equal(Ports(again), ports) || len(again) > max(len(ranges), 0) {
			t.Fatalf("%v became %v", ranges, again)
		}
		if len(again) > 0 && !slices.Equal(ParsePortRanges(JoinPortRanges(again)), again) {
			t.Fatalf("%v is written as %q", again, JoinPortRanges(again))
		}
	})
}

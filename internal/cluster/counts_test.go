package cluster

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRatesSince(t *testing.T) {
	before := Counts{
		Throttle: &ThrottleCounts{Periods: 100, Throttled: 10},
		Stall:    &StallCounts{CPU: time.Second},
		Network:  &NetworkCounts{Namespace: 7, Received: 1000, Sent: 500},
		Disk:     &DiskCounts{Read: 100, Reads: 1},
	}
	now := Counts{
		Throttle: &ThrottleCounts{Periods: 200, Throttled: 60},
		Stall:    &StallCounts{CPU: 6 * time.Second, IO: 20 * time.Second},
		Network:  &NetworkCounts{Namespace: 7, Received: 11_000, Sent: 500},
		Disk:     &DiskCounts{Read: 10_100, Written: 50_000, Reads: 6, Writes: 25},
	}
	other := *now.Network
	other.Namespace = 8
	for name, test := range map[string]struct {
		now, before Counts
		past        time.Duration
		want        Rates
	}{
		"ten seconds": {now, before, 10 * time.Second, Rates{
			Throttled: 50, Stall: &StallRates{CPU: 50, IO: 100}, Network: &NetworkRates{Received: 1000},
			Disk: &DiskRates{Read: 1000, Written: 5000, Reads: 0.5, Writes: 2.5},
		}},
		"the counts restarted": {
			before, now, 10 * time.Second,
			Rates{Stall: &StallRates{}, Network: &NetworkRates{}, Disk: &DiskRates{}},
		},
		"another network": {Counts{Network: &other}, Counts{Network: now.Network}, time.Second, Rates{}},
		"the first count": {now, Counts{}, time.Second, Rates{}},
		"no time passed":  {now, before, 0, Rates{}},
		"the node's network": {
			Counts{HostNetwork: true},
			Counts{HostNetwork: true},
			time.Second,
			Rates{HostNetwork: true},
		},
	} {
		if diff := cmp.Diff(test.want, test.now.Since(test.before, test.past)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRatesOfATask(t *testing.T) {
	a := Rates{
		Throttled: 5, Stall: &StallRates{CPU: 5, Memory: 1}, Network: &NetworkRates{Received: 10, Sent: 1},
		Disk: &DiskRates{Read: 1, Writes: 2},
	}
	b := Rates{
		Throttled: 7, Stall: &StallRates{CPU: 3, IO: 9}, Network: &NetworkRates{Received: 20, Sent: 2},
		Disk: &DiskRates{Read: 2, Writes: 3},
	}
	stall, disk := &StallRates{CPU: 5, Memory: 1, IO: 9}, &DiskRates{Read: 3, Writes: 5}
	for name, test := range map[string]struct{ got, want Rates }{
		"networks of their own": {
			a.With(b, false),
			Rates{Throttled: 7, Stall: stall, Network: &NetworkRates{Received: 30, Sent: 3}, Disk: disk},
		},
		"one network":        {a.With(b, true), Rates{Throttled: 7, Stall: stall, Network: a.Network, Disk: disk}},
		"the first":          {Rates{}.With(b, false), b},
		"nothing is counted": {a.With(Rates{}, false), a},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Small permanent changes are not reported again: an idle node sends nothing.
func TestRatesAreReportedWhenTheyChange(t *testing.T) {
	reported := Rates{
		Throttled: 20, Stall: &StallRates{CPU: 30}, Network: &NetworkRates{Received: MiB},
		Disk: &DiskRates{Written: MiB, Writes: 100},
	}
	for name, test := range map[string]struct {
		change func(*Rates)
		want   bool
	}{
		"the same":             {func(*Rates) {}, false},
		"a third more":         {func(r *Rates) { r.Network = &NetworkRates{Received: MiB + MiB/3} }, false},
		"half more":            {func(r *Rates) { r.Network = &NetworkRates{Received: MiB + MiB/2} }, true},
		"a little that is new": {func(r *Rates) { r.Network = &NetworkRates{Received: MiB, Sent: 30 * KiB} }, false},
		"throttled":            {func(r *Rates) { r.Throttled = 31 }, true},
		"hardly throttled":     {func(r *Rates) { r.Throttled = 24 }, false},
		"waits for its disk":   {func(r *Rates) { r.Stall = &StallRates{CPU: 30, IO: 5} }, true},
		"operations":           {func(r *Rates) { r.Disk = &DiskRates{Written: MiB, Writes: 40} }, true},
		"no network any more":  {func(r *Rates) { r.Network = nil }, true},
	} {
		now := reported
		test.change(&now)
		a, b := TaskStats{Detail: &UseDetail{Rates: now}}, TaskStats{Detail: &UseDetail{Rates: reported}}
		if got := a.Notable(b); got != test.want {
			t.Errorf("%s: notable %v, want %v", name, got, test.want)
		}
	}
	if none, some := (TaskStats{}), (TaskStats{Detail: &UseDetail{}}); !some.Notable(none) || none.Notable(none) {
		t.Error("the first known count is a change, once")
	}
}

// A report of an agent without details decodes as a report without details, and a report with details survives encoding
// and decoding.
func TestDetailTravels(t *testing.T) {
	var old TaskStats
	if err := json.Unmarshal([]byte(`{"task":"c.s.1.0","uuid":"u","cpu":"1500m","memory":"1 MiB"}`),
		&old); err != nil || old.Detail != nil {
		t.Errorf("without details: %+v, %v", old, err)
	}
	s := TaskStats{UUID: "u", Detail: &UseDetail{
		Rates:      Rates{Throttled: 3, HostNetwork: true, Disk: &DiskRates{Reads: 0.5}},
		Containers: []ContainerUse{{Name: "a", CPU: 5, Memory: MiB, Rates: Rates{Network: &NetworkRates{Sent: KiB}}}},
	}}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got TaskStats
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", b, diff)
	}
}

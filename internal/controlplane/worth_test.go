package controlplane

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// TestPricing: a leader learns from each task with devices once, when it begins to wait, and from those that hold
// devices when its reign begins; without any, devices are worth nothing.
func TestPricing(t *testing.T) {
	gpu := []cluster.DeviceRequest{{Type: "gpu", Share: 500}}
	task := func(i int, devices []cluster.DeviceRequest) cluster.Pending {
		return cluster.Pending{
			Task: cluster.ServiceTask("c", "s", 1, i), Demand: cluster.Demand{CPU: 1000},
			Devices: devices,
		}
	}
	var p pricing
	fleet, snap := scheduler.NewFleet(), &store.Snapshot{}
	p.knew = true // what stands is another matter
	p.arrived(nil, []cluster.Pending{task(0, nil)})
	if w := p.price(snap, fleet); w != nil {
		t.Errorf("got a worth %v out of tasks without devices", w)
	}
	waits := []cluster.Pending{task(0, nil), task(1, gpu)}
	p.arrived(nil, waits)
	first := p.price(snap, fleet)
	if first == nil || fleet.Worth() != first {
		t.Fatalf("got %v, and the fleet %v, want one worth", first, fleet.Worth())
	}
	for range 1000 { // the same task goes on to wait
		p.arrived(waits, waits)
	}
	if again := p.price(snap, fleet); again != first {
		t.Error("a task that goes on to wait was learnt again")
	}
	for i := range 1000 {
		p.arrived(waits, append(waits, task(2+i, gpu)))
	}
	if again := p.price(snap, fleet); again == first {
		t.Error("after a thousand more tasks the worth is the same")
	}
}

package controlplane

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// A leader learns from each task with devices once, when it begins to wait, and once a term from those
// that hold devices. Without any of them there is no value model.
func TestDeviceValues(t *testing.T) {
	gpu := []cluster.DeviceRequest{{Type: "gpu", Share: 500}}
	task := func(i int, devices []cluster.DeviceRequest) cluster.Pending {
		return cluster.Pending{
			Task: cluster.ServiceTask("c", "s", 1, i), Demand: cluster.Demand{CPU: 1000},
			Devices: devices,
		}
	}
	var p deviceValues
	fleet, snap := scheduler.NewFleet(), &store.Snapshot{}
	p.learntHolders = true // the tasks that hold devices are not under test
	p.learnArrivals(nil, []cluster.Pending{task(0, nil)})
	if w := p.updateFleet(snap, fleet); w != nil {
		t.Errorf("got a value model %v from tasks without devices", w)
	}
	waits := []cluster.Pending{task(0, nil), task(1, gpu)}
	p.learnArrivals(nil, waits)
	first := p.updateFleet(snap, fleet)
	if first == nil || fleet.DeviceValueModel() != first {
		t.Fatalf("got %v, and the fleet %v, want one value model", first, fleet.DeviceValueModel())
	}
	for range 1000 { // the same task still waits
		p.learnArrivals(waits, waits)
	}
	if again := p.updateFleet(snap, fleet); again != first {
		t.Error("a task that still waits was learnt again")
	}
	for i := range 1000 {
		p.learnArrivals(waits, append(waits, task(2+i, gpu)))
	}
	if again := p.updateFleet(snap, fleet); again == first {
		t.Error("after a thousand more tasks the value model is the same")
	}
}

package scheduler_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// This file models the value of devices. Package packing has its own tests: here only the calls count.

// counts reports whether the value of devices counts for a task.
func (w world) counts(p cluster.Pending) bool {
	return w.valueModel != nil && (p.Placement.Strategy == "" || p.Placement.Strategy == cluster.StrategyWhole)
}

// freeOf returns what is free of a node's devices of a type, in the order of the node's list.
func (w world) freeOf(n int, kind string, models []string, uses []cluster.DeviceUse) (list []packing.Device,
	known []cluster.Device,
) {
	number := func(model string) uint8 {
		if i := slices.Index(models, model); i >= 0 {
			return uint8(i)
		}
		return 63
	}
	all := slices.Clone(uses)
	for _, held := range w.held {
		if held.Node == w.nodes[n].Name {
			all = append(all, held.Devices...)
		}
	}
	for _, d := range w.nodes[n].Devices {
		if d.Type != kind {
			continue
		}
		v := packing.Device{Free: 1000, Memory: d.Memory, Model: number(d.Model)}
		for _, u := range all {
			if u.ID == d.ID {
				v.Free, v.Memory = v.Free-u.Share, v.Memory-u.Memory
			}
		}
		list, known = append(list, v), append(known, d)
	}
	return list, known
}

// devicesByValue chooses the devices for a task by value; nil if value decides nothing, or not enough are free.
func (w world) devicesByValue(n int, p cluster.Pending) []cluster.DeviceUse {
	if !w.counts(p) || len(p.Devices) == 0 {
		return nil
	}
	own := map[string]cluster.DeviceUse{}
	for _, q := range inTurn(p.Devices) {
		values, models := valuesOf(w.valueModel, q.Type)
		if values == nil {
			return nil
		}
		list, known := w.freeOf(n, q.Type, models, slices.Collect(maps.Values(own)))
		var chosen []int
		if q.Share > 0 {
			chosen = chooseShareByValue(values, list, models, q)
			if len(chosen) > 0 && len(q.Models) > 0 && !slices.Contains(q.Models, known[chosen[0]].Model) {
				return nil // all models that no request names share one number
			}
		} else {
			chosen = chooseWholeByValue(list, known, q)
		}
		if len(chosen) == 0 {
			return nil
		}
		for _, i := range chosen {
			u := cluster.DeviceUse{
				ID: known[i].ID, Share: own[known[i].ID].Share + cmp.Or(q.Share, 1000),
				Memory: own[known[i].ID].Memory,
			}
			if q.Share > 0 {
				u.Memory += q.Memory
			}
			own[u.ID] = u
		}
	}
	return slices.SortedFunc(maps.Values(own), func(a, b cluster.DeviceUse) int { return strings.Compare(a.ID, b.ID) })
}

// inTurn returns requests with defaults, in the order of service.
func inTurn(list []cluster.DeviceRequest) (all []cluster.DeviceRequest) {
	for _, kind := range []func(q cluster.DeviceRequest) bool{
		func(q cluster.DeviceRequest) bool { return q.Share == 0 && len(q.Models) > 0 },
		func(q cluster.DeviceRequest) bool { return q.Share == 0 && len(q.Models) == 0 },
		func(q cluster.DeviceRequest) bool { return q.Share > 0 && len(q.Models) > 0 },
		func(q cluster.DeviceRequest) bool { return q.Share > 0 && len(q.Models) == 0 },
	} {
		for _, q := range list {
			if kind(q) {
				q.Type, q.Count = cmp.Or(q.Type, "gpu"), max(q.Count, 1)
				all = append(all, q)
			}
		}
	}
	return all
}

// chooseShareByValue chooses a device by package packing.
func chooseShareByValue(values *packing.ValueModel, list []packing.Device, models []string, q cluster.DeviceRequest,
) []int {
	d := packing.Demand{Devices: 1, Share: q.Share, DeviceMemory: q.Memory}
	for _, model := range q.Models {
		bit := 63
		if i := slices.Index(models, model); i >= 0 {
			bit = i
		}
		d.Models |= 1 << bit
	}
	i, found := values.Pick(&packing.Node{Devices: list}, &d)
	if !found {
		return nil
	}
	return []int{i}
}

// chooseWholeByValue chooses devices with the least memory, and then as chooseWhole does.
func chooseWholeByValue(list []packing.Device, known []cluster.Device, q cluster.DeviceRequest) []int {
	var free []int
	numa := map[int]int{}
	for i, v := range list {
		if v.Free == 1000 && known[i].Memory >= q.Memory &&
			(len(q.Models) == 0 || slices.Contains(q.Models, known[i].Model)) {
			free = append(free, i)
			numa[known[i].Numa]++
		}
	}
	if len(free) < q.Count {
		return nil
	}
	slices.SortFunc(free, func(i, j int) int {
		rank := func(i int) int {
			if there := numa[known[i].Numa]; there >= q.Count {
				return there
			}
			return 1000
		}
		return cmp.Or(cmp.Compare(known[i].Memory, known[j].Memory), cmp.Compare(rank(i), rank(j)),
			cmp.Compare(known[i].Numa, known[j].Numa), strings.Compare(known[i].ID, known[j].ID))
	})
	return free[:q.Count]
}

// loss returns the value that a node's devices lose by a task.
func (w world) loss(n int, p cluster.Pending) uint64 {
	if !w.counts(p) {
		return packing.NoLoss
	}
	uses := w.devicesByValue(n, p)
	if uses == nil && len(p.Devices) > 0 {
		uses, _ = w.devices(n, p)
	}
	free, lost := w.nodes[n].Capacity.Sub(w.used(n)), int64(0)
	for _, kind := range []string{"gpu", "fpga"} {
		values, models := valuesOf(w.valueModel, kind)
		if values == nil {
			continue
		}
		before, _ := w.freeOf(n, kind, models, nil)
		after, _ := w.freeOf(n, kind, models, uses)
		left := free.Sub(p.Demand)
		lost += values.Value(&packing.Node{FreeCPU: free.CPU, FreeMemory: free.Memory, Devices: before})
		lost -= values.Value(&packing.Node{FreeCPU: left.CPU, FreeMemory: left.Memory, Devices: after})
	}
	return packing.Loss(lost)
}

// valuesOf returns the value model of one device type, and the models with numbers in it; nil if the type is unknown.
func valuesOf(w *scheduler.ValueModel, kind string) (*packing.ValueModel, []string) {
	i := w.Find(kind)
	if i < 0 {
		return nil, nil
	}
	return w.OfType(i).Values, w.OfType(i).Models
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/traces"
)

// trace is a fleet and the pods that arrive.
type trace struct {
	nodes   []packing.Node
	demands []packing.Demand // the different ones
	pods    []int            // by demand
	models  map[string]uint8
}

// capacity returns the thousandths of devices of the fleet.
func (t *trace) capacity() int64 {
	var sum int64
	for i := range t.nodes {
		sum += int64(len(t.nodes[i].Devices)) * cluster.WholeDevice
	}
	return sum
}

// readTrace reads the fleet and a list of pods from the folder. The times of the pods play no part.
func readTrace(dir, name string) (t *trace, err error) {
	in := [2]traces.Input{{Name: "openb_pod_list_" + name + ".csv"}, {Name: "openb_node_list_gpu_node.csv"}}
	for i := range in {
		f, err := os.Open(filepath.Join(dir, in[i].Name))
		if err != nil {
			return nil, fmt.Errorf("read trace: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		in[i].From = f
	}
	read, err := traces.ReadOpenB(in[0], in[1])
	if err != nil {
		return nil, err
	}
	t = traceOf(read)
	if t.capacity() == 0 || !slices.ContainsFunc(t.demands, func(d packing.Demand) bool { return sizeOf(&d) > 0 }) {
		return nil, fmt.Errorf("trace %s: no node has a GPU, or no pod requests one", name)
	}
	return t, nil
}

// traceOf returns a trace in the form of the rules.
func traceOf(read *traces.Trace) *trace {
	t := &trace{models: map[string]uint8{}}
	for _, from := range read.Nodes {
		n := packing.Node{CPU: from.CPU, Memory: from.Memory, FreeCPU: from.CPU, FreeMemory: from.Memory}
		for range from.GPUs {
			n.Devices = append(n.Devices, packing.Device{Free: cluster.WholeDevice, Model: t.model(from.Model)})
		}
		t.nodes = append(t.nodes, n)
	}
	for _, s := range read.Shapes {
		d := packing.Demand{CPU: s.CPU, Memory: s.Memory, Devices: s.GPUs, Share: s.Share}
		for model := range strings.SplitSeq(s.Models, "|") {
			if model != "" {
				d.Models |= 1 << t.model(model)
			}
		}
		t.demands = append(t.demands, d)
	}
	for i := range read.Jobs {
		t.pods = append(t.pods, read.Jobs[i].Shape)
	}
	return t
}

// model numbers the models in the order of their appearance.
func (t *trace) model(name string) uint8 {
	n, ok := t.models[name]
	if !ok {
		n = uint8(len(t.models) & 63)
		t.models[name] = n
	}
	return n
}

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// trace is a fleet and what is asked of it.
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

// readTrace reads the fleet and a list of pods from the folder.
func readTrace(dir, name string) (*trace, error) {
	t := &trace{models: map[string]uint8{}}
	err := readTable(filepath.Join(dir, "openb_node_list_gpu_node.csv"), func(r row) error { return t.addNode(r) })
	if err != nil {
		return nil, err
	}
	seen := map[packing.Demand]int{}
	err = readTable(filepath.Join(dir, "openb_pod_list_"+name+".csv"), func(r row) error { return t.addPod(r, seen) })
	if err != nil {
		return nil, err
	}
	if t.capacity() == 0 || !slices.ContainsFunc(t.demands, func(d packing.Demand) bool { return sizeOf(&d) > 0 }) {
		return nil, fmt.Errorf("trace %s: no node has a GPU, or no pod asks for one", name)
	}
	return t, nil
}

func (t *trace) addNode(r row) error {
	cpu, memory, devices := r.number("cpu_milli"), r.number("memory_mib"), r.number("gpu")
	n := packing.Node{CPU: cluster.MilliCPU(cpu), Memory: cluster.Bytes(memory) << 20}
	n.FreeCPU, n.FreeMemory = n.CPU, n.Memory
	for range devices {
		n.Devices = append(n.Devices, packing.Device{Free: cluster.WholeDevice, Model: t.model(r.text("model"))})
	}
	t.nodes = append(t.nodes, n)
	return r.err
}

func (t *trace) addPod(r row, seen map[packing.Demand]int) error {
	d := packing.Demand{
		CPU:     cluster.MilliCPU(r.number("cpu_milli")),
		Memory:  cluster.Bytes(r.number("memory_mib")) << 20,
		Devices: int(r.number("num_gpu")),
	}
	if share := r.number("gpu_milli"); d.Devices == 1 && share < cluster.WholeDevice {
		d.Share = int(share)
	}
	for model := range strings.SplitSeq(r.text("gpu_spec"), "|") {
		if model != "" {
			d.Models |= 1 << t.model(model)
		}
	}
	at, ok := seen[d]
	if !ok {
		at = len(t.demands)
		seen[d] = at
		t.demands = append(t.demands, d)
	}
	t.pods = append(t.pods, at)
	return r.err
}

// model numbers the models as they are met.
func (t *trace) model(name string) uint8 {
	n, ok := t.models[name]
	if !ok {
		n = uint8(len(t.models) & 63)
		t.models[name] = n
	}
	return n
}

// row is a line of a table; err is the first cell that was no number.
type row struct {
	columns map[string]int
	cells   []string
	err     error
}

// text returns a cell, "" where the table has no such column.
func (r *row) text(column string) string {
	i, ok := r.columns[column]
	if !ok {
		return ""
	}
	return r.cells[i]
}

func (r *row) number(column string) int64 {
	n, err := strconv.ParseInt(r.text(column), 10, 64)
	if err != nil || n < 0 {
		r.err = errors.Join(r.err, fmt.Errorf("column %s: %q is not a number from 0", column, r.text(column)))
		return 0
	}
	return n
}

// readTable calls each for the lines of a file of comma-separated values below its heading.
func readTable(path string, each func(row) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	defer f.Close()
	table := csv.NewReader(f)
	heading, err := table.Read()
	if err != nil {
		return fmt.Errorf("read trace %s: %w", filepath.Base(path), err)
	}
	columns := map[string]int{}
	for i, name := range heading {
		columns[name] = i
	}
	for line := 2; ; line++ {
		cells, err := table.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(row{columns: columns, cells: cells})
		}
		if err != nil {
			return fmt.Errorf("read trace %s, line %d: %w", filepath.Base(path), line, err)
		}
	}
}

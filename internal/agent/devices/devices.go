// Package devices finds the resources of a machine that tasks can hold besides CPU time and memory: GPUs, devices that
// the operator states, and whole cores.
//
// A device is found in the kernel's files or in specifications of the Container Device Interface (CDI), or is stated by
// the operator. In each case it comes with what a container needs to use it. A device that disappears is no longer
// reported; a later search may find it again, under the same ID.
//
// # Cores
//
// A core that tasks may have for themselves is a device of type `core` with its NUMA node. An agent reports the cores
// that its operator offers (`--cores`). `cpu_pinning: cores` of a container requests as many as its `cpu`, besides the
// CPU time that it reserves. The scheduler chooses the very cores with the placement, so they are in the plan record
// and the desired record, and survive a new leader and a new agent without further state. `cpu_pinning: numa` requires
// all devices of the containers that say so, cores included, to be of one NUMA node; devices of unknown location fit
// any. If several NUMA nodes are possible, the one with the fewest free devices is taken. The agent puts a container on
// its cores (and with `numa` on its node's memory), and moves all containers without cores off held ones, before the
// program starts and on each change. If nothing is left, they run on all cores. A core is a logical CPU: two threads of
// one core may go to two tasks; offer one of each pair where that matters. Berth does not keep other programs of the
// machine off. The process executor sets affinities, from which a program may free itself, and binds no memory;
// containerd's cgroups hold both. The agent does not choose cores itself, as the CPU manager of Kubernetes does: a NUMA
// requirement would then be refused only after the placement, and the choice would need a file that must never
// contradict the records.
package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
)

// Device is a device of this machine, with the way for a container to use it.
type Device struct {
	cluster.Device
	// Nodes are the device files that its container gets; none where CDI describes them.
	Nodes []Node
	// CDI, unless empty, is the qualified name, such as "nvidia.com/gpu=0", by which an executor adds it to a
	// container.
	CDI string
	// NVIDIA means that programs select it by NVIDIA's variables, under NVIDIAName.
	NVIDIA     bool
	NVIDIAName string
}

// Node is a device file, or a folder of device files.
type Node struct {
	// Host is its path on the machine, Path its path in the container.
	Host, Path string
}

// Finder finds the devices of a machine. Its fields do not change after the first Find.
type Finder struct {
	// Root is the machine's root, "/" if empty; tests use a tree of files.
	Root string
	// Stated are the devices of the operator's list, from ParseStated. One with the path of a discovered device changes
	// that device.
	Stated []Stated
	// Cores are the CPUs that tasks may have exclusively, in order.
	Cores []int
	// CDIDirs are the folders with CDI specifications; if empty DefaultCDIDirs.
	CDIDirs []string
	// SMI, unless nil, returns "uuid, name, memory in MiB, bus id" from NVIDIA's program, a line for each GPU.
	SMI func(ctx context.Context) ([]byte, error)
}

// Find returns the current devices, ordered by ID and without duplicate IDs. The error joins all failures; the devices
// are valid nevertheless.
func (f *Finder) Find(ctx context.Context) ([]Device, error) {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	specs := f.cdi()
	note("CDI", specs.err)
	all, err := f.nvidia(ctx, specs)
	note("NVIDIA's GPUs", err)
	all = append(all, f.amd(specs)...)
	all = append(all, specs.rest(all)...)
	for i := range f.Stated {
		var err error
		all, err = f.state(&f.Stated[i], all, specs)
		note("--device "+f.Stated[i].Text, err)
	}
	all = append(all, f.cores()...)
	slices.SortStableFunc(all, func(a, b Device) int { return strings.Compare(a.ID, b.ID) })
	unique := all[:0]
	for _, d := range all {
		if last := len(unique) - 1; last >= 0 && unique[last].ID == d.ID {
			note(d.ID, errors.New("two devices have this id; the first is used"))
			continue
		}
		unique = append(unique, d)
	}
	if len(unique) > cluster.MaxDevices {
		note("devices", fmt.Errorf("there are %d, and only %d are reported", len(unique), cluster.MaxDevices))
		unique = unique[:cluster.MaxDevices]
	}
	return unique, errors.Join(errs...)
}

// path returns the path of a file of the machine.
func (f *Finder) path(name string) string { return filepath.Join(cmp.Or(f.Root, "/"), name) }

// read returns the first line of a file, or "".
func (f *Finder) read(name string) string {
	b, err := os.ReadFile(f.path(name))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

// glob returns the matching paths on the machine, in order.
func (f *Finder) glob(pattern string) []string {
	found, _ := filepath.Glob(f.path(pattern)) // the patterns are valid
	for i := range found {
		found[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(found[i], cmp.Or(f.Root, "/")), "/")
	}
	return found
}

// nodes returns those of the paths that exist, each visible under its own name.
func (f *Finder) nodes(paths ...string) (nodes []Node) {
	for _, p := range paths {
		if _, err := os.Stat(f.path(p)); err == nil {
			nodes = append(nodes, Node{p, p})
		}
	}
	return nodes
}

// numaOf reads the NUMA node from a folder of sysfs, -1 if the kernel does not know it.
func (f *Finder) numaOf(folder string) int {
	n, err := strconv.Atoi(f.read(filepath.Join(folder, "numa_node")))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// numaOfNode returns the NUMA node of a device file.
func (f *Finder) numaOfNode(path string) int {
	var st unix.Stat_t
	if unix.Stat(f.path(path), &st) != nil {
		return -1
	}
	kind := "char"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
	case unix.S_IFBLK:
		kind = "block"
	default:
		return -1
	}
	return f.numaOf(fmt.Sprintf("/sys/dev/%s/%d:%d/device", kind, unix.Major(st.Rdev), unix.Minor(st.Rdev)))
}

// state adds a stated device, or changes the discovered device with its path. It skips a device whose files do not
// exist.
func (f *Finder) state(s *Stated, all []Device, specs *specs) ([]Device, error) {
	for i := range all {
		if s.Count <= 1 && s.CDI == "" && len(s.Nodes) > 0 && len(all[i].Nodes) > 0 &&
			all[i].Nodes[0].Host == s.Nodes[0].Host || s.CDI != "" && all[i].CDI == s.CDI {
			s.override(&all[i])
			return all, nil
		}
	}
	if s.Type == "" {
		return all, errors.New("such a device is not detected: set its type")
	}
	if s.CDI != "" && !specs.has(s.CDI) {
		return all, fmt.Errorf("no CDI specification has %s", s.CDI)
	}
	for _, n := range s.Nodes {
		info, err := os.Stat(f.path(n.Host))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return all, fmt.Errorf("%s is not there", n.Host)
		case err != nil:
			return all, err
		case !info.IsDir() && info.Mode()&fs.ModeDevice == 0:
			return all, fmt.Errorf("%s is not a device", n.Host)
		}
	}
	numa := -1
	if len(s.Nodes) > 0 {
		numa = f.numaOfNode(s.Nodes[0].Host)
	}
	for i := range max(s.Count, 1) {
		d := Device{
			Device: cluster.Device{ID: s.id(i), Type: s.Type, Numa: numa}, Nodes: s.Nodes, CDI: s.CDI,
			NVIDIA: strings.HasPrefix(s.CDI, nvidiaCDI),
		}
		if _, name, _ := strings.Cut(s.CDI, "="); d.NVIDIA {
			d.NVIDIAName = name
		}
		s.override(&d)
		all = append(all, d)
	}
	return all, nil
}

// override replaces discovered values by stated ones.
func (s *Stated) override(d *Device) {
	d.Type = cmp.Or(s.Type, d.Type)
	d.Model = cmp.Or(s.Model, d.Model)
	d.Memory = cmp.Or(s.Memory, d.Memory)
	if s.ID != "" && s.Count <= 1 {
		d.ID = s.ID
	}
	if s.Numa >= 0 {
		d.Numa = s.Numa
	}
}

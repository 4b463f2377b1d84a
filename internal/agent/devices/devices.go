// Package devices finds what a machine has that tasks can hold beside CPU time and memory: GPUs, what the operator
// states, and whole cores.
//
// A device is found in the kernel's own files, in specifications of the Container Device Interface (CDI), or is stated
// by the operator. However it was found, it comes with what a container needs to get at it. What is gone is not
// reported any more; the next look may find it again, under the same ID.
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

// Device is a device of this machine, with the way in which a container gets at it.
type Device struct {
	cluster.Device
	// Nodes are the files of the device that its container is shown; none where CDI says what to do.
	Nodes []Node
	// CDI, unless empty, is the qualified name, such as "nvidia.com/gpu=0", by which an executor gives it to a
	// container.
	CDI string
	// NVIDIA says that programs find it by NVIDIA's variables, under NVIDIAName.
	NVIDIA     bool
	NVIDIAName string
}

// Node is a file of a device, or a folder of such.
type Node struct {
	// Host is where it is on the machine, Path where the container sees it.
	Host, Path string
}

// Finder finds the devices of a machine. Its fields are not changed after the first Find.
type Finder struct {
	// Root is the machine's root, "/" if empty; tests give a tree of files.
	Root string
	// Stated are the devices of the operator's list, ParseStated reads them. One with the path of a found device speaks
	// of that.
	Stated []Stated
	// Cores are the CPUs that tasks may have to themselves, ordered.
	Cores []int
	// CDIDirs are the folders with specifications of the Container Device Interface; if empty DefaultCDIDirs.
	CDIDirs []string
	// SMI, unless nil, asks NVIDIA's program for "uuid, name, memory in MiB, bus id", a line for each GPU.
	SMI func(ctx context.Context) ([]byte, error)
}

// Find returns the devices that are there now, ordered by ID, no two with the same. What could not be found out is said
// in the error; the devices are good nevertheless.
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
			note(d.ID, errors.New("two devices have this id; the first is taken"))
			continue
		}
		unique = append(unique, d)
	}
	if len(unique) > cluster.MaxDevices {
		note("devices", fmt.Errorf("there are %d, and only %d are told of", len(unique), cluster.MaxDevices))
		unique = unique[:cluster.MaxDevices]
	}
	return unique, errors.Join(errs...)
}

// path returns where a file of the machine is.
func (f *Finder) path(name string) string { return filepath.Join(cmp.Or(f.Root, "/"), name) }

// read returns the first line of a file, or nothing.
func (f *Finder) read(name string) string {
	b, err := os.ReadFile(f.path(name))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

// glob returns the paths on the machine that match, ordered.
func (f *Finder) glob(pattern string) []string {
	found, _ := filepath.Glob(f.path(pattern)) // the patterns are good ones
	for i := range found {
		found[i] = "/" + strings.TrimPrefix(strings.TrimPrefix(found[i], cmp.Or(f.Root, "/")), "/")
	}
	return found
}

// nodes returns those of the paths that are there, each to be seen under its own name.
func (f *Finder) nodes(paths ...string) (nodes []Node) {
	for _, p := range paths {
		if _, err := os.Stat(f.path(p)); err == nil {
			nodes = append(nodes, Node{p, p})
		}
	}
	return nodes
}

// numaOf reads the NUMA node out of a folder of sysfs, -1 where the kernel does not know.
func (f *Finder) numaOf(folder string) int {
	n, err := strconv.Atoi(f.read(filepath.Join(folder, "numa_node")))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// numaOfNode is numaOf for the file of a device.
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

// state adds a stated device, or changes the found one that it speaks of. One whose files are not there is left out.
func (f *Finder) state(s *Stated, all []Device, specs *specs) ([]Device, error) {
	for i := range all {
		if s.Count <= 1 && s.CDI == "" && len(s.Nodes) > 0 && len(all[i].Nodes) > 0 &&
			all[i].Nodes[0].Host == s.Nodes[0].Host || s.CDI != "" && all[i].CDI == s.CDI {
			s.override(&all[i])
			return all, nil
		}
	}
	if s.Type == "" {
		return all, errors.New("no such device is found by itself: type is missing")
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
			return all, fmt.Errorf("%s is no device", n.Host)
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

// override puts what was stated in place of what was found.
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

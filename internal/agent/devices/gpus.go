package devices

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// gpu is the type of discovered devices.
const gpu = cluster.DefaultDeviceType

// nvidiaCDI is the kind of GPUs in NVIDIA's CDI specifications.
const nvidiaCDI = "nvidia.com/gpu="

// nvidia finds GPUs by the files of NVIDIA's driver, and asks NVIDIA's program for the rest. With a CDI specification a
// container also gets the driver's libraries; without one it gets only the device files.
func (f *Finder) nvidia(ctx context.Context, specs *specs) (all []Device, err error) {
	folders := f.glob("/proc/driver/nvidia/gpus/*")
	if len(folders) == 0 {
		return nil, nil
	}
	reported := map[string]smiGPU{}
	if f.SMI != nil {
		var out []byte
		if out, err = f.SMI(ctx); err == nil {
			reported = parseSMI(string(out))
		}
	}
	shared := f.nodes("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
	for _, folder := range folders {
		bus := filepath.Base(folder)
		info := f.fields(filepath.Join(folder, "information"))
		smi := reported[busKey(bus)]
		minor := info["Device Minor"]
		uuid := cmp.Or(smi.uuid, info["GPU UUID"])
		if strings.Contains(uuid, "?") { // the driver has not initialised it yet
			uuid = ""
		}
		own := f.nodes("/dev/nvidia" + minor)
		if minor == "" || len(own) == 0 {
			continue
		}
		d := Device{
			Device: cluster.Device{
				ID: cmp.Or(uuid, "pci-"+bus), Type: gpu, Memory: smi.memory,
				Numa:  f.numaOf("/sys/bus/pci/devices/" + strings.ToLower(bus)),
				Model: label(strings.TrimPrefix(cmp.Or(smi.name, info["Model"]), "NVIDIA ")),
			},
			Nodes: append(own, shared...), NVIDIA: true, NVIDIAName: cmp.Or(uuid, minor),
		}
		for _, name := range []string{uuid, minor} {
			if name != "" && specs.has(nvidiaCDI+name) {
				d.CDI = nvidiaCDI + name
				break
			}
		}
		all = append(all, d)
	}
	return all, err
}

// smiGPU is a line of the output of NVIDIA's program.
type smiGPU struct {
	uuid, name string
	memory     cluster.Bytes
}

// parseSMI reads lines of "uuid, name, memory in MiB, bus id" and skips other lines.
func parseSMI(text string) map[string]smiGPU {
	all := map[string]smiGPU{}
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSpace(line), ",")
		if len(parts) != 4 {
			continue
		}
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		g := smiGPU{uuid: parts[0], name: parts[1]}
		if mib, err := strconv.ParseInt(parts[2], 10, 64); err == nil && mib > 0 && mib < 1<<30 {
			g.memory = cluster.Bytes(mib) * cluster.MiB
		}
		all[busKey(parts[3])] = g
	}
	return all
}

// busKey normalises an address on the PCI bus: the driver and its program differ in case and in the zeros of the
// domain.
func busKey(bus string) string {
	domain, rest, found := strings.Cut(strings.ToLower(bus), ":")
	if !found {
		return bus
	}
	return strings.TrimLeft(domain, "0") + ":" + rest
}

// fields reads a file of "Name: value" lines.
func (f *Finder) fields(name string) map[string]string {
	all := map[string]string{}
	for _, line := range f.lines(name) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			all[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return all
}

// amdVendor is AMD's vendor ID on the PCI bus.
const amdVendor = "0x1002"

// amd finds GPUs with compute support by the kernel's list of graphics cards.
func (f *Finder) amd(specs *specs) (all []Device) {
	kfd := f.nodes("/dev/kfd")
	if len(kfd) == 0 {
		return nil // graphics only
	}
	for _, card := range f.glob("/sys/class/drm/renderD*") {
		folder, name := filepath.Join(card, "device"), filepath.Base(card)
		own := f.nodes("/dev/dri/" + name)
		if f.read(filepath.Join(folder, "vendor")) != amdVendor || len(own) == 0 {
			continue
		}
		id := f.read(filepath.Join(folder, "unique_id"))
		if strings.Trim(id, "0x") == "" {
			id = name
		}
		d := Device{
			Device: cluster.Device{
				ID: "amd-" + label(id), Type: gpu, Numa: f.numaOf(folder),
				Model: label(cmp.Or(f.read(filepath.Join(folder, "product_name")),
					"AMD "+f.read(filepath.Join(folder, "device")))),
			},
			Nodes: append(own, kfd...),
		}
		if vram, err := strconv.ParseInt(f.read(filepath.Join(folder, "mem_info_vram_total")), 10, 64); err == nil &&
			vram > 0 {
			d.Memory = min(cluster.Bytes(vram), cluster.MaxMemory)
		}
		d.CDI = specs.of(d.Nodes[0].Host)
		all = append(all, d)
	}
	return all
}

// label reduces a text to the characters and the length of a model or an ID.
func label(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(s[:min(len(s), cluster.MaxLabel)])
}

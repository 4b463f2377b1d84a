package task

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/pins"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// deviceGrant is one container's share of the node's devices and the CPUs that it runs on.
type deviceGrant struct {
	devices   []executor.DeviceNode
	cdi       []string
	cpus      string
	numaNodes string
	env       map[string]string // variables that the manifest cannot replace
	hints     map[string]string // variables that the manifest can replace
}

// Variables for NVIDIA's runtime and libraries: they name what a container may use.
const (
	envVisible   = "NVIDIA_VISIBLE_DEVICES"
	envCUDA      = "CUDA_VISIBLE_DEVICES"
	envMPSShare  = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	envMPSMemory = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// grantDevices collects the devices and CPUs of a container. The error names what the node lacks or has lost.
func (b *Specs) grantDevices(d *cluster.Desired, def *cluster.TaskDefinition, i int) (*deviceGrant, error) {
	h := &deviceGrant{env: map[string]string{}, hints: map[string]string{}}
	known := b.Devices.ByID()
	var own []int
	if len(d.Devices) > 0 {
		given, err := def.AssignDevices(d.Devices, b.Facts().Devices)
		if err != nil {
			return nil, err
		}
		for _, u := range given[i] {
			dev, ok := known[u.ID]
			if !ok {
				return nil, fmt.Errorf("the node has no device %s any more", u.ID)
			}
			if cpu, isCPU := devices.CPU(u.ID); isCPU && dev.Type == cluster.CoreType {
				own = append(own, cpu)
				continue
			}
			h.add(&dev, u)
		}
	}
	if h.env[envVisible] == "" && hasNVIDIA(known) {
		h.env[envVisible] = "void" // hides devices of other tasks from images that request all
	}
	h.pin(b.Pins, &def.Containers[i], own, known)
	return h, nil
}

func hasNVIDIA(known map[string]devices.Device) bool {
	for _, d := range known { // order-free: any suffices
		if d.NVIDIA {
			return true
		}
	}
	return false
}

// add adds a device, or a share of one.
func (h *deviceGrant) add(dev *devices.Device, u cluster.DeviceUse) {
	appendTo := func(env map[string]string, name, value string) {
		if before := env[name]; before != "" {
			value = before + "," + value
		}
		env[name] = value
	}
	appendTo(h.env, "BERTH_DEVICES", dev.ID)
	appendTo(h.env, "BERTH_DEVICE_"+strings.ReplaceAll(strings.ToUpper(dev.Type), "-", "_"), dev.ID)
	if dev.CDI != "" {
		h.cdi = append(h.cdi, dev.CDI)
	} else {
		for _, n := range dev.Nodes {
			if node := (executor.DeviceNode{Host: n.Host, Path: n.Path}); !slices.Contains(h.devices, node) {
				h.devices = append(h.devices, node)
			}
		}
	}
	if !dev.NVIDIA {
		return
	}
	appendTo(h.env, envVisible, dev.NVIDIAName)
	appendTo(h.hints, envCUDA, dev.NVIDIAName)
	if u.Share < cluster.WholeDevice {
		h.hints[envMPSShare] = strconv.Itoa(max(u.Share/10, 1))
		if u.Memory > 0 {
			ordinal := strings.Count(h.hints[envCUDA], ",")
			appendTo(h.hints, envMPSMemory, fmt.Sprintf("%d=%dM", ordinal, u.Memory/cluster.MiB))
		}
	}
}

// pin chooses the CPUs of the container: its own, or the shared ones.
func (h *deviceGrant) pin(p *pins.Pins, c *cluster.Container, own []int, known map[string]devices.Device) {
	if len(own) == 0 {
		h.cpus = p.SharedCPUs()
		return
	}
	slices.Sort(own)
	h.cpus = devices.FormatCPUs(own)
	h.env["BERTH_CPUS"] = h.cpus
	if c.Resources.CPUPinning != cluster.PinNuma {
		return
	}
	numa := map[int]bool{}
	for _, d := range known { // order-free: a set
		if cpu, ok := devices.CPU(d.ID); ok && d.Numa >= 0 && slices.Contains(own, cpu) {
			numa[d.Numa] = true
		}
	}
	h.numaNodes = devices.FormatCPUs(slices.Sorted(maps.Keys(numa)))
}

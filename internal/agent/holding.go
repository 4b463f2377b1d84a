package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// holding is what one container has of the node's devices, and on which CPUs it runs.
type holding struct {
	devices   []executor.DeviceNode
	cdi       []string
	cpus      string
	numaNodes string
	env       map[string]string // what the manifest cannot replace
	hints     map[string]string // what it can
}

// Variables by which NVIDIA's runtime and libraries find out what a container may use.
const (
	envVisible   = "NVIDIA_VISIBLE_DEVICES"
	envCUDA      = "CUDA_VISIBLE_DEVICES"
	envMPSShare  = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
	envMPSMemory = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
)

// devicesByID returns the devices of the machine. Nobody changes the map.
func (m *machine) devicesByID() map[string]devices.Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.devices
}

// holding finds out what a container is given. The error says what the node does not have, or has no more.
func (a *Agent) holding(d *cluster.Desired, def *cluster.TaskDefinition, i int) (*holding, error) {
	h := &holding{env: map[string]string{}, hints: map[string]string{}}
	known := a.machine.devicesByID()
	var own []int
	if len(d.Devices) > 0 {
		given, err := def.HandOut(d.Devices, a.machine.facts().Devices)
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
			h.give(&dev, u)
		}
	}
	if h.env[envVisible] == "" && hasNVIDIA(known) {
		h.env[envVisible] = "void" // images that ask for all get none: they would be those of others
	}
	h.pin(a, &def.Containers[i], own, known)
	return h, nil
}

func hasNVIDIA(known map[string]devices.Device) bool {
	for _, d := range known { // order-free: any will do
		if d.NVIDIA {
			return true
		}
	}
	return false
}

// give adds a device, or a share of one.
func (h *holding) give(dev *devices.Device, u cluster.DeviceUse) {
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

// pin says on which CPUs the container runs: its own, or those that all share.
func (h *holding) pin(a *Agent, c *cluster.Container, own []int, known map[string]devices.Device) {
	if len(own) == 0 {
		h.cpus = a.shared()
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

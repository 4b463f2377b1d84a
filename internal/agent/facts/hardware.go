package facts

import (
	"cmp"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/cluster"
)

// Bounds of what is reported of a machine, so that a machine with many parts has a record of usual size.
const (
	maxDrives     = 64
	maxInterfaces = 32
	maxGPUs       = 64
)

// magicCgroup2 is the type of the file system of control groups of version 2.
const magicCgroup2 = 0x63677270

// tree reads files of Linux below a folder, which is "/" but in tests.
type tree string

// text returns the content of a file without the space around it. A file that cannot be read is empty.
func (t tree) text(name string) string {
	b, err := os.ReadFile(filepath.Join(string(t), name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number returns the number in a file, or 0.
func (t tree) number(name string) int64 {
	n, err := strconv.ParseInt(t.text(name), 0, 64)
	if err != nil {
		return 0
	}
	return n
}

// names returns the entries of a folder in order.
func (t tree) names(folder string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(string(t), folder))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// link returns the last part of what a symbolic link points to, or "".
func (t tree) link(name string) string {
	to, err := os.Readlink(filepath.Join(string(t), name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// Hardware describes the parts of the machine. Root is "/". The kernel's files in /proc and /sys are the only source:
// programs such as lshw and dmidecode are on few machines.
func Hardware(root string) *cluster.Hardware {
	t := tree(root)
	h := &cluster.Hardware{
		Threads: runtime.NumCPU(), NUMANodes: 1, Drives: t.drives(), Interfaces: t.interfaces(), GPUs: t.gpus(),
		Virtualization: t.virtualization(), Distribution: t.osRelease()["PRETTY_NAME"],
	}
	t.addProcessors(h)
	if nodes := t.numbered("sys/devices/system/node", "node"); nodes > 0 {
		h.NUMANodes = nodes
	}
	h.Cgroups = cgroupVersion(filepath.Join(root, "sys/fs/cgroup"))
	if _, err := os.Stat(filepath.Join(root, "run/systemd/system")); err == nil {
		h.Init = "systemd"
	}
	return h
}

// Distributions returns the ID of the distribution in os-release, and those that it is like.
func Distributions(root string) []string {
	release := tree(root).osRelease()
	return strings.Fields(release["ID"] + " " + release["ID_LIKE"])
}

// osRelease returns the variables of the file os-release, as os-release(5) describes it.
func (t tree) osRelease() map[string]string {
	variables := map[string]string{}
	for line := range strings.Lines(cmp.Or(t.text("etc/os-release"), t.text("usr/lib/os-release"))) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			variables[name] = strings.Trim(value, `"'`)
		}
	}
	return variables
}

// numbered counts the entries of a folder that are a word and a number, such as "node0".
func (t tree) numbered(folder, prefix string) (n int) {
	for _, name := range t.names(folder) {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			n++
		}
	}
	return n
}

// addProcessors adds the model of the processors, and counts sockets and cores.
func (t tree) addProcessors(h *cluster.Hardware) {
	for line := range strings.Lines(t.text("proc/cpuinfo")) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "model name", "cpu model", "Processor":
			h.CPUModel = cmp.Or(h.CPUModel, strings.Join(strings.Fields(value), " "))
		}
	}
	const folder = "sys/devices/system/cpu"
	sockets, cores := map[string]bool{}, map[string]bool{}
	for _, name := range t.names(folder) {
		socket := t.text(filepath.Join(folder, name, "topology/physical_package_id"))
		if core := t.text(filepath.Join(folder, name, "topology/core_id")); socket != "" && core != "" {
			sockets[socket], cores[socket+"/"+core] = true, true
		}
	}
	h.Sockets, h.Cores = len(sockets), len(cores)
}

// drives returns the block devices that have a device behind them, so no loop devices, RAM disks and volumes of other
// drives. The kernel counts their size in sectors of 512 bytes.
func (t tree) drives() (all []cluster.Drive) {
	for _, name := range t.names("sys/block") {
		folder := filepath.Join("sys/block", name)
		size := t.number(filepath.Join(folder, "size")) * 512
		if t.link(filepath.Join(folder, "device")) == "" || size == 0 || len(all) == maxDrives {
			continue
		}
		all = append(all, cluster.Drive{
			Name: name, Model: t.text(filepath.Join(folder, "device/model")), Size: cluster.Bytes(size),
			Rotational: t.text(filepath.Join(folder, "queue/rotational")) == "1",
		})
	}
	return all
}

// interfaces returns the network interfaces that have a device behind them or an address of their own.
func (t tree) interfaces() (all []cluster.NetworkInterface) {
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for i := range list {
		folder := filepath.Join("sys/class/net", list[i].Name)
		found := cluster.NetworkInterface{Name: list[i].Name, MAC: list[i].HardwareAddr.String()}
		addresses, err := list[i].Addrs()
		if err != nil || list[i].Flags&net.FlagLoopback != 0 {
			continue
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				found.Addresses = append(found.Addresses, p.String())
			}
		}
		if len(found.Addresses) == 0 && t.link(filepath.Join(folder, "device")) == "" {
			continue
		}
		// an interface without a link has the speed -1, or none
		found.Speed = int(max(t.number(filepath.Join(folder, "speed")), 0))
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b cluster.NetworkInterface) int { return cmp.Compare(a.Name, b.Name) })
	return all[:min(len(all), maxInterfaces)]
}

// gpus returns the PCI devices of the classes 0300 (VGA), 0302 (3D) and 0380 (other display controllers), and
// processing accelerators (1200).
func (t tree) gpus() (all []cluster.PCIDevice) {
	const folder = "sys/bus/pci/devices"
	for _, name := range t.names(folder) {
		at := filepath.Join(folder, name)
		switch t.number(filepath.Join(at, "class")) >> 8 {
		case 0x0300, 0x0302, 0x0380, 0x1200:
		default:
			continue
		}
		if len(all) < maxGPUs {
			all = append(all, cluster.PCIDevice{
				Address: name, Driver: t.link(filepath.Join(at, "driver")),
				Vendor: strings.TrimPrefix(t.text(filepath.Join(at, "vendor")), "0x"),
				Device: strings.TrimPrefix(t.text(filepath.Join(at, "device")), "0x"),
			})
		}
	}
	return all
}

// cgroupVersion returns the version of the control groups below a folder that have controllers, or 0. On a hybrid
// machine the folder itself is no cgroup2 file system, and version 1 has the controllers.
func cgroupVersion(folder string) int {
	var fs unix.Statfs_t
	if unix.Statfs(folder, &fs) == nil && fs.Type == magicCgroup2 {
		return 2
	}
	if _, err := os.Stat(filepath.Join(folder, "memory")); err == nil {
		return 1
	}
	return 0
}

// hypervisors maps the start of the machine's vendor or product, as its firmware names it, to the hypervisor. The names
// are those of systemd-detect-virt(1).
func hypervisors() [][2]string {
	return [][2]string{
		{"KVM", "kvm"},
		{"OpenStack", "kvm"},
		{"Amazon EC2", "amazon"},
		{"QEMU", "qemu"},
		{"VMware", "vmware"},
		{"innotek GmbH", "oracle"},
		{"VirtualBox", "oracle"},
		{"Xen", "xen"},
		{"Bochs", "bochs"},
		{"Parallels", "parallels"},
		{"BHYVE", "bhyve"},
		{"Hyper-V", "microsoft"},
		{"Microsoft Corporation", "microsoft"},
		{"Apple Virtualization", "apple"},
		{"Google", "google"},
	}
}

// virtualization names the container runtime or the hypervisor around the machine, or returns "".
func (t tree) virtualization() string {
	for variable := range strings.SplitSeq(t.text("proc/1/environ"), "\x00") {
		if name, ok := strings.CutPrefix(variable, "container="); ok && name != "" {
			return name
		}
	}
	if _, err := os.Stat(filepath.Join(string(t), ".dockerenv")); err == nil {
		return "docker"
	}
	flagged := slices.Contains(strings.Fields(t.text("proc/cpuinfo")), "hypervisor")
	for _, file := range []string{"product_name", "sys_vendor", "board_vendor", "bios_vendor"} {
		text := t.text("sys/class/dmi/id/" + file)
		for _, h := range hypervisors() {
			// hardware of the same makers has no hypervisor around it
			if strings.HasPrefix(text, h[0]) && (flagged || runtime.GOARCH != "amd64") {
				return h[1]
			}
		}
	}
	if flagged {
		return "vm"
	}
	return ""
}

package facts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// writeTree writes files, and links for contents that begin with "-> ", and returns their folder.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if len(content) > 3 && content[:3] == "-> " {
			err = os.Symlink(content[3:], path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestHardware reads the files of a virtual machine with two sockets, two memory domains, a GPU without a driver and
// drives of several kinds.
func TestHardware(t *testing.T) {
	t.Parallel()
	root := writeTree(t, map[string]string{
		"etc/os-release": "# a comment\nID=ubuntu\nID_LIKE=\"debian\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n",
		"proc/cpuinfo":   "processor : 0\nmodel name\t: AMD  EPYC 7763\nflags\t: fpu hypervisor\n",
		"sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
		"sys/devices/system/cpu/cpu0/topology/core_id":             "0\n",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id": "0\n",
		"sys/devices/system/cpu/cpu1/topology/core_id":             "0\n",
		"sys/devices/system/cpu/cpu2/topology/physical_package_id": "1\n",
		"sys/devices/system/cpu/cpu2/topology/core_id":             "0\n",
		"sys/devices/system/node/node0/cpulist":                    "0-1",
		"sys/devices/system/node/node1/cpulist":                    "2",
		"sys/devices/system/node/possible":                         "0-1",
		"sys/class/dmi/id/sys_vendor":                              "QEMU\n",
		"sys/block/vda/size":                                       "2048\n",
		"sys/block/vda/device":                                     "-> ../../../virtio0",
		"sys/block/vda/queue/rotational":                           "1\n",
		"sys/block/nvme0n1/size":                                   "4096\n",
		"sys/block/nvme0n1/queue/rotational":                       "0\n",
		"sys/block/nvme0n1/device":                                 "-> ../../nvme0",
		"sys/block/loop0/size":                                     "8\n",
		"sys/block/sr0/size":                                       "0\n",
		"sys/block/sr0/device":                                     "-> ../../sr",
		"sys/bus/pci/devices/0000:00:01.0/class":                   "0x060100\n",
		"sys/bus/pci/devices/0000:01:00.0/class":                   "0x030200\n",
		"sys/bus/pci/devices/0000:01:00.0/vendor":                  "0x10de\n",
		"sys/bus/pci/devices/0000:01:00.0/device":                  "0x20b5\n",
		"run/systemd/system/x":                                     "",
		"sys/fs/cgroup/memory/tasks":                               "",
	})
	got := Hardware(root)
	got.Interfaces, got.Threads = nil, 0 // those of this machine
	want := &cluster.Hardware{
		CPUModel: "AMD EPYC 7763", Sockets: 2, Cores: 2, NUMANodes: 2, Cgroups: 1, Virtualization: "qemu",
		Distribution: "Ubuntu 24.04 LTS", Init: "systemd",
		Drives: []cluster.Drive{{Name: "nvme0n1", Size: 2 << 20}, {Name: "vda", Size: 1 << 20, Rotational: true}},
		GPUs:   []cluster.PCIDevice{{Address: "0000:01:00.0", Vendor: "10de", Device: "20b5"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hardware (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ubuntu", "debian"}, Distributions(root)); diff != "" {
		t.Errorf("distributions (-want +got):\n%s", diff)
	}
}

// TestHardwareOfNothing checks that a machine without any of the files has no facts, and that nothing fails.
func TestHardwareOfNothing(t *testing.T) {
	t.Parallel()
	got := Hardware(t.TempDir())
	got.Interfaces, got.Threads = nil, 0
	if diff := cmp.Diff(&cluster.Hardware{NUMANodes: 1}, got); diff != "" {
		t.Errorf("hardware (-want +got):\n%s", diff)
	}
}

func TestVirtualization(t *testing.T) {
	t.Parallel()
	for want, files := range map[string]map[string]string{
		"":       {"proc/cpuinfo": "flags : fpu", "sys/class/dmi/id/sys_vendor": "Google"},
		"vm":     {"proc/cpuinfo": "flags : fpu hypervisor"},
		"google": {"proc/cpuinfo": "flags : hypervisor", "sys/class/dmi/id/sys_vendor": "Google"},
		"podman": {"proc/1/environ": "PATH=/bin\x00container=podman\x00"},
		"docker": {".dockerenv": ""},
	} {
		if got := tree(writeTree(t, files)).virtualization(); got != want {
			t.Errorf("got %q, want %q for %v", got, want, files)
		}
	}
}

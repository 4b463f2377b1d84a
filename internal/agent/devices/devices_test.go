package devices

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// tree is a machine's files; a text that begins with "-> " is a link.
type tree map[string]string

func (m tree) write(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range m {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o750)
		if to, link := strings.CutPrefix(text, "-> "); link && err == nil {
			err = os.Symlink(to, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	uuid0 = "GPU-11111111-2222-3333-4444-555555555555"
	uuid1 = "GPU-66666666-7777-8888-9999-000000000000"
)

// nvidia has two NVIDIA GPUs. The driver has initialised one of them.
var nvidia = tree{
	"proc/driver/nvidia/gpus/0000:3B:00.0/information": "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   250\nGPU UUID: \t " +
		uuid0 + "\nDevice Minor: \t 0\n",
	"proc/driver/nvidia/gpus/0000:86:00.0/information": "Model: \t\t NVIDIA A100-SXM4-40GB\nGPU UUID: \t " +
		"GPU-????????-????-????-????-????????????\nDevice Minor: \t 1\n",
	"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "", "dev/nvidia-uvm": "",
	"sys/bus/pci/devices/0000:3b:00.0/numa_node": "0\n", "sys/bus/pci/devices/0000:86:00.0/numa_node": "-1\n",
}

func with(trees ...tree) tree {
	all := tree{}
	for _, t := range trees {
		maps.Copy(all, t)
	}
	return all
}

func nodes(names ...string) (all []Node) {
	for _, n := range names {
		all = append(all, Node{n, n})
	}
	return all
}

func TestFind(t *testing.T) {
	smi := func(text string, err error) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return []byte(text), err }
	}
	a100 := func(id, name string, memory cluster.Bytes, numa int, minor string) Device {
		return Device{
			Device: cluster.Device{ID: id, Type: "gpu", Model: "A100-SXM4-40GB", Memory: memory, Numa: numa},
			Nodes:  nodes("/dev/nvidia"+minor, "/dev/nvidiactl", "/dev/nvidia-uvm"), NVIDIA: true, NVIDIAName: name,
		}
	}
	byCDI := func(d Device, name string) Device { d.CDI = name; return d }
	for name, c := range map[string]struct {
		files  tree
		finder Finder
		want   []Device
		fault  string
	}{
		"nothing": {},
		"GPUs of NVIDIA by the driver's files": {
			files: nvidia,
			want:  []Device{a100(uuid0, uuid0, 0, 0, "0"), a100("pci-0000:86:00.0", "1", 0, -1, "1")},
		},
		"GPUs of NVIDIA by its program": {
			files: nvidia,
			finder: Finder{SMI: smi(uuid0+", NVIDIA A100-SXM4-40GB, 40960, 00000000:3B:00.0\n"+uuid1+", "+
				"NVIDIA A100-SXM4-40GB, 40960, 00000000:86:00.0\n", nil)},
			want: []Device{a100(uuid0, uuid0, 40*cluster.GiB, 0, "0"), a100(uuid1, uuid1, 40*cluster.GiB, -1, "1")},
		},
		"the program fails": {
			files:  nvidia,
			finder: Finder{SMI: smi("", errors.New("the driver is of another version"))},
			want:   []Device{a100(uuid0, uuid0, 0, 0, "0"), a100("pci-0000:86:00.0", "1", 0, -1, "1")},
			fault:  "NVIDIA's GPUs: the driver is of another version",
		},
		"a GPU whose file is gone": {
			files: func() tree { m := with(nvidia); delete(m, "dev/nvidia0"); return m }(),
			want:  []Device{a100("pci-0000:86:00.0", "1", 0, -1, "1")},
		},
		"GPUs of NVIDIA with a specification": {
			files: with(nvidia, tree{"etc/cdi/nvidia.json": `{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [
				{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
				{"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1"}]}},
				{"name": "` + uuid0 + `", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
				{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]}}]}`}),
			want: []Device{
				byCDI(a100(uuid0, uuid0, 0, 0, "0"), "nvidia.com/gpu="+uuid0),
				byCDI(a100("pci-0000:86:00.0", "1", 0, -1, "1"), "nvidia.com/gpu=1"),
			},
		},
		"a GPU of AMD beside graphics": {
			files: tree{
				"dev/kfd": "", "dev/dri/renderD128": "", "dev/dri/renderD129": "",
				"sys/class/drm/renderD128/device/vendor":              "0x8086\n",
				"sys/class/drm/renderD129/device/vendor":              "0x1002\n",
				"sys/class/drm/renderD129/device/unique_id":           "72f1a40c3a3e6b1c\n",
				"sys/class/drm/renderD129/device/product_name":        "AMD Instinct MI210\n",
				"sys/class/drm/renderD129/device/numa_node":           "1\n",
				"sys/class/drm/renderD129/device/mem_info_vram_total": "68702699520\n",
			},
			want: []Device{{
				Device: cluster.Device{
					ID: "amd-72f1a40c3a3e6b1c", Type: "gpu", Model: "AMD Instinct MI210",
					Memory: 68702699520, Numa: 1,
				},
				Nodes: nodes("/dev/dri/renderD129", "/dev/kfd"),
			}},
		},
		"devices known only from specifications": {
			files: tree{
				"var/run/cdi/fpga.yaml": "cdiVersion: 0.6.0\nkind: example.com/fpga\ndevices:\n- name: a\n  " +
					"containerEdits:\n    env: [A=1]\n- name: b\n  containerEdits:\n    env: [B=1]\n",
				"etc/cdi/broken.json": "{",
			},
			want: []Device{
				{Device: cluster.Device{ID: "example.com/fpga=a", Type: "fpga", Numa: -1}, CDI: "example.com/fpga=a"},
				{Device: cluster.Device{ID: "example.com/fpga=b", Type: "fpga", Numa: -1}, CDI: "example.com/fpga=b"},
			},
			fault: "broken.json",
		},
		"stated": {
			files: tree{"dev/fpga0": "-> /dev/null", "sys/dev/char/1:3/device/numa_node": "1\n"},
			finder: Finder{Stated: stated(t,
				"type=fpga,path=/dev/fpga0:/dev/fpga,model=X1,memory=8GiB", "type=licence,count=2",
				"type=fpga,path=/dev/fpga1", "path=/dev/fpga2,model=X2", "type=tpu,cdi=example.com/tpu=0")},
			want: []Device{
				{
					Device: cluster.Device{ID: "fpga0", Type: "fpga", Model: "X1", Memory: 8 * cluster.GiB, Numa: 1},
					Nodes:  []Node{{"/dev/fpga0", "/dev/fpga"}},
				},
				{Device: cluster.Device{ID: "licence-0", Type: "licence", Numa: -1}},
				{Device: cluster.Device{ID: "licence-1", Type: "licence", Numa: -1}},
			},
			fault: "--device type=fpga,path=/dev/fpga1: /dev/fpga1 is not there\n" +
				"--device path=/dev/fpga2,model=X2: such a device is not detected: set its type\n" +
				"--device type=tpu,cdi=example.com/tpu=0: no CDI specification has example.com/tpu=0",
		},
		"more about what is found": {
			files: nvidia,
			finder: Finder{Stated: stated(t, "path=/dev/nvidia1,model=A100,memory=40GiB,numa=1,id=gpu1",
				"type=x,id="+uuid0)},
			want: []Device{a100(uuid0, uuid0, 0, 0, "0"), func() Device {
				d := a100("gpu1", "1", 40*cluster.GiB, 1, "1")
				d.Model = "A100"
				return d
			}()},
			fault: uuid0 + ": two devices have this id; the first is used",
		},
		"cores": {
			files: tree{
				"sys/devices/system/node/node0/cpulist": "0-1,4\n",
				"sys/devices/system/node/node1/cpulist": "2-3\n", "sys/devices/system/node/node2/cpulist": "\n",
			},
			finder: Finder{Cores: []int{1, 2}},
			want: []Device{
				{Device: cluster.Device{ID: "cpu1", Type: "core", Numa: 0}},
				{Device: cluster.Device{ID: "cpu2", Type: "core", Numa: 1}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := c.finder
			f.Root = c.files.write(t)
			got, err := f.Find(t.Context())
			if diff := cmp.Diff(c.want, got); diff != "" && len(c.want)+len(got) > 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if (text == "") != (c.fault == "") || !strings.Contains(text, c.fault) {
				t.Errorf("error %q, want %q", text, c.fault)
			}
			facts := cluster.Facts{}
			for _, d := range got {
				facts.Devices = append(facts.Devices, d.Device)
			}
			if err := facts.Validate(); err != nil {
				t.Errorf("servers would refuse: %v", err)
			}
		})
	}
}

func stated(t *testing.T, texts ...string) (all []Stated) {
	t.Helper()
	for _, text := range texts {
		s, err := ParseStated(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// The error lists all faults of a statement.
func TestParseStatedFaults(t *testing.T) {
	for text, want := range map[string][]string{
		"":                            {`"": want key=value`, "type is missing"},
		"model=A100":                  {"type is missing"},
		"type=core":                   {`means the node's cores`},
		"type=GPU,memory=much,numa=x": {`type "GPU"`, `memory "much"`, `numa "x"`},
		"type=gpu,type=gpu,count=0,colour=red,path=dev/x": {
			"type is repeated", `count "0"`,
			`"colour" is not known`, `path "dev/x"`,
		},
		"type=gpu,path=/dev/x,cdi=example.com/gpu=0": {"path and cdi exclude each other"},
		"cdi=gpu": {"vendor/class=name", "type is missing"},
		"type=gpu,id=" + strings.Repeat("x", 300): {"id "},
	} {
		_, err := ParseStated(text)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: got %v, want it to say %s", text, err, part)
			}
		}
		if err != nil && len(strings.Split(err.Error(), "\n")) != len(want) {
			t.Errorf("%q: got %v, want %d faults", text, err, len(want))
		}
	}
}

func TestCPUs(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "3,1,2": "1-3", "0-3,8,2-4": "0-4,8", "1023\n": "1023", "": "",
		"1-": "", "4-2": "", "1024": "", "-1": "", "a": "",
	} {
		cpus, err := ParseCPUs(text)
		if got := FormatCPUs(cpus); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", text, got, err, want)
		}
	}
	for id, want := range map[string]int{
		"cpu0": 0, "cpu12": 12, "cpu01": -1, "cpu": -1, "cpu-1": -1, "gpu0": -1,
		"cpu2000": -1,
	} {
		got, ok := CPU(id)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %d, want %d", id, got, want)
		}
	}
	if all, err := Usable(); err != nil || len(all) == 0 {
		t.Errorf("the CPUs of this machine: %v, %v", all, err)
	}
}

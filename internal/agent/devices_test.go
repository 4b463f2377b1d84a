package agent

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

func gpu(id string, numa int) devices.Device {
	return devices.Device{
		Device: cluster.Device{ID: id, Type: "gpu", Model: "A100", Memory: 40 * cluster.GiB, Numa: numa}, NVIDIA: true,
		NVIDIAName: "GPU-" + id,
		Nodes:      []devices.Node{{Host: "/dev/" + id, Path: "/dev/" + id}, {Host: "/dev/ctl", Path: "/dev/ctl"}},
	}
}

func core(cpu string, numa int) devices.Device {
	return devices.Device{Device: cluster.Device{ID: "cpu" + cpu, Type: cluster.CoreType, Numa: numa}}
}

// specOf returns the executor's spec of a run.
func (w *world) specOf(id executor.ID) executor.Spec {
	w.t.Helper()
	w.executor.mu.Lock()
	defer w.executor.mu.Unlock()
	if w.executor.runs[id] == nil {
		w.t.Fatalf("there is no run %s", id)
	}
	return w.executor.runs[id].spec
}

// devicesIn returns the device variables of a spec.
func devicesIn(s executor.Spec) (env []string) {
	for _, kv := range s.Env {
		if strings.HasPrefix(kv, "BERTH_DEVICE") || strings.HasPrefix(kv, "BERTH_CPUS") ||
			strings.Contains(kv, "NVIDIA") || strings.HasPrefix(kv, "CUDA") {
			env = append(env, kv)
		}
	}
	return env
}

// Each container of a task gets exactly the devices that it requests, and the variables that name them.
func TestDevicesAreHandedOver(t *testing.T) {
	inWorld(t, func(w *world) {
		w.devices = []devices.Device{
			gpu("a", 0), gpu("b", 0),
			{Device: cluster.Device{ID: "f", Type: "fpga", Numa: -1}, CDI: "example.com/fpga=f"},
		}
		w.restart()
		if got := w.agent.machine.Facts().Devices; len(got) != 3 || got[0].ID != "a" {
			t.Errorf("the agent reports %+v", got)
		}
		def := definition("train", "one", "two", "none", "part")
		def.Containers[0].Resources.Devices = []cluster.DeviceRequest{{Type: "gpu", Count: 1}, {Type: "fpga", Count: 1}}
		def.Containers[1].Resources.Devices = []cluster.DeviceRequest{
			{Type: "gpu", Share: 250, Memory: 10 * cluster.GiB},
		}
		def.Containers[2].Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
		def.Containers[3].Resources.Devices = []cluster.DeviceRequest{{Type: "gpu", Share: 500}}
		def.Containers[3].Env = map[string]string{"CUDA_VISIBLE_DEVICES": "0"}
		d := w.desired("s1", def, cluster.KindService)
		d.Devices = []cluster.DeviceUse{
			{ID: "a", Share: 1000},
			{ID: "b", Share: 750, Memory: 10 * cluster.GiB},
			{ID: "f", Share: 1000},
		}
		w.assign(d, def)
		w.want("s1", cluster.StateRunning, "")

		one, two, none, part := w.specOf("s1-0-1"), w.specOf("s1-1-1"), w.specOf("s1-2-1"), w.specOf("s1-3-1")
		files := func(names ...string) (all []executor.DeviceNode) {
			for _, n := range names {
				all = append(all, executor.DeviceNode{Host: n, Path: n})
			}
			return all
		}
		type handed struct {
			Devices []executor.DeviceNode
			CDI     []string
			Env     []string
		}
		for i, c := range []struct {
			got  executor.Spec
			want handed
		}{
			{one, handed{files("/dev/a", "/dev/ctl"), []string{"example.com/fpga=f"}, []string{
				"BERTH_DEVICES=a,f", "BERTH_DEVICE_FPGA=f", "BERTH_DEVICE_GPU=a", "CUDA_VISIBLE_DEVICES=GPU-a",
				"NVIDIA_VISIBLE_DEVICES=GPU-a",
			}}},
			{two, handed{files("/dev/b", "/dev/ctl"), nil, []string{
				"BERTH_DEVICES=b", "BERTH_DEVICE_GPU=b", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M",
				"CUDA_VISIBLE_DEVICES=GPU-b", "NVIDIA_VISIBLE_DEVICES=GPU-b",
			}}},
			{none, handed{Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}},
			{part, handed{files("/dev/b", "/dev/ctl"), nil, []string{
				"BERTH_DEVICES=b", "BERTH_DEVICE_GPU=b", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50",
				"CUDA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=GPU-b",
			}}},
		} {
			if diff := cmp.Diff(c.want, handed{c.got.Devices, c.got.CDI, devicesIn(c.got)}); diff != "" {
				t.Errorf("container %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// A device that disappears is reported. A later assignment with it is rejected; tasks that hold it continue until they
// are made again.
func TestDevicesThatVanish(t *testing.T) {
	inWorld(t, func(w *world) {
		w.devices = []devices.Device{gpu("a", 0), gpu("b", 0)}
		w.restart()
		def := definition("train", "app")
		def.Containers[0].Resources.Devices = []cluster.DeviceRequest{{Type: "gpu", Count: 1}}
		d := w.desired("s1", def, cluster.KindService)
		d.Devices = []cluster.DeviceUse{{ID: "b", Share: 1000}}
		w.assign(d, def)
		w.mu.Lock()
		w.devices = w.devices[:1]
		w.mu.Unlock()
		w.pass(probeEvery + time.Second)
		w.want("s1", cluster.StateRunning, "")
		sent := w.reportedFacts()
		if sent == nil || len(sent.Devices) != 1 || sent.Devices[0].ID != "a" {
			t.Errorf("the server received %+v", sent)
		}
		second := w.desired("s2", def, cluster.KindService)
		second.Task, second.Devices = cluster.ServiceTask("default", "web", 1, 1), d.Devices
		w.assign(second, def)
		if o := w.want("s2", cluster.StateRejected,
			cluster.ReasonDevice); o.Message != "the node has no device b any more" {
			t.Errorf("message %q", o.Message)
		}
	})
}

// A task with cores of its own runs on these. Other tasks leave the cores before it begins and return after its end,
// also across a restart of the agent.
func TestReservedCores(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cpus = []int{0, 1, 2, 3}
		w.devices = []devices.Device{core("1", 0), core("2", 1), core("3", 1)}
		w.restart()
		plain := definition("plain", "app")
		w.service("p1", plain)
		if got := w.specOf("p1-0-1").CPUs; got != "0-3" {
			t.Errorf("a task alone runs on %q", got)
		}
		def := definition("pinned", "app", "side")
		def.Containers[0].Resources = cluster.Resources{CPU: 2000, CPUPinning: cluster.PinNuma}
		d := w.desired("s1", def, cluster.KindService)
		d.Task, d.Devices = cluster.ServiceTask("default", "web", 1, 1),
			[]cluster.DeviceUse{{ID: "cpu2", Share: 1000}, {ID: "cpu3", Share: 1000}}
		w.assign(d, def)
		app, side := w.specOf("s1-0-1"), w.specOf("s1-1-1")
		if app.CPUs != "2-3" || app.NumaNodes != "1" || side.CPUs != "0-1" || side.NumaNodes != "" {
			t.Errorf("the pinned container runs on %q with memory of %q, the one beside it on %q", app.CPUs,
				app.NumaNodes, side.CPUs)
		}
		if got := devicesIn(app); !slices.Equal(got, []string{"BERTH_CPUS=2-3"}) {
			t.Errorf("it got %q", got)
		}
		w.wantMoved(map[executor.ID][]string{"p1-0-1": {"0-1"}})
		w.restart()
		w.wantMoved(map[executor.ID][]string{"p1-0-1": {"0-1", "0-1"}, "s1-1-1": {"0-1"}})
		late := w.desired("p2", plain, cluster.KindService)
		late.Task = cluster.ServiceTask("default", "web", 1, 2)
		w.assign(late, plain)
		if got := w.specOf("p2-0-1").CPUs; got != "0-1" {
			t.Errorf("a later task runs on %q", got)
		}
		w.stopTask(d, false)
		w.pass(time.Minute)
		w.wantMoved(map[executor.ID][]string{"p1-0-1": {"0-1", "0-1", "0-3"}, "p2-0-1": {"0-3"}, "s1-1-1": {"0-1"}})
	})
}

// reportedFacts returns the newest facts that the server has.
func (w *world) reportedFacts() (facts *cluster.Facts) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if n := len(w.server.regs); n > 0 {
		facts = &w.server.regs[n-1].Facts
	}
	for i := range w.server.reports {
		if f := w.server.reports[i].Facts; f != nil {
			facts = f
		}
	}
	return facts
}

// wantMoved compares the CPUs that containers were moved to.
func (w *world) wantMoved(want map[executor.ID][]string) {
	w.t.Helper()
	w.executor.mu.Lock()
	defer w.executor.mu.Unlock()
	if diff := cmp.Diff(want, w.executor.moved); diff != "" {
		w.t.Errorf("moved (-want +got):\n%s", diff)
	}
}

// The agent reports the images on the node, by their normal names, and changes of them at most every five minutes.
func TestImagesAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		have := func(names ...string) {
			w.executor.mu.Lock()
			defer w.executor.mu.Unlock()
			w.executor.images = names
		}
		want := func(when string, names ...string) {
			t.Helper()
			if sent := w.reportedFacts(); !slices.Equal(sent.Images, names) {
				t.Errorf("%s: the server knows of %q, want %q", when, sent.Images, names)
			}
		}
		have("redis:7", "sha256:0123", "docker.io/library/redis:7", "a.example/app")
		w.restart()
		want("at the start", "a.example/app:latest", "docker.io/library/redis:7")
		have("redis:8")
		w.pass(probeEvery + time.Second)
		want("after a change", "docker.io/library/redis:8")
		have("redis:9")
		w.pass(probeEvery + time.Second)
		want("soon after another", "docker.io/library/redis:8")
		w.pass(imagesReportEvery)
		want("later", "docker.io/library/redis:9")

		many := []string{}
		for i := range 2 * cluster.MaxNodeImages {
			many = append(many, "new:"+strconv.Itoa(i))
		}
		def := definition("web", "app")
		def.Containers[0].Image = "used"
		w.service("s1", def)
		have(append(many, "used")...)
		w.pass(imagesReportEvery + probeEvery)
		if sent := w.reportedFacts().Images; len(sent) != cluster.MaxNodeImages ||
			!slices.Contains(sent, "docker.io/library/used:latest") ||
			!slices.Contains(sent, "docker.io/library/new:0") {
			t.Errorf("%d of many images are reported, without those that count: %q", len(sent), sent)
		}
	})
}

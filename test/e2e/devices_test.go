package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// holders is a service of three tasks. Each reserves a device, and tries to open it and the other one.
const holders = `
kind: TaskDefinition
name: holder
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'for f in /dev/fpga-0 /dev/fpga-1; do (exec 3<$f) 2>/dev/null && echo "opens $f"; done; echo "has $BERTH_DEVICES $BERTH_DEVICE_FPGA"; exec sleep 100000']
    resources: {cpu: 10m, memory: 16MiB, devices: [{type: fpga, models: [X1]}]}
grace: 1s
---
kind: Service
name: holder
definition: holder
count: 3
`

// device makes a file for a device of the kernel, as a driver would.
func device(t *testing.T, path, of string) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(of, &st); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(path, syscall.S_IFCHR|0o600, int(st.Rdev)); err != nil {
		t.Fatal(err)
	}
}

// Two tasks get a device each, and can open only their own. A third task waits with a reason until a device is free. A
// missing device is shown with its task.
func TestDevicesAreTheirTasks(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	s := harness.New(t, harness.Containerd)
	zero, one := filepath.Join(s.Dir, "fpga-0"), filepath.Join(s.Dir, "fpga-1")
	device(t, zero, "/dev/loop-control")
	device(t, one, "/dev/btrfs-control")
	s.Server()
	flags := []string{
		"--device", "type=fpga,model=X1,path=" + zero + ":/dev/fpga-0", "--device",
		"type=fpga,model=X1,path=" + one + ":/dev/fpga-1",
	}
	agent := s.Agent(flags...)
	s.Berth("status", "node/"+harness.NodeName).Want(t, 0, "2 × fpga X1")
	s.Berth("run", "--detach", s.Write("holders.yaml", holders)).Want(t, 0)

	live := placed(s, "holder", 2)
	said := map[string]bool{}
	s.Eventually(soon, func() error {
		for _, task := range live {
			r := s.Berth("logs", string(task.ID))
			if !strings.Contains(r.Stdout, "has ") {
				return fmt.Errorf("%s has not said what it has: %v", task.ID, r)
			}
			said[strings.TrimSpace(r.Stdout)] = true
		}
		return nil
	})
	for _, id := range []string{"fpga-0", "fpga-1"} {
		if want := fmt.Sprintf("opens /dev/%[1]s\nhas %[1]s %[1]s", id); !said[want] || len(said) != 2 {
			t.Errorf("the tasks said %v; want one to say %q and no other to open it", said, want)
		}
	}
	s.Berth("status", "service/holder").Want(t, 0, "fpga of model X1")
	s.Eventually(soon, func() error { return waitsFor(s, "holder", cluster.ReasonDevice) })

	// The device of one vanishes: it is shown. The task of the other makes room for the third.
	agent.Kill()
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	s.Agent(flags...)
	s.Eventually(soon, func() error {
		n, err := s.Client().Node(t.Context(), harness.NodeName)
		if err == nil && (len(n.LostDevices) != 1 || n.LostDevices[0].ID != "fpga-1" || len(n.Facts.Devices) != 1) {
			err = fmt.Errorf("lost devices %+v, devices %+v", n.LostDevices, n.Facts.Devices)
		}
		return err
	})
	s.Berth("status", "node/"+harness.NodeName).Want(t, 0, "device fpga-1 is gone")
	samePids(t, live, placed(s, "holder", 2))
	s.Berth("stop", "--detach", "service/holder").Want(t, 0)
	running(t, s, "holder", 0)
	s.Berth("start", "--detach", "service/holder").Want(t, 0)
	placed(s, "holder", 1)
}

// placed waits until that many tasks of a service run and the others wait for their place.
func placed(s *harness.Site, service string, count int) (live []api.TaskView) {
	s.Eventually(soon, func() error {
		live = nil
		for _, task := range alive(s, service) {
			if task.State == cluster.StateRunning && task.Health == cluster.HealthHealthy {
				live = append(live, task)
			} else if task.Node != "" {
				return fmt.Errorf("%s is %s, %s: %s", task.ID, task.State, task.Health, task.Message)
			}
		}
		if len(live) != count {
			return fmt.Errorf("%d tasks run, want %d", len(live), count)
		}
		return nil
	})
	return live
}

// waitsFor returns nil once a task of the service waits for that reason.
func waitsFor(s *harness.Site, service string, reason cluster.ReasonCode) error {
	for _, v := range s.Tasks(client.TaskFilter{Service: service}) {
		if v.Node == "" && v.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("no task of %s waits for %s", service, reason)
}

// pinned is a service whose tasks have a core each, and a service whose tasks share the other cores.
const pinned = `
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'echo "own $BERTH_CPUS"; exec sleep 100000']
    resources: {cpu: %[3]s, memory: 16MiB, cpu_pinning: %[2]s}
grace: 1s
---
kind: Service
name: %[1]s
definition: %[1]s
count: 1
`

// Two tasks with a core each run on different cores. A task without a core avoids them while there are others, also
// after a restart of the agent. It can use a core again when the core's task ends.
func TestCoresAreTheirTasks(t *testing.T) {
	every, err := devices.Usable()
	if err != nil {
		t.Fatal(err)
	}
	if len(every) < 2 {
		testkit.Skip(t, "needs two cores")
	}
	one, two := every[0], every[1]
	rest := func(held ...int) string {
		return devices.FormatCPUs(slices.DeleteFunc(slices.Clone(every), func(cpu int) bool {
			return slices.Contains(held, cpu)
		}))
	}
	offer := []string{"--cores", devices.FormatCPUs(every[:2])}
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Server()
		agent := s.Agent(offer...)
		put := func(name, pinning, cpu string) api.TaskView {
			s.Berth("run", s.Write(name+".yaml", fmt.Sprintf(pinned, name, pinning, cpu))).Want(t, 0)
			return running(t, s, name, 1)[0]
		}
		shared := put("shared", "none", "0")
		want := func(task api.TaskView, cpus string) {
			t.Helper()
			s.Eventually(soon, func() error {
				got, err := allowed(task.Containers[0].Pid)
				if err == nil && got != cpus {
					err = fmt.Errorf("%s runs on %q, want %q", task.ID, got, cpus)
				}
				return err
			})
		}
		want(shared, rest())
		first := put("first", "numa", "1")
		want(first, strconv.Itoa(one))
		s.Berth("logs", "service/first").Want(t, 0, "own "+strconv.Itoa(one))
		want(shared, rest(one))
		agent.Kill()
		agent = s.Agent(offer...)
		second := put("second", "cores", "1")
		want(second, strconv.Itoa(two))
		want(first, strconv.Itoa(one))
		s.Berth("stop", "--detach", "service/first").Want(t, 0)
		want(shared, rest(two))
		agent.Kill()
		s.Agent(offer...)
		want(second, strconv.Itoa(two))
		s.Berth("stop", "--detach", "service/second").Want(t, 0)
		want(shared, rest())
	})
}

// allowed returns the CPUs that a process may run on.
func allowed(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if cpus, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(cpus), nil
		}
	}
	return "", errors.New("the kernel does not show on which CPUs a process may run")
}

// specified is a vendor's device specification of a machine with two GPUs: a device file for each, and for containers a
// variable and a folder with the driver's programs.
const specified = `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [
	{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "hostPath": %[1]q}], "env": ["DRIVER_GPU=0"]}},
	{"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu1", "hostPath": %[2]q}], "env": ["DRIVER_GPU=1"]}}],
	"containerEdits": {"mounts": [{"hostPath": %[3]q, "containerPath": "/usr/local/driver", "options": ["ro", "bind"]}]}}`

// trainers is a job of three tasks that request a GPU each, on nodes with a label for them.
const trainers = `
kind: TaskDefinition
name: train
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'ls /dev/gpu?; cat /usr/local/driver/version; echo "gpu $DRIVER_GPU of $BERTH_DEVICE_GPU"; while ! test -e /tmp/end; do sleep 0.2; done']
    resources: {cpu: 10m, memory: 16MiB, devices: [{type: gpu}]}
---
kind: Job
name: train
steps:
  - name: all
    definition: train@1
    count: 3
    placement: {constraints: [{attribute: label.purpose, value: training}]}
`

// The agent finds a machine's GPUs by the specifications of the vendor, and containerd gives each task one of them. A
// task without a free GPU waits with a reason, until another task ends. The reason names nodes without the label.
func TestDevicesBySpecification(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	s := harness.New(t, harness.Containerd)
	specs, driver := filepath.Join(s.Dir, "cdi"), filepath.Join(s.Dir, "driver")
	zero, one := filepath.Join(s.Dir, "gpu-0"), filepath.Join(s.Dir, "gpu-1")
	device(t, zero, "/dev/loop-control")
	device(t, one, "/dev/btrfs-control")
	for _, dir := range []string{specs, driver} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		filepath.Join(specs, "example.json"): fmt.Sprintf(specified, zero, one, driver),
		filepath.Join(driver, "version"):     "driver 7\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Server()
	s.Berth("agent", "--cdi-spec-dir", filepath.Join(s.Dir, "none"), "--cores", "none").Want(t, 2, "--cdi-spec-dir",
		"--cores")
	agent := s.Agent("--cdi-spec-dir", specs)
	s.Berth("status", "node/"+harness.NodeName).Want(t, 0, "2 × gpu")
	s.Berth("run", "--detach", s.Write("train.yaml", trainers)).Want(t, 0)
	s.Eventually(soon, func() error {
		for _, v := range s.Tasks(client.TaskFilter{Job: "train"}) {
			if v.Reason != cluster.ReasonConstraint {
				return fmt.Errorf("%s waits for %s: %s", v.ID, v.Reason, v.Message)
			}
		}
		return nil
	})
	s.Berth("explain", "train.1.all.0").Want(t, 0, "label.purpose = training")
	agent.Kill()
	s.Agent("--cdi-spec-dir", specs, "--label", "purpose=training")

	var live []api.TaskView
	s.Eventually(soon, func() error {
		live = nil
		waits := 0
		for _, v := range s.Tasks(client.TaskFilter{Job: "train"}) {
			if v.State == cluster.StateRunning {
				live = append(live, v)
			} else if v.Reason == cluster.ReasonDevice {
				waits++
			}
		}
		if len(live) != 2 || waits != 1 {
			return fmt.Errorf("%d tasks run and %d wait for a GPU", len(live), waits)
		}
		return nil
	})
	said := map[string]bool{}
	for _, v := range live {
		s.Eventually(soon, func() error {
			r := s.Berth("logs", string(v.ID))
			if !strings.Contains(r.Stdout, "gpu ") {
				return fmt.Errorf("%s has not said what it has: %v", v.ID, r)
			}
			said[strings.TrimSpace(r.Stdout)] = true
			return nil
		})
	}
	for _, n := range []string{"0", "1"} {
		if want := fmt.Sprintf("/dev/gpu%[1]s\ndriver 7\ngpu %[1]s of example.com/gpu=%[1]s", n); !said[want] {
			t.Errorf("the tasks said %v; want one to say %q", said, want)
		}
	}
	s.Berth("exec", string(live[0].ID), "--", "sh", "-c", ": >/tmp/end").Want(t, 0)
	s.Eventually(soon, func() error {
		for _, v := range s.Tasks(client.TaskFilter{Job: "train"}) {
			if v.State != cluster.StateRunning && v.ID != live[0].ID {
				return fmt.Errorf("%s is %s: %s", v.ID, v.State, v.Message)
			}
		}
		return nil
	})
}

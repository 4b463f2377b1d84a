package cluster_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// whole is a definition that uses every field and has no fault.
const whole = `{
	"name": "web", "version": 1, "labels": {"team/owner": "search"},
	"containers": [
		{"name": "prepare", "image": "web:1", "init": true, "command": ["/bin/prepare"]},
		{"name": "web", "image": "registry.example:5000/team/web:1.2", "args": ["-v"], "dir": "/srv",
		 "env": {"MODE": "fast"}, "user": "1000:1000", "read_only_root": true, "capabilities": ["NET_BIND_SERVICE"],
		 "files": [{"path": "/etc/web.conf", "content": "a=b", "mode": "0600"}],
		 "mounts": [{"volume": "data", "path": "/data"}], "tmpfs": [{"path": "/tmp", "size": "16MiB"}],
		 "resources": {"cpu": "250m", "memory": "64MiB", "cpu_limit": "500m"}, "after": ["side"]},
		{"name": "side", "image": "side@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		 "optional": true}
	],
	"ports": [{"name": "http"}, {"name": "admin", "port": 8081}],
	"volumes": [{"name": "data", "host": "/srv/data"}],
	"checks": [
		{"name": "front", "type": "http", "port": "http", "path": "/health", "interval": "1s", "timeout": "500ms"},
		{"type": "tcp", "port": "admin"},
		{"type": "exec", "command": ["true"]}
	],
	"restart": {"mode": "on-failure", "limit": 3, "delay": "10ms"},
	"grace": "5s", "disk": "1GiB"
}`

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return v
}

// checkFaults compares faults with "path: a part of the message".
func checkFaults(t *testing.T, err error, want []string) {
	t.Helper()
	faults := cluster.FaultsOf(err)
	var got []string
	for _, f := range faults {
		got = append(got, f.String())
	}
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		path, part, _ := strings.Cut(want[i], ": ")
		ok = faults[i].Path == path && strings.Contains(faults[i].Message, part)
	}
	if !ok {
		t.Errorf("faults:\n%s\nwant, each with its path and a part of the message:\n%s", strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
}

func TestWholeDefinitionHasNoFault(t *testing.T) {
	if err := parse[cluster.TaskDefinition](t, whole).Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestDefinitionFaults(t *testing.T) {
	type def = cluster.TaskDefinition
	for _, tt := range []struct {
		name   string
		change func(*def)
		want   []string
	}{
		{"nothing at all", func(d *def) { *d = def{} }, []string{
			`name: "" is not a name`, "version: want a number from 1 up", "containers: is empty",
		}},
		{"name with a separator", func(d *def) { d.Name = "a/b" }, []string{`name: "a/b" is not a name`}},
		{"label key", func(d *def) {
			d.Labels = cluster.Labels{"a b": "x"}
		}, []string{`labels["a b"]: is not a label key`}},
		{"label value", func(d *def) {
			d.Labels = cluster.Labels{"a": "x\ny"}
		}, []string{`labels["a"]: not printable`}},
		{"same name twice", func(d *def) { d.Containers[2].Name = "web" }, []string{
			`containers[1].after[0]: "side" is not the name`,
			`containers[2].name: "web" is already the name of containers[1]`,
		}},
		{"no essential container", func(d *def) { d.Containers[1].Optional = true }, []string{
			"containers: holds only init and optional containers",
		}},
		{"image and none", func(d *def) {
			d.Containers[1].Image, d.Containers[1].Command = "", []string{"/web"}
		}, []string{
			"containers[1].pull: with an image only", "containers[1].image: a task runs on one executor",
		}},
		{"bad image", func(d *def) {
			d.Containers[1].Image = "Web:1"
		}, []string{`containers[1].image: "Web:1" is not the name of an image`}},
		{"bad pull", func(d *def) {
			d.Containers[1].Pull = "often"
		}, []string{"containers[1].pull: want one of missing, always, never"}},
		{"relative dir", func(d *def) {
			d.Containers[1].Dir = "srv"
		}, []string{"containers[1].dir: not an absolute path"}},
		{"path with dots", func(d *def) { d.Containers[1].Files[0].Path = "/etc/../shadow" }, []string{
			"containers[1].files[0].path: not an absolute path in its shortest form",
		}},
		{"path taken", func(d *def) { d.Containers[1].Tmpfs[0].Path = "/data" }, []string{
			`containers[1].tmpfs[0].path: "/data" is already the path of mounts[0]`,
		}},
		{"path below proc", func(d *def) { d.Containers[1].Mounts[0].Path = "/proc/self" }, []string{
			"containers[1].mounts[0].path: cannot be mounted over",
		}},
		{"file mode", func(d *def) {
			d.Containers[1].Files[0].Mode = "0999"
		}, []string{"containers[1].files[0].mode: octal"}},
		{"file not text", func(d *def) {
			d.Containers[1].Files[0].Content = "\xff"
		}, []string{"containers[1].files[0].content: is not UTF-8"}},
		{"unknown volume", func(d *def) {
			d.Containers[1].Mounts[0].Volume = "dta"
		}, []string{`containers[1].mounts[0].volume: "dta"`}},
		{"user", func(d *def) { d.Containers[1].User = "a:b:c" }, []string{"containers[1].user: is not a user"}},
		{"user below 0", func(d *def) { d.Containers[1].User = "-1" }, []string{`containers[1].user: "-1" is not a user`}},
		{"group below 0", func(d *def) { d.Containers[1].User = "1:-1" }, []string{`containers[1].user: "1:-1" is not`}},
		{"user -1 of the kernel", func(d *def) { d.Containers[1].User = "4294967295" }, []string{
			"containers[1].user: want a name or a number from 0 to 4294967294",
		}},
		{"capability with prefix", func(d *def) {
			d.Containers[1].Capabilities = []string{"CAP_KILL", "FLY", "KILL", "KILL"}
		}, []string{
			`containers[1].capabilities[0]: "CAP_KILL" is written "KILL" here`,
			`containers[1].capabilities[1]: "FLY" is not a capability`,
			"containers[1].capabilities[3]: is repeated",
		}},
		{"negative resources", func(d *def) {
			d.Containers[1].Resources = cluster.Resources{CPU: -1, Memory: -1, CPULimit: -1}
		}, []string{
			"containers[1].resources.cpu: want from 0", "containers[1].resources.cpu_limit: want none or at least",
			"containers[1].resources.memory: want from 1 MiB",
		}},
		{"memory without a unit", func(d *def) { d.Containers[1].Resources.Memory = 512 }, []string{
			"containers[1].resources.memory: a number without a unit counts bytes",
		}},
		{"limit below the reservation", func(d *def) { d.Containers[1].Resources.CPULimit = 100 }, []string{
			"containers[1].resources.cpu_limit: not less than cpu",
		}},
		{"cores of its own", func(d *def) {
			d.Containers[1].Resources = cluster.Resources{
				CPU: 1500, CPULimit: 2000, CPUPinning: cluster.PinCores,
				Devices: []cluster.DeviceRequest{{Type: "core", Count: 1}},
			}
			d.Containers[0].Resources.CPUPinning = "socket"
		}, []string{
			`containers[0].resources.cpu_pinning: is "socket", want one of none, cores, numa`,
			"containers[1].resources.cpu: is 1500m CPUs, want whole ones",
			"containers[1].resources.cpu_limit: cannot be combined with cpu_pinning",
			`containers[1].resources.devices[0].type: is "core", which cannot be requested`,
		}},
		{"cores without CPUs", func(d *def) {
			d.Containers[1].Resources = cluster.Resources{CPUPinning: cluster.PinNuma}
		}, []string{
			"containers[1].resources.cpu: want whole ones, 1 at least",
		}},
		{"a path of the host that pins", func(d *def) { d.Volumes[0].Host, d.Volumes[0].Pin = "/srv", true }, []string{
			"volumes[0].pin: is for volumes that the agent keeps",
		}},
		{"folders that exclude each other", func(d *def) {
			d.Volumes[0].Host, d.Volumes[0].HostVolume, d.Volumes[0].Sticky = "/srv", "No Name", true
		}, []string{
			`volumes[0].host_volume: "No Name" is not a name`,
			`volumes[0].host_volume: "No Name" and host "/srv" are both given`,
			"volumes[0].sticky: is for volumes that the agent keeps: /srv is the same folder",
		}},
		{"environment", func(d *def) {
			d.Containers[1].Env = map[string]string{
				"A=B": "", "ADDR_ADMIN": "y", "BERTH_TASK": "x", "PORT_HTTP": "80",
				"Z": "\x00",
			}
		}, []string{
			`containers[1].env["A=B"]: is not the name of a variable`,
			`containers[1].env["ADDR_ADMIN"]: is set by Berth`,
			`containers[1].env["BERTH_TASK"]: is reserved for variables`,
			`containers[1].env["PORT_HTTP"]: is set by Berth`,
			`containers[1].env["Z"]: zero bytes`,
		}},
		{"init with after", func(d *def) {
			d.Containers[0].After, d.Containers[0].Optional = []string{"web"}, true
		}, []string{
			"containers[0].optional: is not for init containers", "containers[0].after: is not for init containers",
		}},
		{"after", func(d *def) { d.Containers[1].After = []string{"web", "prepare", "nobody"} }, []string{
			`containers[1].after[0]: "web" is the container itself`, "containers[1].after[1]: is an init container",
			`containers[1].after[2]: "nobody" is not the name`,
		}},
		{"after in a ring", func(d *def) { d.Containers[2].After = []string{"web"} }, []string{
			"containers: wait for each other by their after fields: web after side after web",
		}},
		{"ports", func(d *def) {
			d.Ports = append(d.Ports, cluster.Port{Name: "http", Port: 8081}, cluster.Port{Name: "x", Port: 70000})
		}, []string{
			"ports[2].port: 8081 is already the port of ports[1]", "ports[3].port: is 70000",
			`ports[2].name: "http" is already the name of ports[0]`,
		}},
		{"volume path", func(d *def) {
			d.Volumes[0].Host = "data/"
		}, []string{"volumes[0].host: not an absolute path"}},
		{"check of no type", func(d *def) { d.Checks = []cluster.Check{{Name: "a"}} }, []string{
			`checks[0].type: is "", want one of http, tcp, exec`,
		}},
		{"check of an unknown port", func(d *def) {
			d.Checks[0].Port = "htp"
		}, []string{`checks[0].port: "htp" is not the name`}},
		{"check without a port", func(d *def) { d.Checks[0].Port = "" }, []string{"checks[0].port: is missing"}},
		{"check slower than its interval", func(d *def) { d.Checks[0].Timeout = 2 * d.Checks[0].Interval }, []string{
			"checks[0].timeout: is 2s, want a duration from 10ms to the interval of 1s",
		}},
		{"fields of other checks", func(d *def) {
			d.Checks[0].Command = []string{"x"}
			d.Checks[1].Path = "/"
			d.Checks[2].Port = "http"
		}, []string{"checks[0].command: exec only", "checks[1].path: http only", "checks[2].port: is not for"}},
		{"check of an unknown meaning", func(d *def) {
			d.Checks[0].Meaning = "lively"
		}, []string{`checks[0].meaning: is "lively", want one of`}},
		{"grpc without a port", func(d *def) {
			d.Checks[0] = cluster.Check{Name: "a", Type: cluster.CheckGRPC}
		}, []string{"checks[0].port: is missing"}},
		{"grpc service that is none", func(d *def) {
			d.Checks[0] = cluster.Check{Name: "a", Type: cluster.CheckGRPC, Port: "http", Service: "a service"}
		}, []string{`checks[0].service: "a service" is not the name of a gRPC service`}},
		{"a ttl with a probe", func(d *def) {
			d.Checks[0] = cluster.Check{
				Name: "a", Type: cluster.CheckTTL, TTL: 1, Port: "http", Path: "/", TLS: true, Service: "s",
				Interval: 1, Timeout: 1, FailAfter: 1,
			}
		}, []string{
			"checks[0].ttl: is 1ns, want a duration from 5s", "checks[0].interval: is not for checks of type ttl",
			"checks[0].timeout: is not for checks of type ttl", "checks[0].fail_after: is not for checks of type ttl",
			"checks[0].port: is not for a check of type ttl", "checks[0].path: http only",
			"checks[0].service: is for checks of type grpc only",
			"checks[0].tls: is for checks of type grpc only",
		}},
		{"a probe with a ttl", func(d *def) {
			d.Checks[0].TTL = cluster.DefaultTTL
		}, []string{"checks[0].ttl: is for checks of type ttl only"}},
		{"check in an init container", func(d *def) {
			d.Checks[2].Container = "prepare"
		}, []string{"checks[2].container: is an init container"}},
		{"spans", func(d *def) {
			d.Grace, d.MinHealthyTime, d.Disk = -1, -1, -1
			d.Restart.MaxDelay, d.Restart.Window, d.Restart.Mode = -1, -1, "often"
		}, []string{
			"restart.mode: want one of", "restart.window: want a duration", "restart.max_delay: want a duration",
			"restart.delay: want a duration", "grace: want a duration", "min_healthy_time: want a duration",
			"disk: want a size",
		}},
		{"too large", func(d *def) {
			d.Containers[1].Files[0].Content = strings.Repeat("x", 300<<10)
		}, []string{": at most 262144 are allowed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := parse[def](t, whole)
			d.SetDefaults()
			tt.change(d)
			checkFaults(t, d.Validate(), tt.want)
		})
	}
}

func TestWorkloadFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   interface{ Validate() error }
		want []string
	}{
		{"least service", parse[cluster.Service](t, `{"name": "web", "definition": "web@1"}`), nil},
		{"least job", parse[cluster.Job](t, `{"name": "w", "steps": [{"name": "a", "definition": "w"}]}`), nil},
		{"least cluster", parse[cluster.Cluster](t, `{"name": "ci"}`), nil},
		{"least host", parse[cluster.Host](t, `{"name": "n1.example"}`), nil},
		{"empty service", &cluster.Service{}, []string{`name: "" is not a name`, "definition: is missing"}},
		{"service", &cluster.Service{
			Cluster: "a.b", Name: "web", Definition: cluster.Ref{Name: "web", Version: -1}, Count: -1, Priority: 1001,
			OnDisconnect: "panic", Placement: cluster.Placement{Strategy: "pile", AntiAffinity: "x"},
		}, []string{
			"cluster: is not a name", "definition: is not a reference", "count: want a number from 0 to 100000",
			"priority: from 1 to 1000", "placement.strategy: want one of binpack, spread",
			"placement.anti_affinity: want one of none", "on_disconnect: want one of keep, wait",
		}},
		{"empty job", &cluster.Job{Name: "w"}, []string{"steps: is empty"}},
		{"job", &cluster.Job{Name: "w", Steps: []cluster.Step{
			{Name: "a", Definition: cluster.Ref{Name: "w"}, Count: 100_000, Retries: 50, TimeLimit: 1},
			{Name: "a", Definition: cluster.Ref{Name: "w"}, Count: -1},
		}}, []string{
			"steps[0].retries: want a number from 0 to 49", "steps[0].time_limit: want a duration from 1s",
			"steps[1].count: want a number from 1", `steps[1].name: "a" is already the name of steps[0]`,
		}},
		{"needs", parse[cluster.Job](t, `{"name": "w", "steps": [
			{"name": "a", "definition": "w", "requires": "all-resolved"},
			{"name": "b", "definition": "w", "needs": ["b", "a", "a", "z"], "requires": "some"}]}`), []string{
			`steps[1].requires: is "some", want one of all-completed, all-resolved`,
			"steps[0].requires: has no effect without needs",
			`steps[1].needs[0]: "b" is the step itself`, `steps[1].needs[2]: "a" is there twice`,
			`steps[1].needs[3]: there is no step "z" in the job`,
		}},
		{"exit codes and limits", parse[cluster.Job](t, `{"name": "w", "deadline": "1ms", "keep": "1s", "steps": [
			{"name": "a", "definition": "w", "retries": 1, "exit_codes": {"intermittent": [75], "final": [1]}},
			{"name": "b", "definition": "w", "exit_codes": {"final": [0, 2, 2, 256]}},
			{"name": "c", "definition": "w", "retries": 1, "exit_codes": {}, "parallelism": -1},
			{"name": "d", "definition": "w", "count": 2, "gang": {}, "parallelism": 1}]}`), []string{
			"deadline: is 1ms, want a duration from 1s", "keep: is 1s, want 1m at least",
			"steps[0].exit_codes: has both lists", "steps[1].exit_codes: has no effect without retries",
			"steps[1].exit_codes.final[0]: is 0, want a number from 1 to 255",
			"steps[1].exit_codes.final[2]: 2 is there twice", "steps[1].exit_codes.final[3]: is 256",
			"steps[2].parallelism: is -1", "steps[2].exit_codes: is empty",
			"steps[3].parallelism: has no effect in a gang",
		}},
		{"concurrency of a job", parse[cluster.Job](t, `{"name": "w", "steps": [{"name": "a", "definition": "w"}],
			"concurrency": {"group": "A", "limit": 0}}`), []string{
			`concurrency.group: "A" is not a name`, "concurrency.limit: is 0, want a number from 1",
		}},
		{"concurrency", parse[cluster.Job](t, `{"name": "w", "steps": [
			{"name": "a", "definition": "w", "concurrency": {"group": "A", "limit": 0}},
			{"name": "b", "definition": "w", "count": 3, "gang": {}, "concurrency": {"group": "a", "limit": 2}}]}`), []string{
			`steps[0].concurrency.group: "A" is not a name`, "steps[0].concurrency.limit: is 0, want a number from 1",
			"steps[1].concurrency.limit: is 2, less than the 3 tasks of the gang",
		}},
		{"an empty quota", parse[cluster.Cluster](t, `{"name": "c", "quota": {}}`), []string{"quota: limits nothing"}},
		{"quota", parse[cluster.Cluster](t, `{"name": "c", "quota": {"tasks": -1, "jobs": -2,
			"devices": {"core": 1, "GPU": -1}}}`), []string{
			"quota.tasks: is -1, want 0 or more", "quota.jobs: is -2, want 0 or more",
			`quota.devices.GPU: "GPU" is not a name`, "quota.devices.GPU: is -1, want 0 or more",
			"quota.devices.core: is not a device",
		}},
		{"an empty borrow", parse[cluster.Cluster](t, `{"name": "c", "quota": {"cpu": 1, "borrow": {}}}`), []string{
			"quota.borrow: borrows nothing",
		}},
		{
			"borrow", parse[cluster.Cluster](t, `{"name": "c", "quota": {"cpu": "4", "devices": {"gpu": 1}, "jobs": 3,
			"borrow": {"cpu": "-1", "memory": "1GiB", "disk": "-1GiB", "tasks": 5, "devices": {"gpu": -2, "fpga": 1}}}}`),
			[]string{
				"quota.borrow.cpu: is -1, want 0 or more",
				"quota.borrow.memory: has no effect, as the quota does not limit memory: set quota.memory, or remove it",
				"quota.borrow.disk: is -1 GiB, want 0 or more",
				"quota.borrow.tasks: has no effect, as the quota does not limit tasks",
				"quota.borrow.devices.fpga: has no effect, as the quota does not limit this type: set quota.devices.fpga",
				"quota.borrow.devices.gpu: is -2, want 0 or more",
			},
		},
		{"what may be borrowed", parse[cluster.Cluster](t, `{"name": "c", "quota": {"cpu": "4", "memory": "1GiB",
			"disk": "1GiB", "devices": {"gpu": 0}, "tasks": 1, "lend": false, "borrow": {"cpu": "1", "memory": "9GiB",
			"disk": "1GiB", "devices": {"gpu": 2}, "tasks": 1}}}`), nil},
		{"parameters", parse[cluster.Job](t, `{"name": "w", "steps": [
			{"name": "a", "definition": "w", "parameters": {"list": [{"A": "1"}], "matrix": {"A": ["1"]}}},
			{"name": "b", "definition": "w", "parameters": {}},
			{"name": "c", "definition": "w", "count": 3, "parameters": {"list": [{"A": "1"}, {"A": "2", "B": "3"}]}},
			{"name": "d", "definition": "w", "parameters": {"matrix": {"BERTH_X": ["1"], "4": ["1"], "E": [], "F": ["1", "1"]}}},
			{"name": "e", "definition": "w", "parameters": {"list": [{}]}},
			{"name": "f", "definition": "w", "parameters": {"list": [{"A": "1"}, {"A": "1"}]}, "parallelism": 2}]}`), []string{
			"steps[0].parameters: has both list and matrix", "steps[1].parameters: is empty",
			"steps[2].parameters.list[1]: has the parameters (A, B), and the first task has (A)",
			"steps[2].parameters: make 2 tasks, and count is 3: leave out count",
			`steps[3].parameters.matrix["4"]: is not the name of a parameter`,
			`steps[3].parameters.matrix["BERTH_X"]: begins with BERTH_, which is reserved`,
			`steps[3].parameters.matrix["E"]: is empty`, `steps[3].parameters.matrix["F"][1]: "1" is there twice`,
			"steps[4].parameters.list[0]: is empty",
		}},
		{"needs of a job", parse[cluster.Job](t, `{"name": "w", "steps": [{"name": "a", "definition": "w"}],
			"needs": ["service/db", "job/w", "db", "node/n1", "service/db", "service/Db"]}`), []string{
			"needs[1]: job/w is the job itself", `needs[2]: "db" is neither a service nor a job`,
			`needs[3]: "node/n1" is neither`, "needs[4]: service/db is there twice", `needs[5]: "service/Db" is neither`,
		}},
		{"needs of a service", parse[cluster.Service](t, `{"name": "w", "definition": "w", "needs": ["service/w"]}`), []string{
			"needs[0]: service/w is the service itself",
		}},
		{"too many combinations", parse[cluster.Job](t, `{"name": "w", "steps": [{"name": "a", "definition": "w",
			"parameters": {"matrix": {"A": `+numbers(1001)+`, "B": `+numbers(1000)+`}}}]}`), []string{
			"steps[0].parameters: make more than 1000000 tasks",
		}},
		{"too much text", parse[cluster.Job](t, `{"name": "w", "steps": [{"name": "a", "definition": "w",
			"parameters": {"list": [{"A": "`+strings.Repeat("x", 128<<10-19)+`"}]}}, {"name": "b", "definition": "w",
			"parameters": {"list": [{"B": "1"}]}}]}`), []string{
			"steps: have 131092 bytes of parameters together, at most 131072 are allowed: give",
		}},
		{"needs in a circle", parse[cluster.Job](t, `{"name": "w", "steps": [
			{"name": "a", "definition": "w", "needs": ["c"]}, {"name": "b", "definition": "w", "needs": ["a"]},
			{"name": "c", "definition": "w", "needs": ["b"]}, {"name": "d", "definition": "w", "needs": ["a"]}]}`), []string{
			"steps[0].needs[0]: the steps need each other in a circle: a → c → b → a",
		}},
		{"needs of steps that follow", parse[cluster.Job](t, `{"name": "w", "steps": [
			{"name": "a", "definition": "w", "needs": ["b"]}, {"name": "b", "definition": "w"}]}`), nil},
		{"job of too many tasks", &cluster.Job{Name: "w", Steps: []cluster.Step{
			{Name: "a", Definition: cluster.Ref{Name: "w"}, Count: 1_000_000},
			{Name: "b", Definition: cluster.Ref{Name: "w"}},
		}}, []string{"steps: request 1000001 tasks together"}},
		{"constraints", &cluster.Cluster{Name: "c", Domain: "D", Constraints: []cluster.Constraint{
			{Attribute: "node.colour", Value: "red"},
			{Attribute: "label.", Value: "x"},
			{Attribute: "label.disk", Op: "~", Value: "x"},
			{Attribute: "label.disk", Op: cluster.OpIn, Value: "ssd"},
			{Attribute: "label.disk", Values: []string{"ssd"}},
			{Attribute: "label.disk", Op: cluster.OpExists, Value: "ssd"},
			{Attribute: "label.size", Op: cluster.OpLess, Value: "NaN"},
			{Attribute: "node.kernel", Op: cluster.OpAtLeast, Value: "new"},
			{Attribute: "node.kernel", Op: cluster.OpAtLeast, Value: "6.1.0-13"},
			{Attribute: "node.arch", Op: cluster.OpNotIn, Values: []string{"arm64", "\x01"}},
		}}, []string{
			`domain: "D" is not a name`,
			"constraints[0].attribute: is not known", "constraints[1].attribute: does not name a label",
			"constraints[2].op: want one of", "constraints[3].values: is empty",
			"constraints[3].value: write values", `constraints[4].values: use "in"`,
			"constraints[5].value: compares with nothing", "constraints[6].value: is not a number",
			"constraints[7].value: is not a version", "constraints[9].values[1]: printable",
		}},
		{
			"host", &cluster.Host{Name: "N1", Domain: "a b"},
			[]string{
				"name: is not the name of a node",
				`domain: "a b" is not a name`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFaults(t, tt.in.Validate(), tt.want)
		})
	}
}

func TestValidateChangesNothing(t *testing.T) {
	handed := `{"name": "w", "version": 1, "containers": [{
		"name": "main", "command": ["w"], "resources": {"devices": [{}]},
		"files": [{"path": "/etc/w/w.conf", "content": "x", "template": true}],
		"secrets": [{"secret": "db", "file": "/run/db/password"}, {"secret": "key", "env": "KEY", "on_change": "signal"}],
		"services": [{"service": "db", "port": "sql", "env": "DB"}], "artifacts": [{"source": "https://files.example/a", "path": "a"}]
	}]}`
	for _, text := range []string{whole, handed} {
		d, want := parse[cluster.TaskDefinition](t, text), parse[cluster.TaskDefinition](t, text)
		_ = d.Validate()
		if diff := cmp.Diff(want, d); diff != "" {
			t.Errorf("Validate changed the definition (-want +got):\n%s", diff)
		}
	}
	text := `{"name": "w", "steps": [{"name": "a", "definition": "w", "placement": {"constraints": [{"attribute": "node.os"}]}}]}`
	j, wantJob := parse[cluster.Job](t, text), parse[cluster.Job](t, text)
	_ = j.Validate()
	if diff := cmp.Diff(wantJob, j); diff != "" {
		t.Errorf("Validate changed the job (-want +got):\n%s", diff)
	}
	text = `{"name": "w", "definition": "w", "count": 1,
		"placement": {"constraints": [{"attribute": "node.os"}], "spread": [{"attribute": "node.zone"}]},
		"update": {"gates": [{"name": "g", "http": "http://p"}]},
		"scaling": {"min": 1, "max": 2, "targets": [{"metric": "requests", "target": 1}], "schedules": [{"cron": "@daily", "count": 1}]}}`
	s, wantService := parse[cluster.Service](t, text), parse[cluster.Service](t, text)
	_ = s.Validate()
	if diff := cmp.Diff(wantService, s); diff != "" {
		t.Errorf("Validate changed the service (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	d := parse[cluster.TaskDefinition](t, `{
		"name": "w", "version": 1, "ports": [{"name": "http"}],
		"containers": [{"name": "a", "image": "a", "tmpfs": [{"path": "/tmp"}], "files": [{"path": "/f", "content": ""}]}],
		"checks": [{"type": "http"}, {"type": "http", "interval": "1s"}, {"type": "exec", "command": ["x"]},
			{"type": "grpc", "meaning": "liveness"}, {"type": "ttl"}]
	}`)
	d.SetDefaults()
	want := parse[cluster.TaskDefinition](t, `{
		"name": "w", "version": 1, "ports": [{"name": "http"}],
		"containers": [{"name": "a", "image": "a", "pull": "missing", "tmpfs": [{"path": "/tmp", "size": "64MiB"}],
			"files": [{"path": "/f", "content": "", "mode": "0644"}]}],
		"checks": [
			{"name": "http", "type": "http", "port": "http", "path": "/", "interval": "5s", "timeout": "2s", "fail_after": 3},
			{"name": "http-2", "type": "http", "port": "http", "path": "/", "interval": "1s", "timeout": "1s", "fail_after": 3},
			{"name": "exec", "type": "exec", "command": ["x"], "container": "a", "interval": "5s", "timeout": "2s", "fail_after": 3},
			{"name": "grpc", "type": "grpc", "port": "http", "meaning": "liveness", "interval": "5s", "timeout": "2s", "fail_after": 3},
			{"name": "ttl", "type": "ttl", "ttl": "30s"}
		],
		"restart": {"limit": 5, "window": "10m", "delay": "1s", "max_delay": "1m"},
		"grace": "10s", "min_healthy_time": "1s"
	}`)
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("defaults of a definition (-want +got):\n%s", diff)
	}
	j := parse[cluster.Job](t,
		`{"name": "w", "steps": [{"name": "a", "definition": "w@1"}, {"name": "b", "definition": "w@1", "retries": 1}]}`)
	j.SetDefaults()
	wantJob := parse[cluster.Job](t, `{"cluster": "default", "name": "w", "priority": 500, "steps": [
		{"name": "a", "definition": "w@1", "count": 1, "on_disconnect": "wait", "placement": {"anti_affinity": "none"}},
		{"name": "b", "definition": "w@1", "count": 1, "on_disconnect": "keep", "retries": 1,
		 "placement": {"anti_affinity": "none"}}]}`)
	if diff := cmp.Diff(wantJob, j); diff != "" {
		t.Errorf("defaults of a job (-want +got):\n%s", diff)
	}
}

func TestRestartModeDependsOnTheOwner(t *testing.T) {
	for _, tt := range []struct {
		owner     cluster.Kind
		set, want cluster.RestartMode
	}{
		{cluster.KindService, "", cluster.RestartAlways},
		{cluster.KindJob, "", cluster.RestartNever},
		{cluster.KindJob, cluster.RestartOnFailure, cluster.RestartOnFailure},
	} {
		if got := (cluster.Restart{Mode: tt.set}).For(tt.owner).Mode; got != tt.want {
			t.Errorf("mode %q of a %s: %q, want %q", tt.set, tt.owner, got, tt.want)
		}
	}
}

func TestImages(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for image, want := range map[string]bool{
		"redis": true, "redis:7": true, "redis:7" + digest: true, "library/redis" + digest: true, "localhost/a": true,
		"localhost:5000/a/b_c:x": true, "127.0.0.1:5000/a": true, "[::1]:5000/a": true, "reg.example/a--b": true,
		"Reg.Example/a": true, "docker.io/library/redis:latest": true,
		"": false, ":7": false, "a:": false, "a:-x": false, "A": false, "a/": false, "/a": false, "a//b": false,
		"a b":         false,
		"a@sha256:12": false, "a@md5:" +
			strings.Repeat("0", 32): false, "reg.example:0/a": false, "reg.example:70000/a": false,
		"-a": false, "a-": false, "a\x00": false, "http://a/b": false, "[::g]:1/a": false,
	} {
		if got := cluster.ValidImage(image); got != want {
			t.Errorf("ValidImage(%q) = %v, want %v", image, got, want)
		}
	}
}

func TestFaultsOf(t *testing.T) {
	fs := cluster.Faults{{Path: "a", Message: "b"}}
	if diff := cmp.Diff(fs, cluster.FaultsOf(fmt.Errorf("outer: %w", fs.Err()))); diff != "" {
		t.Error(diff)
	}
	if got := cluster.FaultsOf(errors.New("x")); len(got) != 1 || got[0].Message != "x" {
		t.Errorf("faults of another error: %v", got)
	}
	if cluster.FaultsOf(nil) != nil || (cluster.Faults{}).Err() != nil {
		t.Error("no faults are an error")
	}
}

// FuzzValidate reads any JSON as each kind of object: nothing panics, SetDefaults is idempotent, and a valid object
// survives its JSON form.
func FuzzValidate(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(wholeService))
	f.Add([]byte(wholeCron))
	f.Add([]byte(wholePlacement))
	f.Add([]byte(wholeDevices))
	f.Add([]byte(`{"name": "n1", "pool": "gpu", "taints": [{"key": "a", "value": "b"}]}`))
	f.Add([]byte(`{"name": "web", "definition": "web@1", "placement": {"constraints": [{"attribute": "label.a", "op": "<", "value": "1"}]}}`))
	f.Add([]byte(`{"name": "w", "steps": [{"name": "a", "definition": "w", "count": -5, "time_limit": "1s"}]}`))
	f.Add([]byte(`{"containers": [{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a", "b"]}], "checks": [{"type": "exec"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		roundTrip[cluster.TaskDefinition](t, b)
		roundTrip[cluster.Service](t, b)
		roundTrip[cluster.Job](t, b)
		roundTrip[cluster.Cron](t, b)
		roundTrip[cluster.Cluster](t, b)
		roundTrip[cluster.Host](t, b)
	})
}

type object[T any] interface {
	*T
	SetDefaults()
	Validate() error
}

func roundTrip[T any, P object[T]](t *testing.T, b []byte) {
	v := new(T)
	if json.Unmarshal(b, v) != nil {
		return
	}
	early := P(v).Validate()
	P(v).SetDefaults()
	full := P(v).Validate()
	if diff := cmp.Diff(cluster.FaultsOf(early), cluster.FaultsOf(full)); diff != "" {
		t.Fatalf("faults before and after filling in defaults:\n%s", diff)
	}
	if full != nil {
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("valid, but has no JSON form: %v", err)
	}
	again := new(T)
	if err := json.Unmarshal(text, again); err != nil {
		t.Fatalf("read %s again: %v", text, err)
	}
	P(again).SetDefaults()
	if back, err := json.Marshal(again); err != nil || !bytes.Equal(back, text) {
		t.Fatalf("%s reads back as %s, %v", text, back, err)
	}
}

// Users are names or numbers that the kernel has.
func TestValidUsers(t *testing.T) {
	for _, user := range []string{"", "0", "1000:1000", "nobody", "_apt:65534", "app-1.x", "4294967294"} {
		d := parse[cluster.TaskDefinition](t, whole)
		d.Containers[1].User = user
		if err := d.Validate(); err != nil {
			t.Errorf("user %q: %v", user, err)
		}
	}
}

// numbers returns a JSON list of n different texts.
func numbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%q", fmt.Sprint(i))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

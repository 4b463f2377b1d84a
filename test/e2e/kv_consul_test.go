package e2e_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/store/consul/consultest"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// placedByRecords is a domain whose tasks other programs place by records in the store.
const placedByRecords = `
kind: Domain
name: ci
silence: {suspect: 5s, down: 6s, services: 6s}
scheduler: {type: kv}
---
kind: Cluster
name: build
domain: ci
`

// rulesOfKV are the rights of a scheduler that knows only Consul.
const rulesOfKV = `key_prefix "berth/" { policy = "read" }
key_prefix "berth/state/" { policy = "write" }`

// TestSchedulerOverConsul runs examples/schedulers/kv.py on a real Consul, with a token that may only read Berth's keys
// and write below state/. It places the tasks of a service, and again those of a node that dies. A deletion of a record
// stops nothing, a stop that the service cannot spare is refused with an event, and one that it can is carried out.
func TestSchedulerOverConsul(t *testing.T) {
	t.Parallel()
	python := testkit.NeedPython(t)
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	consul := consultest.Start(t, 1, consultest.Options{ACLs: true})
	f := harness.NewFleet(t)
	hosts := harness.Loopback(5)
	f.Init(hosts[0]).Start(consulFlags(t, consul, filepath.Join(t.TempDir(), "token"),
		consul[0].Permit(consultest.Rules))...)
	agents := map[string]*harness.Agent{}
	for _, h := range hosts[1:] {
		a := f.Agent(h)
		agents[a.Name] = a
	}
	nodes := readyNodes(t, f)
	f.Berth("run", f.Write("domain.yaml", placedByRecords)).Want(t, 0)
	for _, n := range nodes[:2] {
		f.Berth("node", "domain", n, "ci").Want(t, 0)
	}
	inDomain(t, f, "ci", nodes[:2])
	f.Berth("run", f.Write("hello.yaml", fmt.Sprintf(hello, 1, 1))).Want(t, 0, "1/1") // the definition, in default
	f.Berth("run", "--detach", f.Write("builds.yaml", fmt.Sprintf(builds, 4))).Want(t, 0)
	explains(t, f, "no program has written a record that starts it")

	token, program := consul[0].Permit(rulesOfKV), consultest.Program(t)
	kv := func(arguments ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"kv"}, arguments...)...)
		cmd.Env = append(cmd.Environ(), "CONSUL_HTTP_ADDR="+consul[0].Address, "CONSUL_HTTP_TOKEN="+token)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	runProgram(t, "kv", python, filepath.Join(root, "examples", "schedulers", "kv.py"), "--domain", "ci",
		"--consul", "http://"+consul[0].Address, "--token-file", f.Write("token-of-the-scheduler", token))
	healthyOn(t, f, "build/cache", 4, nodes[:2])
	f.Berth("domain", "status", "ci").Want(t, 0, "kv")

	agents[nodes[0]].Kill()
	before := healthyOn(t, f, "build/cache", 4, nodes[1:2])
	const task = "build.cache.1.0"
	key := "berth/state/" + nodes[1] + "/" + task
	if out, err := kv("delete", key); err != nil {
		t.Fatal(err, out)
	}
	f.Eventually(soon, func() error {
		value, err := kv("get", key)
		if err == nil && !strings.Contains(value, `"seal"`) {
			err = fmt.Errorf("the record is %s, want Berth's", value)
		}
		return err
	})
	stop := func() {
		t.Helper()
		if out, err := kv("put", key, `{"stop": true, "reason": "a try"}`); err != nil {
			t.Fatal(err, out)
		}
	}
	stop()
	f.Eventually(soon, func() error {
		r := f.Berth("events", "-n", "build", "--type", "task.record-refused")
		if !strings.Contains(r.Stdout, "min_healthy") {
			return fmt.Errorf("no event of the refusal:\n%s%s", r.Stdout, r.Stderr)
		}
		return nil
	})
	if now := healthyOn(t, f, "build/cache", 4, nodes[1:2]); !slices.Equal(before, now) {
		t.Errorf("the attempts are %v, want %v", now, before)
	}
	spare := strings.Replace(fmt.Sprintf(builds, 4), "count: 4", "count: 4\nupdate: {min_healthy: 2}", 1)
	f.Berth("run", f.Write("spare.yaml", spare)).Want(t, 0)
	stop()
	f.Eventually(soon, func() error {
		now := healthyOn(t, f, "build/cache", 4, nodes[1:2])
		same := 0
		for _, uuid := range now {
			if slices.Contains(before, uuid) {
				same++
			}
		}
		if same != 3 {
			return fmt.Errorf("%d of the attempts are the same, want 3: the stopped one is placed again", same)
		}
		return nil
	})
}

// explains waits until the explanation of the service of the domain says something.
func explains(t *testing.T, f *harness.Fleet, want string) {
	t.Helper()
	f.Eventually(soon, func() error {
		r := f.Berth("explain", "-n", "build", "service/cache")
		if !strings.Contains(r.Stdout, want) {
			return fmt.Errorf("the reason %q is missing:\n%s%s", want, r.Stdout, r.Stderr)
		}
		return nil
	})
}

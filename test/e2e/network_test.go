package e2e_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/netlab"
)

// boxImage is the image of busybox, which processes find on their node.
const boxImage = "berth.local/busybox:1"

// bridged is a service whose tasks all listen on port 80 of a network of their own. Their second container sends
// requests to the first.
const bridged = `
kind: TaskDefinition
name: %[1]s
version: 1
network: bridge
containers:
  - name: main
    image: ` + boxImage + `
    command: [/bin/busybox, httpd, -f, -p, $(PORT_HTTP), -h, /berth-www]
    resources: {cpu: 10m, memory: 16MiB}
    files: [{path: /berth-www/index.html, content: "here is %[1]s"}]
  - name: side
    image: ` + boxImage + `
    command: [/bin/busybox, sleep, "100000"]
    resources: {cpu: 10m, memory: 16MiB}
ports: [{name: http, to: 80}]
checks:
  - {name: published, type: http, port: http, path: /index.html, interval: scaled(1s), timeout: scaled(1s), fail_after: 30}
  - {name: beside, type: exec, container: side, command: [/bin/busybox, wget, -qO-, "http://127.0.0.1:80/index.html"], interval: scaled(1s), timeout: scaled(1s), fail_after: 30}
restart: {delay: 100ms}
grace: 1s
shutdown_delay: 0s
---
kind: Service
name: %[1]s
definition: %[1]s
count: %[2]d
`

// isolated is a service whose task has no network.
const isolated = `
kind: TaskDefinition
name: alone
version: 1
network: none
containers:
  - name: main
    image: ` + boxImage + `
    command: [/bin/busybox, sleep, "100000"]
    resources: {cpu: 10m, memory: 16MiB}
grace: 1s
---
kind: Service
name: alone
definition: alone
count: 1
`

// networkSite is a site on a machine of a lab, with another machine as the client.
type networkSite struct {
	*harness.Site
	t              *testing.T
	machine, asker *netlab.Host
	server, agent  *harness.Daemon
	flags          []string
	loaded         bool
	before         string
}

func newNetworkSite(t *testing.T, executor string, flags ...string) *networkSite {
	t.Helper()
	harness.Need(t, executor)
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "nsenter", "nft", "busybox")
	if _, err := os.Stat("/usr/lib/cni/bridge"); err != nil {
		testkit.Skip(t, "needs CNI's plugins in /usr/lib/cni")
	}
	lab := netlab.New(t)
	n := &networkSite{t: t, machine: lab.Add("machine"), asker: lab.Add("asker"), flags: flags}
	n.before = n.networkState()
	n.Site = harness.New(t, executor)
	n.Program = filepath.Join(n.Dir, "berth-there") // all of the site is on the machine
	script := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=/var/run/netns/%s %s \"$@\"\n", n.machine.Space,
		harness.Binary())
	if err := os.WriteFile(n.Program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	n.server = n.Server()
	n.start()
	return n
}

// start starts the agent.
func (n *networkSite) start() {
	n.t.Helper()
	n.agent = n.Agent(append([]string{"--address", n.machine.Address}, n.flags...)...)
	if n.Executor == harness.Containerd && !n.loaded {
		n.Berth("image", "load", harness.ProgramImage(n.t, n.Dir, boxImage, "/bin/busybox")).Want(n.t, 0)
		n.loaded = true
	}
}

// put runs a manifest.
func (n *networkSite) put(name, text string) {
	n.t.Helper()
	if n.Executor == harness.Process {
		text = strings.ReplaceAll(text, "    image: "+boxImage+"\n", "")
	}
	n.Berth("run", "--detach", n.Write(name+".yaml", text)).Want(n.t, 0)
}

// networkState returns all links and packet filter rules of the machine.
func (n *networkSite) networkState() string {
	n.t.Helper()
	var all strings.Builder
	for _, c := range [][]string{{"nft", "-s", "list", "ruleset"}, {"ip", "-brief", "link"}, {"ip", "route"}} {
		words := n.machine.Wrap(c...)
		out, err := exec.CommandContext(n.t.Context(), words[0], words[1:]...).CombinedOutput()
		if err != nil {
			n.t.Fatalf("%s: %v: %s", words, err, out)
		}
		all.Write(out)
	}
	return all.String()
}

// asBefore waits until nothing is left of any task on the machine.
func (n *networkSite) asBefore() {
	n.t.Helper()
	n.Eventually(soon, func() error {
		if now := n.networkState(); now != n.before {
			return fmt.Errorf("the machine has\n%s\nand had\n%s", now, n.before)
		}
		for _, pattern := range []string{"tasks/*", "ipam/berth/10.*", "cache/results/*"} {
			if left, _ := filepath.Glob(filepath.Join(n.AgentDir, "agent/network", pattern)); len(left) > 0 {
				return fmt.Errorf("left: %s", left)
			}
		}
		return nil
	})
}

// fetch requests a page from the other machine.
func (n *networkSite) fetch(port int) (string, error) {
	c := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.asker.Dial},
		Timeout:   3 * time.Second,
	}
	ctx, cancel := testkit.WithLimit(n.t.Context(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+net.JoinHostPort(n.machine.Address, fmt.Sprint(port))+"/index.html", nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// answers waits until the service's one task is healthy and answers another machine.
func (n *networkSite) answers(service string) {
	n.t.Helper()
	task := running(n.t, n.Site, service, 1)[0]
	n.Eventually(soon, func() error {
		got, err := n.fetch(task.Ports["http"])
		if want := "here is " + service; err != nil || got != want {
			return fmt.Errorf("%s said %q, %w, want %q", task.ID, got, err, want)
		}
		return nil
	})
}

// gone deletes services and waits until nothing is left of them.
func (n *networkSite) gone(services ...string) {
	n.t.Helper()
	for _, s := range services {
		n.Berth("delete", "service/"+s).Want(n.t, 0)
	}
	n.asBefore()
}

// Two tasks on a node listen on the same port and are reached at different published ports. The containers of a task
// share its network. Networks survive the death of the agent and of a container. A task without a network has none. At
// the end the machine is as before.
func TestBridgeNetworks(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		n := newNetworkSite(t, executor)
		n.put("one", fmt.Sprintf(bridged, "one", 1))
		n.put("two", fmt.Sprintf(bridged, "two", 1))
		n.put("alone", isolated)
		n.answers("one")
		n.answers("two")
		n.Berth("exec", "-c", "side", "one.1.0", "--", "/bin/busybox", "wget", "-qO-",
			"http://127.0.0.1:80/index.html").Want(t, 0, "here is one")
		n.Berth("exec", "-c", "side", "one.1.0", "--", "/bin/busybox", "sh", "-c",
			"echo $PORT_HTTP $BERTH_NETWORK").Want(t, 0, "80 bridge")
		running(t, n.Site, "alone", 1)
		if r := n.Berth("exec", "alone.1.0", "--", "/bin/busybox", "ip", "-o", "link"); r.Code != 0 ||
			strings.Contains(r.Stdout, "eth0") || !strings.Contains(r.Stdout, "lo:") {
			t.Errorf("without a network: %v", r)
		}

		n.agent.Kill()
		n.start()
		n.answers("one")
		pid := running(t, n.Site, "two", 1)[0].Containers[0].Pid
		if err := kill(pid); err != nil {
			t.Fatal(err)
		}
		n.Eventually(soon, func() error {
			if now := alive(n.Site, "two"); len(now) != 1 || now[0].Containers[0].Pid == pid ||
				now[0].Containers[0].Pid == 0 {
				return fmt.Errorf("it has not begun again: %+v", now)
			}
			return nil
		})
		n.answers("two")
		n.gone("one", "two", "alone")
	})
}

// The agent dies again and again while tasks with networks come and go. When they are all deleted nothing is left.
func TestNetworksSurviveKillNine(t *testing.T) {
	t.Parallel()
	seed := testkit.Setting(t, "BERTH_NETWORK_SEED", 1)
	t.Logf("BERTH_NETWORK_SEED=%d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	n := newNetworkSite(t, harness.Process)
	for round := range 5 {
		name := fmt.Sprintf("round-%d", round)
		n.put(name, fmt.Sprintf(bridged, name, 2))
		testkit.Pause(t.Context(), time.Duration(random.IntN(800))*time.Millisecond)
		n.agent.Kill()
		n.start()
		if round%2 == 0 {
			running(t, n.Site, name, 2)
		}
		n.Berth("delete", "service/"+name).Want(t, 0)
		testkit.Pause(t.Context(), time.Duration(random.IntN(400))*time.Millisecond)
		n.agent.Kill()
		n.start()
	}
	n.asBefore()
}

// A node that cannot create networks reports the cause in its facts. A waiting task has it in its reason.
func TestNodeWithoutBridge(t *testing.T) {
	t.Parallel()
	n := newNetworkSite(t, harness.Process, "--bridge-subnet", "10.77.0.0/16")
	const why = "the subnet 10.77.0.0/16 for tasks overlaps the node's route to 10.77.0.0/24 of eth0; give " +
		"the agent another with --bridge-subnet"
	n.Berth("status", "node/"+harness.NodeName).Want(t, 0, "bridge, not available: "+why)
	n.put("one", fmt.Sprintf(bridged, "one", 1))
	n.Eventually(soon, func() error {
		r := n.Berth("explain", "one.1.0")
		if !strings.Contains(r.Stdout, "network bridge: "+why) {
			return fmt.Errorf("explain says %v", r)
		}
		return nil
	})
	n.put("alone", isolated)
	running(t, n.Site, "alone", 1)
	n.agent.Kill()
	n.flags = nil
	n.start()
	n.answers("one")
	n.gone("one", "alone")
}

// kill ends a process as the kernel would.
func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

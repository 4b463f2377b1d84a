package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// fetchImage is the image of test/e2e/fetch.
const fetchImage = "berth.local/fetch:1"

// beyond is the address of beyondName, a name that only the resolver of another machine has.
const beyond, beyondName = "192.0.2.98", "host.beyond.example"

// namedDB is a service with a fixed port of its node, reachable by a short name and the port. A second service can
// become unhealthy.
const namedDB = `
kind: TaskDefinition
name: db
version: 1
network: bridge
containers:
  - name: main
    image: ` + boxImage + `
    command: [/bin/busybox, httpd, -f, -p, $(PORT_HTTP), -h, /berth-www]
    resources: {cpu: 10m, memory: 16MiB}
    files: [{path: /berth-www/index.html, content: "here is db"}]
ports: [{name: http, port: 8080, to: 80}]
checks: [{name: up, type: http, port: http, path: /index.html, interval: scaled(1s), timeout: scaled(1s)}]
grace: 1s
shutdown_delay: 0s
---
kind: Service
name: db
definition: db
count: 1
---
kind: TaskDefinition
name: pair
version: 1
network: bridge
containers:
  - name: main
    image: ` + boxImage + `
    command: [/bin/busybox, sh, -c, "touch /tmp/well-$BERTH_INDEX-$BERTH_ATTEMPT_ID; exec /bin/busybox httpd -f -p $PORT_HTTP"]
    resources: {cpu: 10m, memory: 16MiB}
ports: [{name: http, to: 80}]
checks: [{name: well, type: exec, container: main, command: [/bin/busybox, sh, -c, "test -e /tmp/well-$BERTH_INDEX-$BERTH_ATTEMPT_ID"], interval: scaled(2s), timeout: scaled(2s), fail_after: 1}]
grace: 1s
shutdown_delay: 0s
---
kind: Service
name: pair
definition: pair
count: 2
---
kind: TaskDefinition
name: app
version: 1
network: bridge
containers:
  - name: main
    image: ` + fetchImage + `
    command: [/bin/fetch, wait]
    resources: {cpu: 10m, memory: 16MiB}
grace: 1s
---
kind: Service
name: app
definition: app
count: 1
`

// resolve answers questions on the other machine for beyondName.
func (n *networkSite) resolve() {
	n.t.Helper()
	var c net.PacketConn
	if err := n.asker.Do(func() (err error) {
		c, err = net.ListenPacket("udp", n.asker.Address+":53")
		return err
	}); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			size, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals, m.RCode = true, nil, dnsmessage.RCodeNameError
			if strings.EqualFold(q.Name.String(), beyondName+".") {
				m.RCode = dnsmessage.RCodeSuccess
				if q.Type == dnsmessage.TypeA {
					m.Answers = []dnsmessage.Resource{{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
						Body:   &dnsmessage.AResource{A: netip.MustParseAddr(beyond).As4()},
					}}
				}
			}
			if text, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(text, from)
			}
		}
	}()
}

// dig queries the agent like a program of the machine. It returns the code of the answer, then addresses or ports in
// order.
func (n *networkSite) dig(network, name string, t dnsmessage.Type) (string, error) {
	ctx, cancel := testkit.WithLimit(n.t.Context(), 5*time.Second)
	defer cancel()
	c, err := n.machine.Dial(ctx, network, "127.0.0.1:7053")
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	q := dnsmessage.Message{
		Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{
			{Name: dnsmessage.MustNewName(name + "."), Type: t, Class: dnsmessage.ClassINET},
		},
	}
	text, err := q.Pack()
	if err != nil {
		return "", err
	}
	if network == "tcp" {
		text = append([]byte{byte(len(text) >> 8), byte(len(text))}, text...)
	}
	if _, err := c.Write(text); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	size, err := c.Read(buf)
	if err != nil {
		return "", err
	}
	buf = buf[:size]
	if network == "tcp" {
		buf = buf[2:]
	}
	var m dnsmessage.Message
	if err := m.Unpack(buf); err != nil {
		return "", err
	}
	var all []string
	for _, r := range m.Answers {
		switch b := r.Body.(type) {
		case *dnsmessage.AResource:
			all = append(all, netip.AddrFrom4(b.A).String())
		case *dnsmessage.SRVResource:
			all = append(all, fmt.Sprint(b.Port))
		}
	}
	slices.Sort(all)
	return strings.Join(append([]string{strings.TrimPrefix(m.RCode.String(), "RCode")}, all...), " "), nil
}

// wantDig waits for an answer.
func (n *networkSite) wantDig(name string, t dnsmessage.Type, want string) {
	n.t.Helper()
	n.Eventually(soon, func() error {
		got, err := n.dig("udp", name, t)
		if err == nil && got != want {
			err = fmt.Errorf("%s: got %q, want %q", name, got, want)
		}
		return err
	})
}

// inSpace runs a command in the network of a service's one task, as its programs do, whether the agent runs or not.
func (n *networkSite) inSpace(uuid string, command ...string) (string, error) {
	file := filepath.Join(n.AgentDir, "agent/network/tasks", uuid, "ns")
	ctx, cancel := testkit.WithLimit(n.t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + file}, command...)...).CombinedOutput()
	return string(out), err
}

// Tasks resolve services by short and full names, and all other names. Unhealthy tasks are not in the answers. This
// survives the death of the server and of the agent: without the agent the kernel forwards queries.
func TestNamesOfServices(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		n := newNamedSite(t, executor)
		program := harness.Program(t, n.Dir, "./test/e2e/fetch")
		manifest := namedDB
		if executor == harness.Containerd {
			n.Berth("image", "load", harness.ProgramImage(t, n.Dir, fetchImage, program)).Want(t, 0)
			program = "/bin/fetch"
		} else {
			manifest = strings.NewReplacer("    image: "+fetchImage+"\n", "", "/bin/fetch", program).Replace(manifest)
		}
		n.put("names", manifest)
		running(t, n.Site, "app", 1)
		running(t, n.Site, "db", 1)
		pair := running(t, n.Site, "pair", 2)

		// From within a task, which connects.
		in := func(want string, args ...string) {
			t.Helper()
			n.Eventually(soon, func() error {
				r := n.Berth(append([]string{"exec", "app.1.0", "--", program}, args...)...)
				if r.Code != 0 || !strings.Contains(r.Stdout, want) {
					return fmt.Errorf("%v, want %s", r, want)
				}
				return nil
			})
		}
		in("here is db", "get", "http://db:8080/index.html")
		in("here is db", "get", "http://db.default.berth:8080/index.html")
		in("["+beyond+"]", "lookup", beyondName)
		n.Berth("exec", "app.1.0", "--", program, "lookup", "nobody").Want(t, 1, "no such host")

		// As dig does.
		var ports []string
		for _, p := range pair {
			ports = append(ports, fmt.Sprint(p.Ports["http"]))
		}
		slices.Sort(ports)
		n.wantDig("db.default.berth", dnsmessage.TypeA, "Success "+n.machine.Address)
		n.wantDig("db.default.berth", dnsmessage.TypeAAAA, "Success")
		n.wantDig("nobody.default.berth", dnsmessage.TypeA, "NameError")
		n.wantDig(beyondName, dnsmessage.TypeA, "Success "+beyond)
		n.wantDig("_http._tcp.db.default.berth", dnsmessage.TypeSRV, "Success 8080")
		n.wantDig("pair.default.berth", dnsmessage.TypeSRV, "Success "+strings.Join(ports, " "))
		if got, err := n.dig("tcp", "db.default.berth", dnsmessage.TypeA); err != nil ||
			got != "Success "+n.machine.Address {
			t.Errorf("over TCP: %q, %v", got, err)
		}

		// An unhealthy task leaves the answer, and returns later. Without tasks the answer is empty.
		ill := pair[0]
		mark := "/tmp/well-$BERTH_INDEX-$BERTH_ATTEMPT_ID"
		n.Berth("exec", string(ill.ID), "--", "/bin/busybox", "sh", "-c", "rm "+mark).Want(t, 0)
		n.wantDig("pair.default.berth", dnsmessage.TypeSRV, "Success "+fmt.Sprint(pair[1].Ports["http"]))
		n.Berth("exec", string(ill.ID), "--", "/bin/busybox", "sh", "-c", "touch "+mark).Want(t, 0)
		n.wantDig("pair.default.berth", dnsmessage.TypeSRV, "Success "+strings.Join(ports, " "))
		n.Berth("scale", "--detach", "pair", "0").Want(t, 0)
		n.wantDig("pair.default.berth", dnsmessage.TypeSRV, "Success")
		n.wantDig("pair.default.berth", dnsmessage.TypeA, "Success")

		// Without the agent other names are found, and with the next one services again.
		app := running(t, n.Site, "app", 1)[0].UUID
		n.agent.Kill()
		n.Eventually(soon, func() error {
			out, err := n.inSpace(app, "busybox", "nslookup", beyondName, "10.213.0.1")
			if err != nil || !strings.Contains(out, beyond) {
				return fmt.Errorf("without the agent: %s, %w", out, err)
			}
			return nil
		})
		n.start()
		n.wantDig("db.default.berth", dnsmessage.TypeA, "Success "+n.machine.Address)
		in("here is db", "get", "http://db:8080/index.html")

		// Without a server, the agent and its successor still answer.
		n.server.Kill()
		n.wantDig("db.default.berth", dnsmessage.TypeA, "Success "+n.machine.Address)
		n.agent.Kill()
		n.agent = n.StartAgent(append([]string{"--address", n.machine.Address}, n.flags...)...)
		n.Eventually(soon, func() error {
			out, err := n.inSpace(app, "busybox", "nslookup", "db.default.berth", "10.213.0.1")
			if err != nil || !strings.Contains(out, n.machine.Address) {
				return fmt.Errorf("without a server: %s, %w", out, err)
			}
			return nil
		})
		n.server = n.Server()
		n.Eventually(soon, func() error {
			if r := n.Berth("exec", "app.1.0", "--", program, "lookup", "db"); r.Code != 0 {
				return errors.New(r.String())
			}
			return nil
		})
		n.gone("db", "pair", "app")
	})
}

func newNamedSite(t *testing.T, executor string) *networkSite {
	t.Helper()
	if out, _ := exec.CommandContext(t.Context(), "busybox",
		"--list").Output(); !slices.Contains(strings.Fields(string(out)), "nslookup") {
		testkit.Skip(t, "needs a busybox with nslookup")
	}
	n := newNetworkSite(t, executor, "--dns-upstream", "10.77.0.2")
	n.resolve()
	return n
}

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// grasping requests everything that needs a permission.
const grasping = `
kind: TaskDefinition
name: grasping
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [cat, /node/shadow]
    user: root
    isolation: none
    capabilities: [SYS_ADMIN]
    resources: {cpu: 10m, memory: 32MiB, devices: [{type: gpu}]}
    mounts: [{volume: node, path: /node}]
volumes: [{name: node, host: /etc}]
---
kind: Job
cluster: shop
name: grasping
steps: [{name: all, definition: grasping}]
`

// modest requests nothing, and prints its user and what it can reach.
const modest = `
kind: TaskDefinition
name: modest
version: 1
network: none
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c]
    args:
      - |
        while read -r key value rest; do
          case $key in
            Uid:|CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo "$key $value";;
          esac
        done </proc/self/status
        cat NODEFILE 2>/dev/null
        cat /etc/shadow 2>/dev/null
        for file in NODEDIR/new /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do (echo x >$file) 2>/dev/null && echo "wrote to $file"; done
        (echo </dev/mem) 2>/dev/null && echo "opened the memory of the node"
        echo done
    resources: {cpu: 10m, memory: 32MiB}
---
kind: Job
cluster: shop
name: modest
steps: [{name: all, definition: modest}]
`

// lending names a path of the node, and is allowed to by its cluster.
const lending = `
kind: TaskDefinition
name: lending
version: 1
network: none
containers:
  - name: main
    image: ` + harness.Image + `
    command: [cat, /node/shadow]
    resources: {cpu: 10m, memory: 32MiB}
    mounts: [{volume: node, path: /node}]
volumes: [{name: node, host: /etc}]
---
kind: Job
cluster: shop
name: lending
steps: [{name: all, definition: lending}]
`

// With default flags, a submitter of one cluster neither becomes root on a node nor reads its files. Manifests that
// request more are refused with all missing permissions, and tasks run isolated. A permission of the cluster does not
// make an agent lend a path.
func TestSubmitterIsNotRoot(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		testkit.NeedRoot(t)
		s := harness.New(t, executor)
		s.Strict = true
		server := s.Server("--listen", "127.0.0.1:0")
		s.Agent()
		node, err := os.MkdirTemp("/srv", "berth-test-") //nolint:usetesting // programs have a /tmp of their own
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(node) })
		file := filepath.Join(node, "file")
		if err := os.WriteFile(file, []byte("of the node\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cluster := func(more string) {
			s.Berth("run", s.Write("shop.yaml", "kind: Cluster\nname: shop\n"+more)).Want(t, 0)
		}
		cluster("")
		token := s.Berth("token", "create", "--role", "submitter", "--cluster", "shop")
		token.Want(t, 0)
		as := []string{"--addr", server.URL(), "--token-file", s.Write("token", strings.TrimSpace(token.Stdout)+"\n")}
		submit := func(args ...string) harness.Result { return s.Berth(append(slices.Clone(as), args...)...) }

		r := submit("run", s.Write("grasping.yaml", grasping))
		r.Want(t, 2, "root", "no-isolation", "capabilities", "devices", "host-path", "host-network", "ask an admin")
		if n := strings.Count(r.Stderr, "needs the permission"); n != 6 {
			t.Errorf("%d permissions are named, want 6:\n%v", n, r)
		}
		submit("run", s.Write("own.yaml", "kind: Cluster\nname: shop\npermissions: [root]\n")).Want(t, 2,
			"needs the role admin")

		text := strings.NewReplacer("NODEFILE", file, "NODEDIR", node).Replace(modest)
		submit("run", s.Write("modest.yaml", text)).Want(t, 0, "succeeded")
		s.Tasks(client.TaskFilter{Cluster: "shop", Job: "modest"}) // for the leak check
		user, seccomp := "65534", "0"
		// the image's user; its root has no capability on the node
		if executor == harness.Containerd {
			user, seccomp = "0", "2"
		}
		want := fmt.Sprintf("Uid: %s\nCapEff: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: "+
			"1\nSeccomp: %s\ndone\n", user, seccomp)
		got := submit("logs", "shop.modest.1.all.0")
		got.Want(t, 0)
		if diff := cmp.Diff(want, got.Stdout); diff != "" {
			t.Errorf("what the program found (-want +got):\n%s", diff)
		}

		cluster("permissions: [host-path]\n")
		submit("run", "--detach", s.Write("lending.yaml", lending)).Want(t, 0)
		s.Prints("its agent does not share the path /etc with tasks", "status", "shop/job/lending")
		if executor == harness.Containerd { // plain programs are not enabled
			plain := strings.NewReplacer("    image: "+harness.Image+"\n", "", "modest", "plain").Replace(text)
			submit("run", "--detach", s.Write("plain.yaml", plain)).Want(t, 0)
			s.Prints("no suitable executor", "status", "shop/job/plain")
		}
		for _, job := range []string{"lending", "plain", "modest"} {
			s.Berth("delete", "job/shop/"+job)
		}
	})
}

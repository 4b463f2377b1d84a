package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// reader is a service that reads from a folder that nodes declare.
const reader = `
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - name: main
    command: [sh, -c, 'echo "read: $(cat /berth-models/name)"; touch /berth-models/mine 2>/dev/null && echo "wrote"; exec sleep 100000']
    resources: {cpu: 10m, memory: 16MiB}
    mounts: [{volume: models, path: /berth-models, read_only: %[2]t}]
volumes:
  - {name: models, %[3]s}
grace: 1s
---
kind: Service
name: %[1]s
definition: %[1]s
count: %[4]d
`

// Tasks with a host volume run only on nodes that declare it. They read its files, and cannot write to a read-only one.
// A task without such a node waits with a reason. A link in a lent path does not lead out of it.
func TestHostVolumes(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(3)
	f.Start(hosts[0])
	models, lent := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.Chmod(models, 0o755), os.Chmod(lent, 0o755),
		os.WriteFile(filepath.Join(models, "name"), []byte("llama\n"), 0o644),
		os.Symlink("/etc", filepath.Join(lent, "out")),
	); err != nil {
		t.Fatal(err)
	}
	has := f.Agent(hosts[1], "--host-volume", "models="+models+":ro", "--host-path", lent)
	f.Agent(hosts[2], "--host-path", "none")

	apply := func(name string, readOnly bool, volume string, count int) {
		t.Helper()
		f.Berth("run", f.Write(name+".yaml", fmt.Sprintf(reader, name, readOnly, volume, count)), "--detach").Want(t, 0)
	}
	apply("reads", true, "host_volume: models", 2)
	apply("writes", false, "host_volume: models", 1)
	apply("lacks", true, "host_volume: weights", 1)
	apply("paths", true, "host: /etc", 1)
	apply("links", true, "host: "+lent+"/out", 1)

	for _, task := range running(t, f.Site, "reads", 2) {
		if task.Node != has.Name {
			t.Errorf("%s runs on %s, which does not declare the volume", task.ID, task.Node)
		}
	}
	f.Prints("read: llama", "logs", "service/reads")
	f.Prints(`1 node: its host volume "models" is read-only and the task mounts it to write: mount it with read_only`,
		"status", "service/writes")
	f.Prints(`2 nodes: it declares no host volume "weights": start its agent with --host-volume weights=PATH`, "status",
		"service/lacks")
	f.Prints("2 nodes: its agent does not share the path /etc with tasks", "status", "service/paths")
	f.Prints("is a link to /etc, which the node does not share with tasks", "events", "--service", "links")
	f.Prints("its host volume", "explain", "service/writes")
	if _, err := os.Stat(filepath.Join(models, "mine")); err == nil {
		t.Error("a task wrote to a volume that is lent for reading")
	}
	v := volumes(t, f.Site, func(v *api.VolumeView) bool { return v.HostVolume == "models" })
	if len(v) != 1 || v[0].Node != has.Name || !v[0].ReadOnly || len(v[0].By) != 2 || v[0].Free == 0 {
		t.Errorf("the declared volumes are %+v", v)
	}
}

// notebook is a service whose tasks write their name and the intended size into a volume of their own.
const notebook = `
kind: TaskDefinition
name: notebook
version: %[1]d
containers:
  - name: main
    command: [sh, -c, 'head -c 3000000 /dev/zero >/berth-notes/bulk; echo "%[1]d-$BERTH_INDEX" >>/berth-notes/pages; echo "pages: $(tr "\n" " " </berth-notes/pages)"; exec sleep 100000']
    resources: {cpu: 10m, memory: 16MiB}
    mounts: [{volume: notes, path: /berth-notes}]
volumes:
  - {name: notes, sticky: true}
grace: 1s
---
kind: Service
name: notebook
definition: notebook
count: 2
`

// Each task has a volume of its own. The task of the next version finds it on the same node, although another node is
// empty. The size of a volume is shown. It can be removed once no task uses it and its service is gone.
func TestStickyVolumes(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(4)
	f.Start(hosts[0])
	for _, h := range hosts[1:] {
		f.Agent(h)
	}
	f.Berth("run", f.Write("notebook.yaml", fmt.Sprintf(notebook, 1))).Want(t, 0)
	index := func(id cluster.TaskID) int { parts, _ := id.Parts(); return parts.Index }
	homes := map[int]string{}
	for _, task := range running(t, f.Site, "notebook", 2) {
		homes[index(task.ID)] = task.Node
	}
	own := func(v *api.VolumeView) bool { return strings.HasPrefix(v.Name, "default/notebook/") }
	var there []api.VolumeView
	f.Eventually(soon, func() error {
		there = volumes(t, f.Site, own)
		if len(there) != 2 || slices.ContainsFunc(there, func(v api.VolumeView) bool {
			return v.Used < 2_900_000 || v.Size <= v.Used
		}) {
			return fmt.Errorf("the volumes are %+v", there)
		}
		return nil
	})
	for i, v := range there {
		if v.Name != fmt.Sprint("default/notebook/notes.", i) || v.Node != homes[i] || !v.Sticky || len(v.By) != 1 ||
			v.Owner != "default/service/notebook" {
			t.Errorf("task %d is on %s, and its volume is %+v", i, homes[i], v)
		}
	}

	f.Berth("run", f.Write("notebook.yaml", fmt.Sprintf(notebook, 2))).Want(t, 0)
	var again []api.TaskView
	f.Eventually(soon, func() error {
		again = slices.DeleteFunc(alive(f.Site, "notebook"), func(v api.TaskView) bool {
			return v.Definition.Version != 2 || v.State != cluster.StateRunning
		})
		if len(again) != 2 {
			return fmt.Errorf("%d tasks of the second version run", len(again))
		}
		return nil
	})
	for _, task := range again {
		i := index(task.ID)
		if task.Node != homes[i] {
			t.Errorf("the data of task %d is on %s, and it went to %s", i, homes[i], task.Node)
		}
		f.Prints(fmt.Sprintf("pages: 1-%d 2-%d", i, i), "logs", "task/"+string(task.ID))
	}
	f.Prints("used: 30", "inspect", "task/"+string(again[0].ID))

	first := there[0]
	refused := f.Berth("volume", "rm", first.Name, "--node", first.Node)
	refused.Want(t, 2)
	if !strings.Contains(refused.Stderr, "belongs to service/notebook, whose next task") {
		t.Errorf("it was refused with %q", refused.Stderr)
	}
	refused = f.Berth("volume", "rm", first.Name, "--node", first.Node, "--force")
	refused.Want(t, 2)
	if !strings.Contains(refused.Stderr, "is in use by task notebook.") {
		t.Errorf("it was refused with %q", refused.Stderr)
	}
	f.Berth("delete", "service/notebook").Want(t, 0)
	f.Eventually(soon, func() error {
		if r := f.Berth("volume", "rm", first.Name, "--node", first.Node); r.Code != 0 {
			return errors.New(r.Stderr)
		}
		return nil
	})
	if _, err := os.Stat(first.Path); err == nil {
		t.Error("the volume was removed, and its folder is there")
	}
	f.Berth("volume", "prune", "--dry-run").Want(t, 0)
	if n := len(volumes(t, f.Site, own)); n != 1 {
		t.Errorf("%d volumes are left, want 1", n)
	}
	f.Eventually(soon, func() error { // its task may be on its way out yet
		if r := f.Berth("volume", "prune"); !strings.Contains(r.Stderr, "1 volume removed") {
			return errors.New(r.Stderr)
		}
		return nil
	})
	if left := volumes(t, f.Site, own); len(left) > 0 {
		t.Errorf("there are %+v", left)
	}
}

// volumes returns the matching volumes of all nodes.
func volumes(t *testing.T, s *harness.Site, which func(*api.VolumeView) bool) (found []api.VolumeView) {
	t.Helper()
	r := s.Berth("volume", "ls", "-o", "json")
	r.Want(t, 0)
	if err := json.Unmarshal([]byte(r.Stdout), &found); err != nil {
		t.Fatalf("%v in %s", err, r.Stdout)
	}
	return slices.DeleteFunc(found, func(v api.VolumeView) bool { return !which(&v) })
}

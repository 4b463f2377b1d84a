package e2e_test

import (
	"testing"

	"github.com/berthd/berth/test/harness"
)

// diary is a service that appends its node to its volume at each start.
const diary = `
kind: TaskDefinition
name: diary
version: 1
containers:
  - name: main
    command: [sh, -c, 'echo "$BERTH_NODE" >>"/berth-diary/pages"; echo "pages: $(tr "\n" " " <"/berth-diary/pages")"; exec sleep 100000']
    resources: {cpu: 10m, memory: 16MiB}
    mounts: [{volume: data, path: /berth-diary}]
volumes:
  - {name: data, pin: true}
grace: 1s
---
kind: Service
name: diary
definition: diary
count: 1
`

// A task returns to the node with its volume, and waits with a reason while that node accepts none. Once the node is
// forgotten, the task begins elsewhere with an empty volume.
func TestVolumesThatPin(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(3)
	f.Start(hosts[0])
	agents := map[string]*harness.Agent{}
	for _, h := range hosts[1:] {
		a := f.Agent(h)
		agents[a.Name] = a
	}
	f.Berth("run", f.Write("diary.yaml", diary)).Want(t, 0)
	home := running(t, f.Site, "diary", 1)[0].Node
	f.Berth("node", "cordon", home).Want(t, 0)
	f.Berth("stop", "--detach", "service/diary").Want(t, 0)
	running(t, f.Site, "diary", 0)
	f.Berth("start", "--detach", "service/diary").Want(t, 0)
	f.Prints("the data of its volume diary/data is on "+home, "status", "service/diary")

	f.Berth("node", "uncordon", home).Want(t, 0)
	if again := running(t, f.Site, "diary", 1)[0]; again.Node != home {
		t.Errorf("the data is on %s, and the task went to %s", home, again.Node)
	}
	f.Prints("pages: "+home+" "+home, "logs", "service/diary")

	f.Berth("stop", "--detach", "service/diary").Want(t, 0)
	running(t, f.Site, "diary", 0)
	f.Berth("node", "cordon", home).Want(t, 0)
	agents[home].Kill()
	f.Berth("start", "--detach", "service/diary").Want(t, 0)
	f.Prints("the data of its volume diary/data is on "+home, "status", "service/diary")
	f.Berth("node", "forget", home, "--force").Want(t, 0)
	other := running(t, f.Site, "diary", 1)[0].Node
	if other == home {
		t.Errorf("the task went to %s, which is forgotten", other)
	}
	f.Prints("pages: "+other, "logs", "service/diary")
}

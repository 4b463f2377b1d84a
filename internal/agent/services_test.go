package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// at sets the healthy tasks of a service of the cluster default, each by the number of its port sql.
func (g *addressServer) at(service string, ports ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	update := transport.ServiceUpdate{
		Cluster: "default", Service: service,
		Stamp: "s" + strconv.Itoa(len(g.asked)) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36),
	}
	for i, p := range ports {
		update.Addresses = append(update.Addresses, transport.ServiceAddress{
			Task: "default." + service + ".1." + strconv.Itoa(i), Node: "n" +
				strconv.Itoa(i), Address: "192.0.2.1", Ports: map[string]int{"sql": p, "admin": 1},
		})
	}
	g.services[addresses.ServiceName{Cluster: "default", Service: service}] = update
	close(g.changed)
	g.changed = make(chan struct{})
}

// client returns a definition of a task with the addresses of db in a file and a variable.
func client(file, variable cluster.Change) *cluster.TaskDefinition {
	def := definition("web", "app")
	c := &def.Containers[0]
	c.Services = []cluster.ServiceUse{{Service: "db", Port: "sql", Env: "DB", OnChange: variable}}
	c.Env = map[string]string{"URL": "sql://$(DB)/"}
	c.Args = []string{"$(URL)"}
	c.Files = []cluster.File{
		{
			Path: "/etc/app/app.conf", Mode: "0640", Template: true, OnChange: file,
			Content: `{{range service "db" "sql"}}{{.Port}} {{end}}{{env "URL"}} {{node.Name}} {{task.Index}}`,
		},
		{Path: "/etc/app/static", Mode: "0600", Content: "{{as it is}}"},
		{Path: "/etc/else", Mode: "0644", Content: "x"},
	}
	if file == cluster.ChangeSignal {
		c.Files[0].Signal = "HUP"
	}
	return def
}

// conf returns the current text of a file of the container.
func (w *world) conf(uuid, file string) string {
	b, err := os.ReadFile(filepath.Join(w.dir, "tasks", uuid, "told", "app", "0", file))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (w *world) wantConf(uuid, want string) {
	w.t.Helper()
	if got := w.conf(uuid, "app.conf"); got != want {
		w.t.Errorf("the file says %q, want %q", got, want)
	}
}

// signalsOf returns the signals that the run of a container got.
func (w *world) signalsOf(id string) []syscall.Signal {
	w.executor.mu.Lock()
	defer w.executor.mu.Unlock()
	for have, r := range w.executor.runs {
		if string(have) == id {
			return slices.Clone(r.signals)
		}
	}
	return nil
}

func (w *world) wantSignals(id string, want int) {
	w.t.Helper()
	if got := w.signalsOf(id); len(got) != want || slices.ContainsFunc(got, func(s syscall.Signal) bool {
		return s != syscall.SIGHUP
	}) {
		w.t.Errorf("%s got %v, want %d HUP", id, got, want)
	}
}

func (w *world) wantMessage(uuid string, state cluster.State, want string) {
	w.t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if o := w.server.seen[uuid]; o.State != state || !strings.Contains(o.Message, want) || want == "" &&
		o.Message != "" {
		w.t.Errorf("%s is %s and says %q, want %s and %q", uuid, o.State, o.Message, state, want)
	}
}

// ignoreHUP makes the programs of the test executor survive HUP.
func (w *world) ignoreHUP() { w.executor.programs[""] = program{SurvivesKill: true} }

// A start waits for required services, reports which, and then passes their addresses in every way.
func TestStartWaitsForServices(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		def := client(cluster.ChangeNoop, cluster.ChangeNoop)
		w.service("s1", def)
		w.pass(5 * time.Second)
		w.wantMessage("s1", cluster.StatePreparing,
			"container app: waiting for services: there is no service db in cluster default")
		g.at("db")
		w.pass(time.Second)
		w.wantMessage("s1", cluster.StatePreparing, "service db has no healthy task")
		g.setNodes("db", "no-ports", "n1")
		w.pass(time.Second)
		w.wantMessage("s1", cluster.StatePreparing, `service db has no port "sql": it has none`)
		w.wantEffects()
		g.at("db", 30001, 30002)
		w.pass(3 * time.Second)
		w.wantEffects("app s1")
		w.want("s1", cluster.StateRunning, "")
		w.wantMessage("s1", cluster.StateRunning, "")
		w.wantConf("s1", "30001 30002 sql://192.0.2.1:30001,192.0.2.1:30002/ n1 0")
		if got := w.conf("s1", "static"); got != "{{as it is}}" {
			t.Errorf("the other file of the folder says %q", got)
		}
		w.executor.mu.Lock()
		spec := w.executor.runs["s1-0-1"].spec
		w.executor.mu.Unlock()
		if !slices.Contains(spec.Env, "DB=192.0.2.1:30001,192.0.2.1:30002") ||
			!slices.Equal(spec.Container.Args, []string{"sql://192.0.2.1:30001,192.0.2.1:30002/"}) {
			t.Errorf("environment %q, arguments %q", spec.Env, spec.Container.Args)
		}
		if len(spec.Container.Files) != 1 || len(spec.Rendered) != 1 || spec.Rendered[0].Path != "/etc/app" ||
			!spec.Rendered[0].ReadOnly {
			t.Errorf("files %v, folders %v", spec.Container.Files, spec.Rendered)
		}
		if info, err := os.Stat(filepath.Join(spec.Rendered[0].Source, "app.conf")); err != nil ||
			info.Mode() != 0o640 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
}

// A start does not wait for optional services, and neither does a task with a stop.
func TestStartWithoutServices(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		def := client(cluster.ChangeNoop, cluster.ChangeNoop)
		def.Containers[0].Services[0].Optional = true
		w.service("s1", def)
		w.pass(time.Second)
		w.wantEffects("app s1")
		w.wantConf("s1", "sql:/// n1 0")
		g.at("db", 30001)
		w.pass(3 * time.Second)
		w.wantConf("s1", "30001 sql://192.0.2.1:30001/ n1 0")
		g.at("db")
		w.pass(3 * time.Second)
		w.wantConf("s1", "sql:/// n1 0")
	})
	withAddressServer(t, func(w *world, _ *addressServer) {
		d := w.service("s1", client(cluster.ChangeNoop, cluster.ChangeNoop))
		w.pass(time.Minute)
		w.stopTask(d, false)
		w.pass(time.Second)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
	})
}

// Changes apply once they have settled; a change and its reversal are no change.
func TestChangesApplyOnceSettled(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		w.ignoreHUP()
		g.at("db", 1)
		w.service("s1", client(cluster.ChangeSignal, cluster.ChangeNoop))
		w.pass(3 * time.Second)
		w.wantConf("s1", "1 sql://192.0.2.1:1/ n1 0")
		for i := range 8 { // a burst
			g.at("db", 2+i)
			w.pass(700 * time.Millisecond)
		}
		w.wantSignals("s1-0-1", 0)
		w.pass(time.Second)
		w.wantSignals("s1-0-1", 1)
		w.wantConf("s1", "9 sql://192.0.2.1:9/ n1 0")
		g.at("db", 10)
		w.pass(200 * time.Millisecond)
		g.at("db", 9)
		w.pass(5 * time.Second)
		w.wantSignals("s1-0-1", 1)
		for i := range 20 { // changes that never settle are applied after the longest wait
			g.at("db", 20+i)
			w.pass(700 * time.Millisecond)
		}
		w.wantSignals("s1-0-1", 2)
		w.pass(3 * time.Second)
		w.wantSignals("s1-0-1", 3)
		w.wantConf("s1", "39 sql://192.0.2.1:39/ n1 0")
		// A required service without addresses leaves the old ones in place.
		g.at("db")
		w.pass(3 * time.Second)
		w.wantConf("s1", "39 sql://192.0.2.1:39/ n1 0")
		w.wantMessage("s1", cluster.StateRunning,
			"service db has no healthy task: container app continues with the last addresses")
		g.at("db", 39)
		w.pass(3 * time.Second)
		w.wantSignals("s1-0-1", 3)
		w.wantMessage("s1", cluster.StateRunning, "")
	})
}

// A later run of the agent signals only changes that the program does not have. It needs no server for the old
// addresses.
func TestNextAgentReportsOnlyChanges(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		w.ignoreHUP()
		g.at("db", 1)
		w.service("s1", client(cluster.ChangeSignal, cluster.ChangeRestart))
		w.pass(3 * time.Second)
		w.wantEffects("app s1")
		g.fail(errDown)
		w.restart()
		w.pass(time.Minute)
		g.fail(nil)
		w.pass(time.Minute)
		w.wantSignals("s1-0-1", 0)
		w.wantEffects("app s1")
	})
	withAddressServer(t, func(w *world, g *addressServer) {
		w.ignoreHUP()
		g.at("db", 1)
		w.service("s1", client(cluster.ChangeSignal, cluster.ChangeNoop))
		w.pass(3 * time.Second)
		w.stop()
		g.at("db", 2)
		w.start()
		w.pass(10 * time.Second)
		w.wantSignals("s1-0-1", 1)
		w.wantConf("s1", "2 sql://192.0.2.1:2/ n1 0")
	})
}

// After a crash between the file and the signal, or without an executor, the signal comes later.
func TestCrashBetweenFileAndSignal(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		w.ignoreHUP()
		g.at("db", 1)
		w.service("s1", client(cluster.ChangeSignal, cluster.ChangeNoop))
		w.pass(3 * time.Second)
		set := func(down bool) { w.executor.mu.Lock(); w.executor.down = down; w.executor.mu.Unlock() }
		set(true)
		g.at("db", 2)
		w.pass(5 * time.Second)
		w.wantConf("s1", "2 sql://192.0.2.1:2/ n1 0")
		w.wantSignals("s1-0-1", 0)
		w.stop()
		set(false)
		w.start()
		w.pass(time.Minute)
		w.wantSignals("s1-0-1", 1)
	})
}

// A restart for a change is not a failure. It comes soon, apart from those of other tasks, not too often, and does not
// count against the limit.
func TestRestartForChanges(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.at("db", 1)
		def := client(cluster.ChangeNoop, cluster.ChangeRestart)
		def.Restart = cluster.Restart{Mode: cluster.RestartNever, Limit: 1}
		d := w.desired("s1", def, cluster.KindService)
		d.Task, d.Count = cluster.ServiceTask("default", "web", 1, 2), 3
		w.assign(d, def)
		w.pass(5 * time.Second)
		g.at("db", 2)
		w.pass(6 * time.Second) // 1 s to settle, and 10 s * 2/3
		w.wantEffects("app s1")
		w.pass(3 * time.Second)
		w.wantEffects("app s1", "app s1")
		w.want("s1", cluster.StateRunning, "")
		w.executor.mu.Lock()
		env := w.executor.runs["s1-0-2"].spec.Env
		w.executor.mu.Unlock()
		if !slices.Contains(env, "DB=192.0.2.1:2") {
			t.Errorf("restarted with %q", env)
		}
		w.server.mu.Lock()
		o := w.server.seen["s1"]
		w.server.mu.Unlock()
		if o.Restarts != 0 || o.Containers[0].Restarts != 0 {
			t.Errorf("%d and %d restarts are counted, want none", o.Restarts, o.Containers[0].Restarts)
		}
		g.at("db", 3)
		w.pass(15 * time.Second)
		w.wantEffects("app s1", "app s1")
		g.at("db", 2) // the former address: no change is left
		w.pass(time.Minute)
		w.wantEffects("app s1", "app s1")
		for i := range 4 {
			g.at("db", 10+i)
			w.pass(6 * time.Minute)
		}
		w.wantEffects("app s1", "app s1", "app s1", "app s1", "app s1", "app s1")
		w.want("s1", cluster.StateRunning, "")
	})
}

// Tasks of jobs continue; their file changes all the same.
func TestJobsAreNotRestartedForChanges(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.at("db", 1)
		w.batch("b1", client(cluster.ChangeRestart, cluster.ChangeRestart))
		w.pass(5 * time.Second)
		w.wantEffects("app b1")
		g.at("db", 2)
		w.pass(2 * time.Minute)
		w.wantEffects("app b1")
		w.wantConf("b1", "2 sql://192.0.2.1:2/ n1 0")
	})
}

// A restart in place for other reasons uses the current addresses; without a server, the last ones.
func TestRestartInPlaceIsReportedAgain(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		w.executor.programs["app"] = program{Runs: time.Minute, Code: 1}
		g.at("db", 1)
		w.service("s1", client(cluster.ChangeNoop, cluster.ChangeNoop))
		w.pass(30 * time.Second)
		g.at("db", 2)
		w.pass(45 * time.Second)
		w.wantEffects("app s1", "app s1")
		w.executor.mu.Lock()
		env := w.executor.runs["s1-0-2"].spec.Env
		w.executor.mu.Unlock()
		if !slices.Contains(env, "DB=192.0.2.1:2") {
			t.Errorf("begun again with %q", env)
		}
		w.stop()
		w.server.cut(false)
		g.fail(errDown)
		if err := os.Remove(filepath.Join(w.dir, "addresses.json")); err != nil {
			t.Error(err)
		}
		w.start()
		w.pass(2 * time.Minute)
		w.executor.mu.Lock()
		effects := len(w.executor.effects)
		w.executor.mu.Unlock()
		if effects < 3 {
			t.Errorf("%d starts: it waits for a server that does not answer", effects)
		}
		w.wantConf("s1", "2 sql://192.0.2.1:2/ n1 0")
	})
}

// A failed rendering is reported, and the last text stays.
func TestTextThatCannotBeMade(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		w.ignoreHUP()
		g.at("db", 1, 2)
		def := client(cluster.ChangeSignal, cluster.ChangeNoop)
		def.Containers[0].Files[0].Content = "\n{{(index (service \"db\" \"sql\") 1).Port}}"
		w.service("s1", def)
		w.pass(5 * time.Second)
		w.wantConf("s1", "\n2")
		g.at("db", 1)
		w.pass(5 * time.Second)
		w.wantConf("s1", "\n2")
		w.wantMessage("s1", cluster.StateRunning, "container app: file /etc/app/app.conf: line 2:")
		g.at("db", 1, 3)
		w.pass(5 * time.Second)
		w.wantConf("s1", "\n3")
		w.wantSignals("s1-0-1", 1)
		w.wantMessage("s1", cluster.StateRunning, "")
	})
}

// A start that had to wait gets all tasks that become healthy together.
func TestStartWaitsForRest(t *testing.T) {
	withAddressServer(t, func(w *world, g *addressServer) {
		g.at("db")
		w.service("s1", client(cluster.ChangeRestart, cluster.ChangeRestart))
		w.pass(5 * time.Second)
		for i := range 3 {
			g.at("db", []int{1, 2, 3}[:i+1]...)
			w.pass(700 * time.Millisecond)
		}
		w.wantEffects()
		w.pass(time.Minute)
		w.wantEffects("app s1")
		w.wantConf("s1", "1 2 3 sql://192.0.2.1:1,192.0.2.1:2,192.0.2.1:3/ n1 0")
	})
}

package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

func TestContainersStartInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "front", "init-1", "back", "init-2", "side")
		def.Containers[0].After = []string{"back"}
		def.Containers[1].Init = true
		def.Containers[3].Init = true
		def.Containers[4].Optional = true
		w.executor.programs["init-1"] = program{Runs: 10 * time.Second}
		w.executor.programs["init-2"] = program{Runs: 10 * time.Second}
		w.service("s1", def)
		w.wantEffects("init-1 s1")
		w.pass(10 * time.Second)
		w.wantEffects("init-1 s1", "init-2 s1")
		w.pass(10 * time.Second)
		w.wantEffects("init-1 s1", "init-2 s1", "back s1", "front s1", "side s1")
		o := w.want("s1", cluster.StateRunning, "")
		var states []cluster.ContainerState
		for _, c := range o.Containers {
			states = append(states, c.State)
		}
		want := []cluster.ContainerState{"running", "exited", "running", "exited", "running"}
		if !slices.Equal(states, want) {
			t.Errorf("containers are %v, want %v", states, want)
		}
	})
}

func TestInitFailureStartsNothingElse(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "init", "app")
		def.Containers[0].Init = true
		w.executor.programs["init"] = program{Runs: time.Second, Code: 4}
		w.batch("b1", def)
		w.pass(time.Minute)
		o := w.want("b1", cluster.StateFailed, cluster.ReasonExit)
		if o.Message != "container init exited with code 4" {
			t.Errorf("message %q", o.Message)
		}
		w.wantEffects("init b1")
	})
}

func TestOptionalContainerMayEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "app", "side")
		def.Containers[1].Optional = true
		w.executor.programs["app"] = program{Runs: time.Minute}
		w.executor.programs["side"] = program{Runs: time.Second, Code: 1}
		w.batch("b1", def)
		w.pass(30 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		w.pass(time.Minute)
		w.want("b1", cluster.StateSucceeded, "")
	})
}

func TestEssentialEndEndsTheOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "app", "side", "other")
		def.Containers[1].Optional = true
		w.executor.programs["app"] = program{Runs: 20 * time.Second}
		w.executor.programs["other"] = program{IgnoresTerm: true}
		w.batch("b1", def)
		w.pass(25 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		if n := w.executor.running(); n != 1 {
			t.Errorf("%d programs run after TERM, want the deaf one", n)
		}
		w.pass(10 * time.Second)
		o := w.want("b1", cluster.StateFailed, cluster.ReasonExit)
		if o.Message != "container other was ended by signal 9, after container app ended" {
			t.Errorf("message %q", o.Message)
		}
	})
}

func TestOOMIsItsOwnReason(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Second, Code: 137, OOM: true}
		w.batch("b1", definition("work", "app"))
		w.pass(time.Minute)
		o := w.want("b1", cluster.StateFailed, cluster.ReasonOOM)
		if o.Containers[0].OOMs != 1 {
			t.Errorf("%d OOMs, want 1", o.Containers[0].OOMs)
		}
	})
}

func TestRejections(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*cluster.TaskDefinition, *cluster.Desired)
		prepare error
		reason  cluster.ReasonCode
		message string
	}{
		"a port is taken": {
			func(d *cluster.TaskDefinition, a *cluster.Desired) {
				d.Ports = []cluster.Port{{Name: "http"}, {Name: "admin"}}
				a.Ports = map[string]int{"http": 30001, "admin": 30002}
			},
			nil, cluster.ReasonPortTaken, "port 30002 is used by pid 812 (nginx), which listens at 0.0.0.0:30002 over " +
				"TCP; the task needs it for its port admin",
		},
		"a host volume is missing": {
			func(d *cluster.TaskDefinition, _ *cluster.Desired) {
				d.Volumes = []cluster.Volume{{Name: "data", Host: "/srv/not/there"}}
			},
			nil, cluster.ReasonPrepare, "volume data: the node has no directory /srv/not/there",
		},
		"a host volume is not declared": {
			func(d *cluster.TaskDefinition, _ *cluster.Desired) {
				d.Volumes = []cluster.Volume{{Name: "data", HostVolume: "models"}}
			},
			nil, cluster.ReasonPrepare, `volume data: the node declares no host volume "models": start its agent with ` +
				"--host-volume models=PATH",
		},
		"a folder may not be mounted": {
			func(d *cluster.TaskDefinition, _ *cluster.Desired) {
				d.Volumes = []cluster.Volume{{Name: "data", Host: "/etc"}}
			},
			nil, cluster.ReasonPrepare, "volume data: the node does not share /etc with tasks: declare it there with " +
				"--host-volume, or allow it with --host-path",
		},
		"a port has no number": {
			func(d *cluster.TaskDefinition, _ *cluster.Desired) { d.Ports = []cluster.Port{{Name: "http"}} },
			nil, cluster.ReasonPort, `port "http" was not assigned a number`,
		},
		"a device is missing": {
			func(d *cluster.TaskDefinition, a *cluster.Desired) {
				d.Containers[0].Resources.Devices = []cluster.DeviceRequest{{Type: "gpu", Count: 1}}
				a.Devices = []cluster.DeviceUse{{ID: "gpu-7", Share: 1000}}
			},
			nil, cluster.ReasonDevice, "the node has no device gpu-7 any more",
		},
		"a network is missing": {
			func(d *cluster.TaskDefinition, _ *cluster.Desired) { d.Network = cluster.NetworkBridge },
			nil, cluster.ReasonNetwork, "network bridge: its agent offers no such network; the agent's log gives the reason",
		},
		"the disk is full": {
			func(_ *cluster.TaskDefinition, a *cluster.Desired) { a.Owner.Kind = cluster.KindJob },
			&fs.PathError{Op: "mkdir", Path: "/var/lib/berth/tasks/s1", Err: syscall.ENOSPC}, cluster.ReasonPrepare,
			"container app: /var/lib/berth/tasks/s1: no space left on device",
		},
		"the executor cannot do it": {
			func(*cluster.TaskDefinition, *cluster.Desired) {}, executor.ErrUnsupported,
			cluster.ReasonNoExecutor, executor.ErrUnsupported.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.hostPaths = []string{"/srv"}
				w.restart()
				w.taken[30002] = true
				w.executor.programs[""] = program{Prepare: test.prepare}
				def := definition("web", "app")
				d := w.desired("s1", def, cluster.KindService)
				test.change(def, &d)
				w.assign(d, def)
				if o := w.want("s1", cluster.StateRejected, test.reason); o.Message != test.message {
					t.Errorf("message %q, want %q", o.Message, test.message)
				}
				w.wantEffects()
			})
		})
	}
}

func TestSpec(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		def.Ports = []cluster.Port{{Name: "http-alt"}}
		def.Volumes = []cluster.Volume{{Name: "data"}}
		c := &def.Containers[0]
		c.Env = map[string]string{"URL": "http://$(ADDR_HTTP_ALT)/", "BERTH_NODE": "mine"}
		c.Command = []string{"serve", "--port=$(PORT_HTTP_ALT)", "$(URL)", "$(UNKNOWN)", "$$(URL)", "5$", "$(", "$()"}
		c.Mounts = []cluster.Mount{{Volume: "data", Path: "/data", ReadOnly: true}}
		d := w.desired("s1", def, cluster.KindService)
		d.Ports = map[string]int{"http-alt": 30007}
		w.assign(d, def)
		w.executor.mu.Lock()
		spec := w.executor.runs["s1-0-1"].spec
		w.executor.mu.Unlock()
		want := []string{
			"ADDR_HTTP_ALT=10.0.0.1:30007", "BERTH_ATTEMPT=1", "BERTH_ATTEMPT_ID=s1", "BERTH_CLUSTER=default",
			"BERTH_COUNT=1", "BERTH_INDEX=0", "BERTH_NETWORK=host", "BERTH_NODE=n1", "BERTH_NODE_ADDRESS=10.0.0.1",
			"BERTH_SERVICE=web",
			"BERTH_TASK=default.web.1.0", "PORT_HTTP_ALT=30007", "URL=http://10.0.0.1:30007/",
		}
		if diff := cmp.Diff(want, spec.Env); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		wantCommand := []string{
			"serve", "--port=30007", "http://10.0.0.1:30007/", "$(UNKNOWN)", "$(URL)", "5$", "$(", "$()",
		}
		if diff := cmp.Diff(wantCommand, spec.Container.Command); diff != "" {
			t.Errorf("command (-want +got):\n%s", diff)
		}
		volume := filepath.Join(w.dir, "volumes/default/web/data")
		if diff := cmp.Diff([]executor.Mount{{Source: volume, Path: "/data", ReadOnly: true}},
			spec.Mounts); diff != "" {
			t.Errorf("mounts (-want +got):\n%s", diff)
		}
		for _, dir := range []string{volume, spec.Dir, spec.LogDir} {
			if _, err := os.Stat(dir); err != nil {
				t.Error(err)
			}
		}
		w.stopTask(d, true)
		if _, err := os.Stat(volume); err != nil {
			t.Errorf("the volume did not outlive the task: %v", err)
		}
		if _, err := os.Stat(spec.Dir); err == nil {
			t.Error("the container's directory is kept after the end")
		}
		if _, err := os.Stat(spec.LogDir); err != nil {
			t.Errorf("the output is not kept after the end: %v", err)
		}
	})
}

func TestParameters(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "app")
		c := &def.Containers[0]
		c.Env = map[string]string{"SEED": "0", "TITLE": "seed $(SEED)"}
		c.Command = []string{"work", "$(SEED)"}
		c.Files = []cluster.File{{Path: "/etc/work", Content: "x"}}
		d := w.desired("b1", def, cluster.KindJob)
		d.Parameters = map[string]string{"SEED": "7"}
		w.assign(d, def)
		w.executor.mu.Lock()
		spec := w.executor.runs["b1-0-1"].spec
		w.executor.mu.Unlock()
		for _, want := range []string{"SEED=7", "TITLE=seed 7", "BERTH_PARAMETERS=" + cluster.ParametersFile} {
			if !slices.Contains(spec.Env, want) {
				t.Errorf("%q is not in %q", want, spec.Env)
			}
		}
		if spec.Container.Command[1] != "7" {
			t.Errorf("the command is %q", spec.Container.Command)
		}
		want := []cluster.File{
			{Path: "/etc/work", Content: "x"}, {Path: cluster.ParametersFile, Content: "{\n  \"SEED\": \"7\"\n}\n"},
		}
		if diff := cmp.Diff(want, spec.Container.Files); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
}

// A parameter opens no devices that the task does not have.
func TestParametersOpenNoDevices(t *testing.T) {
	inWorld(t, func(w *world) {
		w.devices = []devices.Device{gpu("a", 0)}
		w.restart()
		def := definition("work", "app")
		d := w.desired("b1", def, cluster.KindJob)
		d.Parameters = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
		w.assign(d, def)
		if env := w.specOf("b1-0-1").Env; !slices.Contains(env, "NVIDIA_VISIBLE_DEVICES=void") {
			t.Errorf("a parameter opens the devices of other tasks: %q", env)
		}
	})
}

func TestBatchEnvironment(t *testing.T) {
	inWorld(t, func(w *world) {
		w.batch("b1", definition("work", "app"))
		w.executor.mu.Lock()
		defer w.executor.mu.Unlock()
		env := w.executor.runs["b1-0-1"].spec.Env
		for _, want := range []string{"BERTH_JOB=web", "BERTH_STEP=main", "BERTH_INDEX=0"} {
			if !slices.Contains(env, want) {
				t.Errorf("%q is not in %q", want, env)
			}
		}
	})
}

func TestCheckTransitionsAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		var bad bool
		w.stop()
		w.probe = func(context.Context, *cluster.Check, map[string]int) error {
			w.executor.mu.Lock()
			defer w.executor.mu.Unlock()
			if bad {
				return errors.New("500")
			}
			return nil
		}
		w.start()
		set := func(b bool) { w.executor.mu.Lock(); bad = b; w.executor.mu.Unlock() }
		def := definition("web", "app")
		def.Checks = []cluster.Check{{
			Name: "http", Type: "http",
			Interval: cluster.Duration(time.Second), InitialDelay: cluster.Duration(time.Second),
		}}
		w.service("s1", def)
		w.pass(10 * time.Second)
		set(true)
		w.pass(10 * time.Second)
		if o := w.want("s1", cluster.StateRunning, ""); o.Message != "readiness check http: 500" {
			t.Errorf("message %q", o.Message)
		}
		set(false)
		w.pass(10 * time.Second)
		w.restart()
		w.pass(500 * time.Millisecond)
		if o := w.want("s1", cluster.StateRunning, ""); o.Health != cluster.HealthHealthy {
			t.Errorf("after a restart of the agent the health is %s", o.Health)
		}
		w.pass(10 * time.Second)
		w.wantStates("s1", "running", "running/healthy", "running/warning", "running/failing", "running/healthy")
	})
}

func TestExecutorThatDoesNotAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Minute}
		def := definition("work", "app")
		w.batch("b1", def)
		set := func(down bool) { w.executor.mu.Lock(); w.executor.down = down; w.executor.mu.Unlock() }
		set(true)
		w.batch("b2", def)
		w.pass(30 * time.Second)
		w.restart()
		w.pass(time.Minute)
		w.want("b1", cluster.StateRunning, "")
		if o := w.want("b2", cluster.StatePreparing, ""); o.Message == "" {
			t.Error("no reason why it waits")
		}
		set(false)
		w.pass(2 * time.Minute)
		w.want("b1", cluster.StateSucceeded, "")
		w.want("b2", cluster.StateSucceeded, "")
		w.wantEffects("app b1", "app b2")
	})
}

func TestFailureCarriesTheEndOfItsLog(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Minute, Code: 1}
		w.batch("b1", definition("work", "app"))
		w.write("b1", "app", 1000, "a line of output, the number")
		w.pass(2 * time.Minute)
		o := w.want("b1", cluster.StateFailed, cluster.ReasonExit)
		if len(o.LogTail) != cluster.MaxLogTail || !strings.HasSuffix(o.LogTail, "the number 999\n") {
			t.Errorf("tail of %d bytes: %.80q…", len(o.LogTail), o.LogTail)
		}
	})
}

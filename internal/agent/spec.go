package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/checks"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// Labels of the containers that an agent makes.
const (
	labelTask      = "berth.task"
	labelAttempt   = "berth.attempt"
	labelUUID      = "berth.uuid"
	labelContainer = "berth.container"
	labelNode      = "berth.node"
)

// taskDir is the folder of all files of an attempt except its volumes.
func (a *Agent) taskDir(uuid string) string { return filepath.Join(a.DataDir, "tasks", uuid) }

// runDir is the folder of one run of a container. The path is short because sockets are made in it.
func (a *Agent) runDir(uuid string, id executor.ID) string {
	return filepath.Join(a.taskDir(uuid), strings.TrimPrefix(string(id), uuid+"-"))
}

// makeDirs makes the directories of a run.
func (a *Agent) makeDirs(s *executor.Spec) error {
	if a.Volatile {
		return nil
	}
	return errors.Join(os.MkdirAll(s.Dir, 0o700), os.MkdirAll(s.LogDir, 0o700))
}

// volumeOwner returns the user of the first container that writes to the volume. An executor that resolves users gives
// the user on the node; otherwise the user must be numeric.
func (a *Agent) volumeOwner(def *cluster.TaskDefinition, volume string) (uid, gid int, ok bool) {
	name, _ := a.machine.choose(def)
	chosen, _ := a.machine.executor(name)
	namer, _ := chosen.(executor.UserNamer)
	for i := range def.Containers {
		c := &def.Containers[i]
		writes := slices.ContainsFunc(c.Mounts, func(m cluster.Mount) bool { return m.Volume == volume && !m.ReadOnly })
		if !writes {
			continue
		}
		if namer != nil {
			uid, gid, err := namer.UserOf(c)
			return uid, gid, err == nil
		}
		user, group, two := strings.Cut(c.User, ":")
		if !two {
			group = user
		}
		uid, err := strconv.Atoi(user)
		if err != nil {
			return 0, 0, false
		}
		gid, err := strconv.Atoi(group)
		return uid, gid, err == nil
	}
	return 0, 0, false
}

// spec returns the executor's spec of a container; serviceEnv holds the variables of its services. The error names
// devices and volumes that the node lacks.
func (a *Agent) spec(d *cluster.Desired, def *cluster.TaskDefinition, i int, id executor.ID,
	serviceEnv map[string]string,
) (executor.Spec, error) {
	c := def.Containers[i]
	grant, err := a.grantDevices(d, def, i)
	if err != nil {
		return executor.Spec{ID: id, Container: c}, err
	}
	env := a.environment(d, def)
	maps.Copy(env, grant.env)
	maps.Copy(env, serviceEnv)
	own := maps.Clone(env)
	for name, value := range c.Env {
		if _, taken := env[name]; !taken {
			own[name] = expand(value, env)
		}
	}
	for name, value := range grant.hints {
		if _, taken := own[name]; !taken {
			own[name] = value
		}
	}
	c.Env = nil
	c.Command, c.Args = expandAll(c.Command, own), expandAll(c.Args, own)
	spec := executor.Spec{
		ID: id,
		Labels: map[string]string{
			labelTask: string(d.Task), labelUUID: d.UUID, labelAttempt: strconv.Itoa(d.Attempt),
			labelContainer: c.Name, labelNode: a.Name,
		},
		Container: c,
		Dir:       a.runDir(d.UUID, id),
		LogDir:    a.logDir(d.UUID, c.Name),
		Devices:   grant.devices, CDI: grant.cdi, CPUs: grant.cpus, NumaNodes: grant.numaNodes,

		Credentials: a.Credentials,
	}
	for _, name := range sortedKeys(own) {
		spec.Env = append(spec.Env, name+"="+own[name])
	}
	spec.Mounts = a.resolverMount(d, def, &c)
	for _, m := range c.Mounts {
		for j := range def.Volumes {
			if def.Volumes[j].Name == m.Volume {
				dir, readOnly, err := a.volumeDir(d, &def.Volumes[j])
				if err != nil {
					return spec, fmt.Errorf("volume %s: %w", m.Volume, err)
				}
				spec.Mounts = append(spec.Mounts,
					executor.Mount{Source: dir, Path: m.Path, ReadOnly: m.ReadOnly || readOnly})
			}
		}
	}
	return spec, nil
}

// environment returns the variables that describe the task to each of its containers. The manifest cannot replace them.
// PORT_x is the number to listen on, ADDR_x the address for other programs.
func (a *Agent) environment(d *cluster.Desired, def *cluster.TaskDefinition) map[string]string {
	address := a.machine.facts().Address
	env := map[string]string{
		"BERTH_TASK":         string(d.Task),
		"BERTH_CLUSTER":      d.Owner.Cluster,
		"BERTH_COUNT":        strconv.Itoa(d.Count),
		"BERTH_ATTEMPT":      strconv.Itoa(d.Attempt),
		"BERTH_ATTEMPT_ID":   d.UUID,
		"BERTH_NODE":         a.Name,
		"BERTH_NODE_ADDRESS": address,
		"BERTH_NETWORK":      string(cmp.Or(def.Network, cluster.NetworkHost)),
	}
	parts, _ := d.Task.Parts()
	env["BERTH_INDEX"] = strconv.Itoa(parts.Index)
	if d.Batch() {
		env["BERTH_JOB"], env["BERTH_STEP"] = d.Owner.Name, parts.Step
	} else {
		env["BERTH_SERVICE"] = d.Owner.Name
	}
	for name, port := range d.Ports {
		suffix := strings.ReplaceAll(strings.ToUpper(name), "-", "_")
		env["PORT_"+suffix] = strconv.Itoa(def.PortInside(name, port))
		env["ADDR_"+suffix] = net.JoinHostPort(address, strconv.Itoa(port))
	}
	return env
}

// expand replaces each $(NAME) by its value and leaves unknown names as they are. $$ stands for $.
func expand(s string, env map[string]string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		s = after
		switch {
		case strings.HasPrefix(s, "$("):
			out.WriteString("$(")
			s = s[2:]
			continue
		case strings.HasPrefix(s, "("):
			name, rest, closed := strings.Cut(s[1:], ")")
			if value, known := env[name]; closed && known {
				out.WriteString(value)
				s = rest
				continue
			}
		}
		out.WriteByte('$')
	}
}

func expandAll(list []string, env map[string]string) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = expand(s, env)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// maxExecOutput limits the stored output of an exec check, in bytes.
const maxExecOutput = 1024

// prober returns the function that runs the task's checks. It is called on the task's goroutine and used on others.
func (t *task) prober() func(context.Context, *cluster.Check) error {
	a, ports := t.agent, t.rec.Desired.Ports
	p := checks.Prober{
		Host: a.machine.facts().Address, Ports: ports,
		Exec: func(ctx context.Context, container string, command []string) (int, []byte, error) {
			exec, id, err := t.runningContainer(container)
			if err != nil {
				return 0, nil, err
			}
			var out clipped
			code, err := exec.Exec(ctx, id, executor.Command{Args: command, Stdout: &out, Stderr: &out})
			return code, out.Bytes(), err
		},
	}
	return func(ctx context.Context, c *cluster.Check) error {
		if a.Probe != nil && c.Type != cluster.CheckExec {
			return a.Probe(ctx, c, ports)
		}
		return p.Probe(ctx, c)
	}
}

// clipped keeps the beginning of what is written to it.
type clipped struct{ bytes.Buffer }

// Write takes all of b and keeps what fits.
func (c *clipped) Write(b []byte) (int, error) {
	c.Buffer.Write(b[:min(len(b), max(maxExecOutput-c.Len(), 0))])
	return len(b), nil
}

// runningContainer returns the executor and the id of a running container of the task: the named one, or the first
// essential one. It may be called on any goroutine.
func (t *task) runningContainer(name string) (executor.Executor, executor.ID, error) {
	v := t.view.Load()
	if v == nil || v.def == nil {
		return nil, "", executor.ErrNotRunning
	}
	i := slices.IndexFunc(v.def.Containers, func(c cluster.Container) bool {
		return c.Name == name || name == "" && !c.Init && !c.Optional
	})
	if i < 0 {
		names := make([]string, len(v.def.Containers))
		for i := range names {
			names[i] = v.def.Containers[i].Name
		}
		return nil, "", fmt.Errorf("the task has no container %q; it has %s", name, strings.Join(names, ", "))
	}
	if i >= len(v.rec.Containers) || v.rec.Containers[i].Progress != attempt.Running {
		return nil, "", fmt.Errorf("container %s: %w", v.def.Containers[i].Name, executor.ErrNotRunning)
	}
	exec, err := t.agent.executorByName(v.rec.Executor)
	return exec, v.rec.Containers[i].ID, err
}

package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// defaultCluster is the cluster of objects that name none.
const defaultCluster = "default"

// Check returns all faults of a request's changes by themselves, each with its path. Faults that depend on the domain
// are found when a change is made.
func Check(ask api.SimulateRequest) cluster.Faults {
	var faults cluster.Faults
	add := func(path, format string, args ...any) {
		faults = append(faults, cluster.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if n := len(ask.Changes); n == 0 {
		add("changes", "is empty: want at least one change")
	} else if n > api.MaxSimulateChanges {
		add("changes", "holds %d changes, at most %d are allowed", n, api.MaxSimulateChanges)
		return faults
	}
	nodes := 0
	for i := range ask.Changes {
		c := &ask.Changes[i]
		path := "changes[" + strconv.Itoa(i) + "]"
		if n := countFields(c); n != 1 {
			add(path, "holds %d changes, want exactly one of add_nodes, remove_node, drain_node, "+
				"undrain_node, cordon_node, uncordon_node, taint, untaint, run, scale, restart and delete", n)
		}
		if c.AddNodes != nil {
			nodes += max(1, c.AddNodes.Count)
			_, wrong := parseNodeSpec(c.AddNodes)
			for _, f := range wrong {
				add(path+".add_nodes."+f.Path, "%s", f.Message)
			}
		}
		for _, n := range nodeFields(c) {
			if !cluster.ValidNodeName(n.name) {
				add(path+"."+n.field, "%q is not the name of a node", n.name)
			}
		}
		checkTaints(c, path, add)
		checkObjects(c, path, add)
	}
	if nodes > api.MaxSimulateNodes {
		add("changes", "add %d nodes, at most %d are allowed", nodes, api.MaxSimulateNodes)
	}
	return faults
}

// countFields counts the fields of a change that are set.
func countFields(c *api.SimulateChange) int {
	n := 0
	for _, set := range []bool{
		c.AddNodes != nil, c.RemoveNode != "", c.DrainNode != "", c.UndrainNode != "", c.CordonNode != "",
		c.UncordonNode != "",
		c.Taint != nil, c.Untaint != nil, len(c.Run) > 0, c.Scale != nil, c.Restart != nil, c.Delete != nil,
	} {
		if set {
			n++
		}
	}
	return n
}

func checkTaints(c *api.SimulateChange, path string, add func(path, format string, args ...any)) {
	// order-free: a change has one of them
	for field, t := range map[string]*api.SimulateTaints{"taint": c.Taint, "untaint": c.Untaint} {
		if t == nil {
			continue
		}
		if t.Node == "" {
			add(path+"."+field+".node", "is empty: want the name of a node")
		}
		if len(t.Taints) == 0 {
			add(path+"."+field+".taints", "is empty: want at least one, such as dedicated=gpu:no-schedule")
		}
		for i, text := range t.Taints {
			if _, err := cluster.ParseTaint(text); err != nil {
				add(fmt.Sprintf("%s.%s.taints[%d]", path, field, i), "%v", err)
			}
		}
	}
}

func checkObjects(c *api.SimulateChange, path string, add func(path, format string, args ...any)) {
	if s := c.Scale; s != nil {
		if !cluster.ValidName(s.Service) {
			add(path+".scale.service", "%q is not the name of a service", s.Service)
		}
		if s.Cluster != "" && !cluster.ValidName(s.Cluster) {
			add(path+".scale.cluster", "%q is not the name of a cluster", s.Cluster)
		}
		if s.Count < 0 || s.Count > cluster.MaxCount {
			add(path+".scale.count", "is %d, want 0 to %d", s.Count, cluster.MaxCount)
		}
	}
	object := func(field string, o *api.SimulateObject, kinds ...cluster.Kind) {
		if o == nil {
			return
		}
		if !cluster.ValidName(o.Name) {
			add(path+"."+field+".name", "%q is not a name", o.Name)
		}
		if o.Cluster != "" && !cluster.ValidName(o.Cluster) {
			add(path+"."+field+".cluster", "%q is not the name of a cluster", o.Cluster)
		}
		kind := cmp.Or(o.Kind, cluster.KindService)
		var names []string
		for _, k := range kinds {
			if k == kind {
				return
			}
			names = append(names, string(k))
		}
		add(path+"."+field+".kind", "is %q, want %s", o.Kind, strings.Join(names, " or "))
	}
	object("restart", c.Restart, cluster.KindService)
	object("delete", c.Delete, cluster.KindService, cluster.KindJob, cluster.KindCron)
}

// Apply makes one change, as its user would. Its effects follow with Settle. An error that is a *client.Error is the
// API server's answer to the change.
func (w *World) Apply(ctx context.Context, c *api.SimulateChange) error {
	if err := w.checkDomain(c); err != nil {
		return err
	}
	switch {
	case c.AddNodes != nil:
		return w.addNodes(ctx, c.AddNodes)
	case c.RemoveNode != "":
		return w.removeNode(ctx, c.RemoveNode)
	}
	if err := requestChange(ctx, w.client, c); err != nil {
		return err
	}
	return w.checkObjectDomains(c.Run) // they may be of clusters that the change made
}

// requestChange requests a change from an API server.
func requestChange(ctx context.Context, to *client.Client, c *api.SimulateChange) (err error) {
	var none client.Condition
	switch {
	case c.DrainNode != "":
		_, err = to.DrainNode(ctx, c.DrainNode, api.NodeAction{}, none)
	case c.UndrainNode != "":
		_, err = to.UndrainNode(ctx, c.UndrainNode, none)
	case c.CordonNode != "":
		_, err = to.CordonNode(ctx, c.CordonNode, none)
	case c.UncordonNode != "":
		_, err = to.UncordonNode(ctx, c.UncordonNode, none)
	case c.Taint != nil:
		_, err = to.TaintNode(ctx, c.Taint.Node, parseTaints(c.Taint.Taints), none)
	case c.Untaint != nil:
		var keys []api.TaintKey
		for _, t := range parseTaints(c.Untaint.Taints) {
			keys = append(keys, api.TaintKey{Key: t.Key, Effect: t.Effect})
		}
		_, err = to.UntaintNode(ctx, c.Untaint.Node, keys, none)
	case c.Scale != nil:
		err = to.ScaleService(ctx, cmp.Or(c.Scale.Cluster, defaultCluster), c.Scale.Service, c.Scale.Count, none)
	case c.Restart != nil:
		err = to.RestartService(ctx, cmp.Or(c.Restart.Cluster, defaultCluster), c.Restart.Name)
	case c.Delete != nil:
		err = deleteObject(ctx, to, c.Delete)
	default:
		_, err = to.Apply(ctx, api.ApplyRequest{Objects: c.Run})
	}
	return err
}

// parseTaints parses taints that were checked before.
func parseTaints(texts []string) []cluster.Taint {
	out := make([]cluster.Taint, len(texts))
	for i, text := range texts {
		out[i], _ = cluster.ParseTaint(text) // it was checked
	}
	return out
}

func deleteObject(ctx context.Context, from *client.Client, o *api.SimulateObject) error {
	in := cmp.Or(o.Cluster, defaultCluster)
	switch o.Kind {
	case cluster.KindJob:
		return from.DeleteJob(ctx, in, o.Name, client.Condition{})
	case cluster.KindCron:
		return from.DeleteCron(ctx, in, o.Name, client.Condition{})
	default:
		return from.DeleteService(ctx, in, o.Name, client.Condition{})
	}
}

// removeNode lets a machine die and declares it gone as the operator.
func (w *World) removeNode(ctx context.Context, name string) error {
	_, err := w.client.ForgetNode(ctx, name, true, client.Condition{})
	if err == nil {
		w.agents.disconnect(name)
	}
	return err
}

// locateFaults adds to the faults of a refused change their path in the request.
func locateFaults(err error, i int) error {
	path := "changes[" + strconv.Itoa(i) + "]"
	if faults, ok := errors.AsType[cluster.Faults](err); ok {
		return prefixFaults(faults, path)
	}
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Status >= http.StatusInternalServerError {
		return fmt.Errorf("%s: %w", path, err)
	}
	if len(refused.Faults) == 0 {
		return cluster.Faults{{Path: path, Message: refused.Detail}}
	}
	if strings.HasPrefix(refused.Faults[0].Path, "objects[") {
		for i := range refused.Faults {
			refused.Faults[i].Path = strings.TrimPrefix(refused.Faults[i].Path, "objects")
		}
		return prefixFaults(refused.Faults, path+".run")
	}
	return prefixFaults(refused.Faults, path)
}

// prefixFaults puts faults below a path.
func prefixFaults(faults []cluster.Fault, path string) cluster.Faults {
	out := make(cluster.Faults, 0, len(faults))
	for _, f := range faults {
		at := path
		switch {
		case f.Path == "":
		case strings.HasPrefix(f.Path, "["):
			at += f.Path
		default:
			at += "." + f.Path
		}
		out = append(out, cluster.Fault{Path: at, Message: f.Message})
	}
	return out
}

// Describe describes a change in the words of the command line.
func Describe(c *api.SimulateChange) string {
	name := func(in, name string) string {
		if in == "" || in == defaultCluster {
			return name
		}
		return in + "/" + name
	}
	switch {
	case c.AddNodes != nil:
		return describeNodes(c.AddNodes)
	case c.RemoveNode != "":
		return "remove node " + c.RemoveNode
	case c.DrainNode != "":
		return "drain node " + c.DrainNode
	case c.UndrainNode != "":
		return "undrain node " + c.UndrainNode
	case c.CordonNode != "":
		return "cordon node " + c.CordonNode
	case c.UncordonNode != "":
		return "uncordon node " + c.UncordonNode
	case c.Taint != nil:
		return "taint node " + c.Taint.Node + " " + strings.Join(c.Taint.Taints, " ")
	case c.Untaint != nil:
		return "untaint node " + c.Untaint.Node + " " + strings.Join(c.Untaint.Taints, " ")
	case c.Scale != nil:
		return fmt.Sprintf("scale %s to %d", name(c.Scale.Cluster, c.Scale.Service), c.Scale.Count)
	case c.Restart != nil:
		return "restart " + name(c.Restart.Cluster, c.Restart.Name)
	case c.Delete != nil:
		return fmt.Sprintf("delete %s %s", strings.ToLower(string(cmp.Or(c.Delete.Kind, cluster.KindService))),
			name(c.Delete.Cluster, c.Delete.Name))
	}
	if len(c.Run) == 1 {
		return "run 1 object"
	}
	return fmt.Sprintf("run %d objects", len(c.Run))
}

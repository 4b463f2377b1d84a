package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/endpoint"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/node"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/redact"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/written"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// maxInspectEvents is how many of the newest events inspect shows.
const maxInspectEvents = 20

// inspection is an object with the objects that belong to it. Only the fields of its kind are set.
type inspection struct {
	Object   string               `json:"object"`
	Service  *api.ServiceView     `json:"service,omitempty"`
	Job      *api.JobView         `json:"job,omitempty"`
	Cron     *api.CronView        `json:"cron,omitempty"`
	Endpoint *api.EndpointView    `json:"endpoint,omitempty"`
	Node     *api.NodeView        `json:"node,omitempty"`
	Pool     *api.PoolView        `json:"pool,omitempty"`
	Profile  *api.ProfileView     `json:"profile,omitempty"`
	Domain   *api.DomainView      `json:"domain,omitempty"`
	Cluster  *api.ClusterView     `json:"cluster,omitempty"`
	Attempts []api.TaskView       `json:"attempts,omitempty"` // of a task, the newest first
	Versions []api.DefinitionView `json:"definitions,omitempty"`
	Rollout  *api.RolloutView     `json:"rollout,omitempty"`
	Scale    *api.ScaleView       `json:"scale,omitempty"`
	// those of an endpoint
	Addresses []endpoint.Address `json:"addresses,omitempty"`
	// by name: those of a pool
	Nodes []string `json:"nodes,omitempty"`
	// by name: those of a cluster, or those that use a definition
	Services  []string             `json:"services,omitempty"`
	Jobs      []string             `json:"jobs,omitempty"`
	Crons     []string             `json:"crons,omitempty"`
	Endpoints []string             `json:"endpoints,omitempty"` // those of a cluster
	Tasks     []api.TaskView       `json:"tasks,omitempty"`
	Events    []api.EventView      `json:"events,omitempty"` // the newest last
	manifests []any                // what a user would write, in the order of an apply
	refs      map[cluster.Ref]bool // the definitions that the object uses
	filter    client.EventFilter   // selects the object's events
}

const inspectLong = "Print an object with everything that belongs to it, as YAML or with -o json: the object " +
	"with its\n" +
	"defaults and its status, its task definitions, the state of its rollout and scaling, its tasks and\n" +
	"its newest events. With --as-written, print manifests without defaults, as 'berth run' takes them.\n\n" +
	"The output omits values of environment variables, files of definitions, and everything that looks\n" +
	"like a secret, as 'berth operator debug' does. --reveal shows them to users who may run commands in\n" +
	"containers; this needs the role submitter."

// inspectCommand is `berth inspect`.
type inspectCommand struct {
	*session.Session
	reveal, asWritten bool
}

// NewInspectCommand returns the command `berth inspect`.
func NewInspectCommand(sess *session.Session) *cobra.Command {
	i := &inspectCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "inspect NAME|KIND/NAME", Short: "Print an object with everything that belongs to it", Long: inspectLong,
		Args:              session.Arguments(1, 1, "an object, such as web, task/web.1.0 or definition/web@1"),
		ValidArgsFunction: sess.CompleteObjects(1, objectKinds()...),
		RunE:              i.run,
	}
	cmd.Flags().BoolVar(&i.reveal, "reveal", false,
		"show values of environment variables and files, and everything that looks like a secret")
	cmd.Flags().BoolVar(&i.asWritten, "as-written", false, "print manifests without defaults")
	return cmd
}

func (i *inspectCommand) run(cmd *cobra.Command, args []string) error {
	c, err := i.Connect()
	if err != nil {
		return err
	}
	n, err := i.FindObject(cmd, c, args[0], objectKinds()...)
	if err != nil {
		return err
	}
	if i.asWritten && (n.Kind == wording.KindTask || n.Kind == wording.KindNode) {
		return &session.UsageError{
			Command: cmd.CommandPath(),
			Message: fmt.Sprintf("--as-written: a %s has no manifest; inspect its service, job or definition",
				n.Kind),
		}
	}
	v := inspection{refs: map[cluster.Ref]bool{}}
	if n.Kind == wording.KindTask {
		found, err := i.FindTask(cmd.Context(), c, n.Name)
		if err != nil {
			return err
		}
		n.Name = string(found.ID)
	}
	if err := v.collect(cmd.Context(), c, n); err != nil {
		return err
	}
	if err := v.readDefinitions(cmd.Context(), c, i.reveal); err != nil {
		return err
	}
	if i.asWritten {
		return printManifests(i.Session, &v, i.reveal)
	}
	if v.Events, err = listEvents(cmd.Context(), c, v.filter); err != nil {
		return err
	}
	return printInspection(i.Session, &v, i.reveal)
}

// collect reads the object and what belongs to it, except definitions and events.
func (v *inspection) collect(ctx context.Context, c *client.Client, n session.Name) (err error) {
	v.Object = n.String()
	switch n.Kind {
	case wording.KindService:
		return v.readService(ctx, c, n)
	case wording.KindJob:
		j, err := n.Job(ctx, c)
		if err != nil {
			return err
		}
		v.Job, v.filter = &j, client.EventFilter{Cluster: j.Cluster, Job: j.Name}
		v.manifests = []any{&j.Job}
		v.addDefinitions(j.Steps)
		v.Tasks, err = fetch.ListTasks(ctx, c, session.Name{Kind: wording.KindJob, Cluster: j.Cluster, Name: j.Name},
			true)
		return err
	case wording.KindCron:
		return v.readCron(ctx, c, n)
	case wording.KindEndpoint:
		return v.readEndpoint(ctx, c, n)
	case wording.KindTask:
		return v.readTask(ctx, c, cluster.TaskID(n.Name))
	case wording.KindNode:
		found, err := c.Node(ctx, n.Name)
		if err != nil {
			return err
		}
		v.Node, v.filter = &found, client.EventFilter{Node: n.Name}
		v.Tasks, err = session.ListTasks(ctx, c, client.TaskFilter{Node: n.Name, All: true})
		return err
	case wording.KindDomain:
		return v.readDomain(ctx, c, n.Name)
	case wording.KindPool:
		return v.readPool(ctx, c, n.Name)
	case wording.KindProfile:
		return v.readProfile(ctx, c, n.Name)
	case wording.KindDefinition:
		return v.readDefinition(ctx, c, n.Name)
	}
	in, err := session.FindCluster(ctx, c, n.Name)
	if err != nil {
		return err
	}
	plain := in.Cluster
	v.Cluster, v.manifests, v.filter = &in, []any{&plain}, client.EventFilter{Cluster: n.Name}
	all, err := session.ListEndpoints(ctx, c, n.Name, "")
	if fetch.IgnoreNotFound(err) != nil { // a server of an earlier version has none
		return err
	}
	for _, e := range all {
		v.Endpoints = append(v.Endpoints, session.EndpointName(e).String())
	}
	return v.listOwners(ctx, c, n.Name, func([]cluster.Ref) bool { return true })
}

func (v *inspection) readService(ctx context.Context, c *client.Client, n session.Name) error {
	s, err := n.Service(ctx, c)
	if err != nil {
		return err
	}
	v.Service, v.filter = &s, client.EventFilter{Cluster: s.Cluster, Service: s.Name}
	v.manifests = []any{&s.Service}
	v.refs[s.Definition] = true
	for _, version := range s.Status.Versions {
		if version.Begun > 0 {
			v.refs[version.Definition] = true
		}
	}
	rollout, err := c.Rollout(ctx, s.Cluster, s.Name)
	switch {
	case err == nil:
		v.Rollout = &rollout
	case client.StatusOf(err) != http.StatusNotFound:
		return err
	}
	if s.Scaling != nil {
		scale, err := c.Scale(ctx, s.Cluster, s.Name)
		if err != nil {
			return err
		}
		v.Scale = &scale
	}
	v.Tasks, err = fetch.ListTasks(ctx, c, session.Name{Kind: wording.KindService, Cluster: s.Cluster, Name: s.Name},
		true)
	return err
}

func (v *inspection) readCron(ctx context.Context, c *client.Client, n session.Name) error {
	cr, err := n.Cron(ctx, c)
	if err != nil {
		return err
	}
	v.Cron, v.filter = &cr, client.EventFilter{Cluster: cr.Cluster, Cron: cr.Name}
	v.manifests = []any{&cr.Cron}
	v.addDefinitions(cr.Job.Steps)
	jobs, err := fetch.ListCronJobs(ctx, c, cr)
	for _, j := range jobs {
		v.Jobs = append(v.Jobs, session.Name{Kind: wording.KindJob, Cluster: j.Cluster, Name: j.Name}.String())
	}
	return err
}

func (v *inspection) readEndpoint(ctx context.Context, c *client.Client, n session.Name) error {
	e, err := n.Endpoint(ctx, c)
	if err != nil {
		return err
	}
	v.Endpoint, v.manifests = &e, []any{&e.Endpoint}
	v.Addresses, err = endpoint.List(ctx, c, e)
	return err
}

func (v *inspection) readPool(ctx context.Context, c *client.Client, name string) error {
	p, err := session.FindPool(ctx, c, name)
	if err != nil {
		return err
	}
	plain := p.Pool
	v.Pool, v.manifests = &p, []any{&plain}
	nodes, err := node.ListPoolNodes(ctx, c, name)
	for _, n := range nodes {
		v.Nodes = append(v.Nodes, n.Name)
	}
	slices.Sort(v.Nodes)
	return err
}

func (v *inspection) readProfile(ctx context.Context, c *client.Client, name string) error {
	p, err := session.FindProfile(ctx, c, name)
	if err != nil {
		return err
	}
	plain := p.Profile
	v.Profile, v.manifests, v.Nodes = &p, []any{&plain}, p.Nodes
	return nil
}

func (v *inspection) readDomain(ctx context.Context, c *client.Client, name string) error {
	d, err := session.FindDomain(ctx, c, name)
	if err != nil {
		return err
	}
	plain := d.Domain
	plain.Number, plain.RescheduleUntil = 0, time.Time{} // the server sets them
	v.Domain, v.manifests = &d, []any{&plain}
	return nil
}

func (v *inspection) readTask(ctx context.Context, c *client.Client, id cluster.TaskID) error {
	found, err := c.Task(ctx, id)
	if err != nil {
		return err
	}
	v.Object = wording.KindTask + "/" + string(found.ID)
	v.filter = client.EventFilter{Task: string(found.ID)}
	v.refs[found.Definition] = true
	if v.Attempts, err = fetch.ListAttempts(ctx, c, found); err != nil {
		return err
	}
	owner := session.OwnerName(found.Owner)
	if owner.Kind == wording.KindJob {
		j, err := c.Job(ctx, owner.Cluster, owner.Name)
		if err == nil {
			v.Job = &j
		}
		return fetch.IgnoreNotFound(err)
	}
	s, err := c.Service(ctx, owner.Cluster, owner.Name)
	if err == nil {
		v.Service = &s
	}
	return fetch.IgnoreNotFound(err)
}

func (v *inspection) readDefinition(ctx context.Context, c *client.Client, text string) error {
	ref, err := cluster.ParseRef(text)
	if err != nil {
		return err
	}
	if ref.Version == 0 {
		if ref.Version, err = fetch.NewestVersion(ctx, c, ref.Name); err != nil {
			return err
		}
		v.Object = wording.KindDefinition + "/" + ref.String()
	}
	v.refs[ref] = true
	return v.listOwners(ctx, c, "", func(refs []cluster.Ref) bool { return slices.Contains(refs, ref) })
}

// listOwners adds the names of the services, jobs and crons whose definitions satisfy uses. It searches one cluster, or
// all for "".
func (v *inspection) listOwners(ctx context.Context, c *client.Client, in string, uses func([]cluster.Ref) bool) error {
	all, err := fetch.ListOwners(ctx, c, "", client.ListOptions{})
	if err != nil {
		return err
	}
	of := func(own string) bool { return in == "" || own == in }
	for _, s := range all.Services {
		refs := []cluster.Ref{s.Definition}
		for _, version := range s.Status.Versions {
			refs = append(refs, version.Definition)
		}
		if of(s.Cluster) && uses(refs) {
			v.Services = append(v.Services, session.ServiceName(s).String())
		}
	}
	for _, j := range all.Jobs {
		if of(j.Cluster) && uses(fetch.DefinitionRefs(j.Steps)) {
			v.Jobs = append(v.Jobs, session.Name{Kind: wording.KindJob, Cluster: j.Cluster, Name: j.Name}.String())
		}
	}
	for _, cr := range all.Crons {
		if of(cr.Cluster) && uses(fetch.DefinitionRefs(cr.Job.Steps)) {
			v.Crons = append(v.Crons, session.Name{Kind: wording.KindCron, Cluster: cr.Cluster, Name: cr.Name}.String())
		}
	}
	for _, names := range [][]string{v.Services, v.Jobs, v.Crons} {
		slices.Sort(names)
	}
	return nil
}

func (v *inspection) addDefinitions(steps []cluster.Step) {
	for _, ref := range fetch.DefinitionRefs(steps) {
		v.refs[ref] = true
	}
}

// readDefinitions reads the definitions that the object uses. A definition that was deleted meanwhile is left out,
// unless it is the inspected object.
func (v *inspection) readDefinitions(ctx context.Context, c *client.Client, reveal bool) error {
	refs := slices.SortedFunc(maps.Keys(v.refs), func(x, y cluster.Ref) int {
		if x.Name == y.Name {
			return x.Version - y.Version
		}
		return bytes.Compare([]byte(x.Name), []byte(y.Name))
	})
	ask := c.Definition
	if reveal {
		ask = c.RevealedDefinition
	}
	for _, ref := range refs {
		d, err := ask(ctx, ref)
		if client.StatusOf(err) == http.StatusNotFound && v.Object != wording.KindDefinition+"/"+ref.String() {
			continue
		}
		if err != nil {
			return err
		}
		v.Versions = append(v.Versions, d)
	}
	return nil
}

// listEvents returns the newest events that a filter selects, the newest last. A server without event filters yields
// none.
func listEvents(ctx context.Context, c *client.Client, f client.EventFilter) ([]api.EventView, error) {
	if reflect.DeepEqual(f, client.EventFilter{}) { // definitions, pools and endpoints have no events of their own
		return nil, nil
	}
	var kept []api.EventView
	o := client.EventOptions{EventFilter: f}
	for {
		page, err := c.Events(ctx, o, client.ListOptions{})
		switch {
		case client.StatusOf(err) == http.StatusBadRequest:
			return nil, nil
		case err != nil:
			return nil, err
		}
		kept = append(kept, page.Items...)
		kept = kept[max(0, len(kept)-maxInspectEvents):]
		if page.Next == "" || len(page.Items) == 0 {
			return kept, nil
		}
		o.After = page.Items[len(page.Items)-1].ID
	}
}

// printInspection prints the object and what belongs to it. Without reveal, secrets are removed.
func printInspection(sess *session.Session, v *inspection, reveal bool) error {
	scrub := redact.NewScrubber()
	if !reveal {
		for i := range v.Versions {
			scrub.ScrubDefinition(&v.Versions[i].TaskDefinition)
		}
		for _, list := range [][]api.TaskView{v.Tasks, v.Attempts} {
			for i := range list {
				if list[i].LogTail != "" {
					list[i].LogTail = redact.Removed // output of programs may hold secrets
				}
			}
		}
	}
	plain := sess.Output
	if !sess.WantsData() {
		plain.Format = output.OutputYAML
	}
	if reveal {
		return plain.PrintData(v)
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	if encoded, err = scrub.ScrubJSON(encoded); err != nil {
		return err
	}
	return plain.PrintData(json.RawMessage(encoded))
}

// printManifests prints manifests of the object and its definitions without default values. Definitions that were
// written as templates are in their places.
func printManifests(sess *session.Session, v *inspection, reveal bool) error {
	hid := false
	scrub := redact.NewScrubber()
	definitions := map[cluster.Ref]*cluster.TaskDefinition{}
	for i := range v.Versions {
		d := &v.Versions[i].TaskDefinition
		definitions[d.Ref()] = d
		if !reveal {
			hid = hid || slices.ContainsFunc(d.Containers, func(c cluster.Container) bool {
				return len(c.Env)+len(c.Files) > 0
			})
			scrub.ScrubDefinition(d)
		}
	}
	var owners, all []any
	inside := map[string]bool{} // names of definitions
	for _, m := range v.manifests {
		owner, replaced := written.WithTemplates(m, func(ref cluster.Ref) *cluster.TaskDefinition {
			return definitions[ref]
		})
		owners = append(owners, owner)
		for _, ref := range replaced {
			inside[ref.Name] = true
		}
	}
	for i := range v.Versions {
		if d := &v.Versions[i].TaskDefinition; !inside[d.Name] {
			all = append(all, d)
		}
	}
	plain := sess.Output
	if !sess.WantsData() {
		plain.Format = output.OutputYAML
	}
	for i, object := range append(all, owners...) {
		document, err := written.Manifest(object)
		if err != nil {
			return err
		}
		if plain.Format == output.OutputYAML && i > 0 {
			sess.Printf("---")
		}
		if err := plain.PrintData(document); err != nil {
			return err
		}
	}
	if hid {
		sess.Messagef("berth: values of environment variables and files are left out; --reveal shows them")
	}
	return nil
}

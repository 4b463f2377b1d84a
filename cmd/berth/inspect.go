package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// inspectEvents is how many of the newest events are shown with an object.
const inspectEvents = 20

// inspected is an object with what belongs to it. Only what belongs to its kind is set.
type inspected struct {
	Object   string               `json:"object"`
	Service  *api.ServiceView     `json:"service,omitempty"`
	Job      *api.JobView         `json:"job,omitempty"`
	Cron     *api.CronView        `json:"cron,omitempty"`
	Node     *api.NodeView        `json:"node,omitempty"`
	Cluster  *api.ClusterView     `json:"cluster,omitempty"`
	Attempts []api.TaskView       `json:"attempts,omitempty"` // of a task, the newest first
	Versions []api.DefinitionView `json:"definitions,omitempty"`
	Rollout  *api.RolloutView     `json:"rollout,omitempty"`
	Scale    *api.ScaleView       `json:"scale,omitempty"`
	Services []string             `json:"services,omitempty"` // by name: of a cluster, or those that use a definition
	Jobs     []string             `json:"jobs,omitempty"`
	Crons    []string             `json:"crons,omitempty"`
	Tasks    []api.TaskView       `json:"tasks,omitempty"`
	Events   []api.EventView      `json:"events,omitempty"` // the newest last
	written  []any                // what a user writes of it, in the order in which it is applied
	refs     map[cluster.Ref]bool // definitions that belong to it
	filter   client.EventFilter   // of its events
}

const inspectLong = `Print an object with everything that belongs to it, as YAML or with -o json: the object with its defaults filled in and its status, the
definitions that it runs, where its rollout and scaling stand, its tasks and its newest events. With --as-written it prints manifests
instead, without what the defaults fill in: what 'berth run' takes.

Values of environments and files of definitions are left out, and so is what looks like a secret anywhere, as in the bundle of
'berth operator debug'. With --reveal they are shown to those who may run commands in containers: that needs the role submitter.`

func (a *app) newInspectCommand() *cobra.Command {
	var reveal, written bool
	kinds := []string{wordService, wordJob, wordCron, wordTask, wordNode, wordCluster, wordDefinition}
	cmd := &cobra.Command{
		Use: "inspect KIND/NAME", Short: "Print an object with everything that belongs to it", Long: inspectLong,
		Args:              arguments(1, 1, "an object, such as service/web, task/web.1.0 or definition/web@1"),
		ValidArgsFunction: a.completeObjects(1, kinds...),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parseName(cmd, args[0], kinds...)
			if err != nil {
				return err
			}
			if written && (n.kind == wordTask || n.kind == wordNode) {
				return &usageError{
					cmd.CommandPath(),
					fmt.Sprintf("--as-written: nobody writes a %s; inspect its service, job or definition", n.kind),
				}
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			v := inspected{refs: map[cluster.Ref]bool{}}
			if err := v.collect(cmd.Context(), c, n); err != nil {
				return err
			}
			if err := v.definitions(cmd.Context(), c, reveal); err != nil {
				return err
			}
			if written {
				return a.printWritten(&v, reveal)
			}
			if v.Events, err = eventsAbout(cmd.Context(), c, v.filter); err != nil {
				return err
			}
			return a.printInspected(&v, reveal)
		},
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false,
		"show the values of environments and files, and what looks like a secret")
	cmd.Flags().BoolVar(&written, "as-written", false, "print manifests without what defaults fill in")
	return cmd
}

// collect asks for the object and what belongs to it, but for definitions and events.
func (v *inspected) collect(ctx context.Context, c *client.Client, n name) (err error) {
	v.Object = n.String()
	switch n.kind {
	case wordService:
		return v.service(ctx, c, n)
	case wordJob:
		j, err := n.job(ctx, c)
		if err != nil {
			return err
		}
		v.Job, v.filter = &j, client.EventFilter{Cluster: j.Cluster, Job: j.Name}
		plain := j.Job
		plain.Lifespan = cluster.Lifespan{}
		v.written = []any{&plain}
		v.uses(j.Steps)
		v.Tasks, err = tasksOf(ctx, c, name{wordJob, j.Cluster, j.Name}, true)
		return err
	case wordCron:
		return v.cron(ctx, c, n)
	case wordTask:
		return v.task(ctx, c, n.name)
	case wordNode:
		node, err := c.Node(ctx, n.name)
		if err != nil {
			return err
		}
		v.Node, v.filter = &node, client.EventFilter{Node: n.name}
		v.Tasks, err = allTasks(ctx, c, client.TaskFilter{Node: n.name, All: true})
		return err
	case wordDefinition:
		return v.definition(ctx, c, n.name)
	}
	in, err := clusterNamed(ctx, c, n.name)
	if err != nil {
		return err
	}
	plain := in.Cluster
	v.Cluster, v.written, v.filter = &in, []any{&plain}, client.EventFilter{Cluster: n.name}
	return v.owners(ctx, c, n.name, func([]cluster.Ref) bool { return true })
}

func (v *inspected) service(ctx context.Context, c *client.Client, n name) error {
	s, err := n.service(ctx, c)
	if err != nil {
		return err
	}
	v.Service, v.filter = &s, client.EventFilter{Cluster: s.Cluster, Service: s.Name}
	plain := s.Service
	plain.Lifespan, plain.Rollout = cluster.Lifespan{}, cluster.RolloutWish{}
	v.written = []any{&plain}
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
	v.Tasks, err = tasksOf(ctx, c, name{wordService, s.Cluster, s.Name}, true)
	return err
}

func (v *inspected) cron(ctx context.Context, c *client.Client, n name) error {
	cr, err := n.cron(ctx, c)
	if err != nil {
		return err
	}
	v.Cron, v.filter = &cr, client.EventFilter{Cluster: cr.Cluster, Cron: cr.Name}
	plain := cr.Cron
	plain.Lifespan = cluster.Lifespan{}
	v.written = []any{&plain}
	v.uses(cr.Job.Steps)
	jobs, err := jobsOf(ctx, c, cr)
	for _, j := range jobs {
		v.Jobs = append(v.Jobs, name{wordJob, j.Cluster, j.Name}.String())
	}
	return err
}

func (v *inspected) task(ctx context.Context, c *client.Client, text string) error {
	found, err := findTask(ctx, c, text)
	if err != nil {
		return err
	}
	v.Object = wordTask + "/" + shortTask(found.ID)
	v.filter = client.EventFilter{Task: string(found.ID)}
	v.refs[found.Definition] = true
	if v.Attempts, err = attemptsOf(ctx, c, found); err != nil {
		return err
	}
	owner := ownerName(found.Owner)
	if owner.kind == wordJob {
		j, err := c.Job(ctx, owner.cluster, owner.name)
		if err == nil {
			v.Job = &j
		}
		return notThere(err)
	}
	s, err := c.Service(ctx, owner.cluster, owner.name)
	if err == nil {
		v.Service = &s
	}
	return notThere(err)
}

// notThere forgives what is not found: an owner may be gone before its tasks are.
func notThere(err error) error {
	if client.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

func (v *inspected) definition(ctx context.Context, c *client.Client, text string) error {
	ref, err := cluster.ParseRef(text)
	if err != nil {
		return err
	}
	if ref.Version == 0 {
		if ref.Version, err = newestVersion(ctx, c, ref.Name); err != nil {
			return err
		}
		v.Object = wordDefinition + "/" + ref.String()
	}
	v.refs[ref] = true
	return v.owners(ctx, c, "", func(refs []cluster.Ref) bool { return slices.Contains(refs, ref) })
}

// newestVersion returns the newest version of a task definition.
func newestVersion(ctx context.Context, c *client.Client, own string) (newest int, err error) {
	versions, _, err := client.All(ctx, client.ListOptions{},
		func(ctx context.Context, o client.ListOptions) (api.Page[api.DefinitionView], error) {
			return c.DefinitionVersions(ctx, own, o)
		})
	for _, d := range versions {
		newest = max(newest, d.Version)
	}
	return newest, err
}

// owners notes the names of the services, jobs and crons of a cluster, or of all, that a function takes by their
// definitions.
func (v *inspected) owners(ctx context.Context, c *client.Client, in string, takes func([]cluster.Ref) bool) error {
	all, err := lookAtAll(ctx, c)
	if err != nil {
		return err
	}
	of := func(own string) bool { return in == "" || own == in }
	for _, s := range all.Services {
		refs := []cluster.Ref{s.Definition}
		for _, version := range s.Status.Versions {
			refs = append(refs, version.Definition)
		}
		if of(s.Cluster) && takes(refs) {
			v.Services = append(v.Services, serviceName(s).String())
		}
	}
	for _, j := range all.Jobs {
		if of(j.Cluster) && takes(refsOf(j.Steps)) {
			v.Jobs = append(v.Jobs, name{wordJob, j.Cluster, j.Name}.String())
		}
	}
	for _, cr := range all.Crons {
		if of(cr.Cluster) && takes(refsOf(cr.Job.Steps)) {
			v.Crons = append(v.Crons, name{wordCron, cr.Cluster, cr.Name}.String())
		}
	}
	for _, names := range [][]string{v.Services, v.Jobs, v.Crons} {
		slices.Sort(names)
	}
	return nil
}

func refsOf(steps []cluster.Step) (refs []cluster.Ref) {
	for i := range steps {
		refs = append(refs, steps[i].Definition)
	}
	return refs
}

func (v *inspected) uses(steps []cluster.Step) {
	for _, ref := range refsOf(steps) {
		v.refs[ref] = true
	}
}

// definitions asks for the definitions that belong to the object. One that is gone meanwhile is left out, but for what
// is inspected itself.
func (v *inspected) definitions(ctx context.Context, c *client.Client, reveal bool) error {
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
		if client.StatusOf(err) == http.StatusNotFound && v.Object != wordDefinition+"/"+ref.String() {
			continue
		}
		if err != nil {
			return err
		}
		v.Versions = append(v.Versions, d)
	}
	return nil
}

// eventsAbout returns the newest events that a filter takes, the newest last. A server that knows no filters has none
// to tell.
func eventsAbout(ctx context.Context, c *client.Client, f client.EventFilter) ([]api.EventView, error) {
	if reflect.DeepEqual(f, client.EventFilter{}) { // of a definition nothing is told
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
		kept = kept[max(0, len(kept)-inspectEvents):]
		if page.Next == "" || len(page.Items) == 0 {
			return kept, nil
		}
		o.After = page.Items[len(page.Items)-1].ID
	}
}

// printInspected prints all of it, without secrets unless they are asked for.
func (a *app) printInspected(v *inspected, reveal bool) error {
	scrub := newScrubber()
	if !reveal {
		for i := range v.Versions {
			scrub.definition(&v.Versions[i].TaskDefinition)
		}
		for _, list := range [][]api.TaskView{v.Tasks, v.Attempts} {
			for i := range list {
				if list[i].LogTail != "" {
					list[i].LogTail = removed // what programs print is theirs
				}
			}
		}
	}
	plain := *a
	if !a.data() {
		plain.output = outputYAML
	}
	if reveal {
		return plain.printData(v)
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	if encoded, err = scrub.texts(encoded); err != nil {
		return err
	}
	return plain.printData(json.RawMessage(encoded))
}

// secretName matches the names of fields and labels whose values are secret.
var secretName = regexp.MustCompile(`(?i)^` + secretWord + `$`)

// texts takes what is secret out of the texts in a JSON value, whose form and order stay as they are.
func (s *scrubber) texts(encoded []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(encoded))
	dec.UseNumber()
	var out bytes.Buffer
	// Each open list or object: whether it is an object, how many tokens of it were written, and whether the next value
	// is secret.
	type level struct {
		object, secret bool
		n              int
	}
	var stack []level
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what is to be scrubbed: %w", err)
		}
		delim, isDelim := token.(json.Delim)
		if isDelim && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			out.WriteRune(rune(delim))
			continue
		}
		key, secret := false, false
		if len(stack) > 0 {
			top := &stack[len(stack)-1]
			key = top.object && top.n%2 == 0
			secret = top.secret && !key
			switch {
			case top.object && !key:
				out.WriteByte(':')
			case top.n > 0:
				out.WriteByte(',')
			}
			top.n++
		}
		text, isText := token.(string)
		switch {
		case isDelim:
			out.WriteRune(rune(delim))
			stack = append(stack, level{object: delim == '{'})
			continue
		case key:
			stack[len(stack)-1].secret = secretName.MatchString(text)
		case isText && secret && text != "":
			token = removed
		case isText:
			token = s.text(text)
		}
		value, err := json.Marshal(token)
		if err != nil {
			return nil, fmt.Errorf("write what was scrubbed: %w", err)
		}
		out.Write(value)
	}
}

// printWritten prints manifests of the object and its definitions, shortened by what the defaults fill in.
func (a *app) printWritten(v *inspected, reveal bool) error {
	var all []any
	hid := false
	scrub := newScrubber()
	for i := range v.Versions {
		d := &v.Versions[i].TaskDefinition
		if !reveal {
			hid = hid || slices.ContainsFunc(d.Containers, func(c cluster.Container) bool {
				return len(c.Env)+len(c.Files) > 0
			})
			scrub.definition(d)
		}
		all = append(all, d)
	}
	plain := *a
	if !a.data() {
		plain.output = outputYAML
	}
	for i, object := range append(all, v.written...) {
		short, kind, err := shortened(object)
		if err != nil {
			return err
		}
		document, err := withKind(kind, short)
		if err != nil {
			return err
		}
		if plain.output == outputYAML && i > 0 {
			a.say("---")
		}
		if err := plain.printData(json.RawMessage(document)); err != nil {
			return err
		}
	}
	if hid {
		a.tell("berth: values of environments and files are left out; --reveal shows them")
	}
	return nil
}

// withKind puts the kind before the fields of an object.
func withKind(kind cluster.Kind, object []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(object, []byte("{"))
	if !ok {
		return nil, fmt.Errorf("write %s: it is no object", kind)
	}
	return append(fmt.Appendf(nil, `{"kind":%q,`, kind), rest...), nil
}

// defaulted is an object that fills in its own defaults.
type defaulted interface{ SetDefaults() }

// shortened returns an object as JSON without each value that its defaults bring back: what somebody would write.
func shortened(object any) ([]byte, cluster.Kind, error) {
	kind := map[reflect.Type]cluster.Kind{
		reflect.TypeFor[*cluster.Cluster]():        cluster.KindCluster,
		reflect.TypeFor[*cluster.TaskDefinition](): cluster.KindTaskDefinition,
		reflect.TypeFor[*cluster.Service]():        cluster.KindService,
		reflect.TypeFor[*cluster.Job]():            cluster.KindJob,
		reflect.TypeFor[*cluster.Cron]():           cluster.KindCron,
	}[reflect.TypeOf(object)]
	full, err := json.Marshal(object)
	if err != nil {
		return nil, kind, fmt.Errorf("encode %s: %w", kind, err)
	}
	var tree map[string]any
	dec := json.NewDecoder(bytes.NewReader(full))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, kind, fmt.Errorf("read %s: %w", kind, err)
	}
	// means returns what a tree means once the defaults are filled in, and the tree's own fields in the order of the
	// type.
	means := func() (whole, own []byte) {
		text, err := json.Marshal(tree)
		if err != nil {
			return nil, nil
		}
		v := reflect.New(reflect.TypeOf(object).Elem()).Interface()
		if json.Unmarshal(text, v) != nil {
			return nil, nil
		}
		own, _ = json.Marshal(v)
		if d, ok := v.(defaulted); ok { // all kinds above are
			d.SetDefaults()
		}
		whole, _ = json.Marshal(v)
		return whole, own
	}
	want, _ := means()
	var shorten func(any)
	shorten = func(at any) {
		switch at := at.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(at)) {
				value := at[key]
				delete(at, key)
				if got, _ := means(); bytes.Equal(got, want) && want != nil {
					continue
				}
				at[key] = value
				shorten(value)
			}
		case []any:
			for _, e := range at {
				shorten(e)
			}
		}
	}
	shorten(tree)
	_, own := means()
	return own, kind, nil
}

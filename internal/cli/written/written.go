// Package written returns objects in the form in which users write them: as manifests without defaults, with the
// definitions inside that were written there.
package written

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cluster"
)

// Definitions finds a version of a definition, or returns nil.
type Definitions func(cluster.Ref) *cluster.TaskDefinition

// WithTemplates returns an object with the templates that its user wrote in place of the references to their versions,
// and the references that it replaced. Templates that find does not find stay references. The result has no Lifespan.
func WithTemplates(object any, find Definitions) (any, []cluster.Ref) {
	var replaced []cluster.Ref
	replace := func(inline []string, ref *cluster.Ref, template **cluster.InlineDefinition) {
		if !slices.Contains(inline, ref.Name) {
			return
		}
		def := find(*ref)
		if def == nil {
			return
		}
		one := cluster.InlineDefinition{TaskDefinition: *def}
		one.Version, one.Deleted, one.Inline, one.Unused = 0, false, false, time.Time{}
		one.Containers = slices.Clone(def.Containers)
		for i := range one.Containers {
			one.Containers[i].Digest = "" // the server finds it again: an edited image has another one
		}
		replaced = append(replaced, *ref)
		*ref, *template = cluster.Ref{}, &one
	}
	steps := func(inline []string, all []cluster.Step) []cluster.Step {
		all = slices.Clone(all)
		for i := range all {
			replace(inline, &all[i].Definition, &all[i].Template)
		}
		return all
	}
	switch o := object.(type) {
	case *cluster.Service:
		plain := *o
		replace(o.Inline, &plain.Definition, &plain.Template)
		plain.Lifespan, plain.Rollout = cluster.Lifespan{}, cluster.RolloutWish{}
		return &plain, replaced
	case *cluster.Job:
		plain := o.Plain()
		plain.Steps = steps(o.Inline, o.Steps)
		return plain, replaced
	case *cluster.Cron:
		plain := *o
		plain.Job.Steps = steps(o.Inline, o.Job.Steps)
		plain.Lifespan = cluster.Lifespan{}
		return &plain, replaced
	case *cluster.Endpoint:
		plain := *o
		plain.Lifespan = cluster.Lifespan{}
		return &plain, nil
	}
	return object, nil
}

// Manifest returns an object as JSON with its kind, without the values that its defaults restore.
func Manifest(object any) (json.RawMessage, error) {
	short, kind, err := stripDefaults(object)
	if err != nil {
		return nil, err
	}
	return addKind(kind, omitTemplateNames(short))
}

// templateName matches the begin of a template: definitions always have a name and a version, templates need none.
var templateName = regexp.MustCompile(`"template":\{("name":"[^"]*",)"version":0,`)

// omitTemplateNames removes the versions and the empty names of templates.
func omitTemplateNames(document []byte) []byte {
	document = templateName.ReplaceAll(document, []byte(`"template":{$1`))
	return bytes.ReplaceAll(document, []byte(`"template":{"name":"",`), []byte(`"template":{`))
}

// addKind inserts the kind before the fields of an object.
func addKind(kind cluster.Kind, object []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(object, []byte("{"))
	if !ok {
		return nil, fmt.Errorf("write %s: it is not an object", kind)
	}
	return append(fmt.Appendf(nil, `{"kind":%q,`, kind), rest...), nil
}

// defaulter is an object that sets its default values.
type defaulter interface{ SetDefaults() }

// stripDefaults returns an object as JSON without the values that its defaults restore.
func stripDefaults(object any) ([]byte, cluster.Kind, error) {
	kind := map[reflect.Type]cluster.Kind{
		reflect.TypeFor[*cluster.Domain]():         cluster.KindDomain,
		reflect.TypeFor[*cluster.Cluster]():        cluster.KindCluster,
		reflect.TypeFor[*cluster.Pool]():           cluster.KindPool,
		reflect.TypeFor[*cluster.Profile]():        cluster.KindProfile,
		reflect.TypeFor[*cluster.TaskDefinition](): cluster.KindTaskDefinition,
		reflect.TypeFor[*cluster.Service]():        cluster.KindService,
		reflect.TypeFor[*cluster.Job]():            cluster.KindJob,
		reflect.TypeFor[*cluster.Cron]():           cluster.KindCron,
		reflect.TypeFor[*cluster.Endpoint]():       cluster.KindEndpoint,
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
	// means returns the tree with its defaults, and the tree's own fields in the order of the type.
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
		if d, ok := v.(defaulter); ok { // all kinds above do
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
	own, err = output.ReadableAs(reflect.TypeOf(object), own)
	return own, kind, err
}

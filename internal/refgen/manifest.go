package main

import (
	"reflect"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
	"github.com/berthd/berth/internal/schema"
)

// manifestKinds are the kinds of objects in manifests with their types, in the order in which they are applied.
func manifestKinds() []manifestKind {
	return []manifestKind{
		{cluster.KindDomain, reflect.TypeFor[cluster.Domain]()},
		{cluster.KindCluster, reflect.TypeFor[cluster.Cluster]()},
		{cluster.KindPool, reflect.TypeFor[cluster.Pool]()},
		{cluster.KindProfile, reflect.TypeFor[cluster.Profile]()},
		{cluster.KindTaskDefinition, reflect.TypeFor[cluster.TaskDefinition]()},
		{cluster.KindService, reflect.TypeFor[cluster.Service]()},
		{cluster.KindJob, reflect.TypeFor[cluster.Job]()},
		{cluster.KindCron, reflect.TypeFor[cluster.Cron]()},
		{cluster.KindEndpoint, reflect.TypeFor[cluster.Endpoint]()},
	}
}

type manifestKind struct {
	name cluster.Kind
	typ  reflect.Type
}

// manifestSchema returns the schema of one document of a manifest, for editors and for checks without Berth. The kind
// chooses the one schema that a document must meet, so that a fault is that of the kind and not of all of them.
func manifestSchema(comments map[string]string) *schema.Node {
	types := schema.New(schema.Options{Hidden: isHidden})
	for _, kind := range manifestKinds() {
		types.Of(kind.typ)
	}
	limits := findLimits()
	g := schema.New(schema.Options{
		Refs: "#/$defs/", Strict: true, Comments: newWording(types.Types).descriptions(comments), Hidden: isHidden,
		Field: func(f jsonfields.Field, n *schema.Node) {
			completeField(f, n)
			limits.complete(f, n)
		},
	})
	kinds := &schema.Node{Description: kindDescription, Type: schema.Types{"string"}}
	root := &schema.Node{
		Schema:      schema.Draft,
		ID:          repository + manifestFile,
		Title:       "Berth manifest",
		Description: "One document of a manifest: an object with its kind.",
		Type:        schema.Types{"object"},
		Properties:  &schema.Nodes{},
		Required:    []string{"kind"},
		Defs:        &g.Defs,
	}
	root.Properties.Set("kind", kinds)
	for _, kind := range manifestKinds() {
		object := g.Of(kind.typ)
		kinds.Enum = append(kinds.Enum, string(kind.name))
		root.AllOf = append(root.AllOf, &schema.Node{If: has("kind", kind.name), Then: object})
		addKind(g.Defs.Get(kind.typ.Name()), kind.name)
	}
	requireCountUnlessGiven(g.Defs.Get("Service"))
	return root
}

const kindDescription = "The kind of the object, which says what other fields the document has."

// has is the schema of objects with a value of a field.
func has(field string, value any) *schema.Node {
	n := &schema.Node{Properties: &schema.Nodes{}, Required: []string{field}}
	n.Properties.Set(field, &schema.Node{Const: value})
	return n
}

// addKind adds the kind to an object, before its fields.
func addKind(object *schema.Node, name cluster.Kind) {
	fields := object.Properties
	object.Properties = &schema.Nodes{}
	object.Properties.Set("kind", &schema.Node{Description: kindDescription, Const: name})
	for _, f := range fields.Names {
		object.Properties.Set(f, fields.Get(f))
	}
	object.Required = append([]string{"kind"}, object.Required...)
}

// isHidden reports whether only servers write a field. A manifest may hold it, as the output of a command does, but its
// value is ignored.
func isHidden(f jsonfields.Field) bool {
	switch f.Owner {
	case reflect.TypeFor[cluster.Lifespan]():
		return true
	case reflect.TypeFor[cluster.Cluster]():
		return f.Name == "deleted"
	case reflect.TypeFor[cluster.TaskDefinition]():
		return f.Name == "deleted" || f.Name == "inline" || f.Name == "unused"
	case reflect.TypeFor[cluster.Service]():
		return f.Name == "rollout"
	case reflect.TypeFor[cluster.Job]():
		return slices.Contains([]string{
			"cron", "at", "submitted", "submitted_by", "needs_met", "cancel_reason", "retried",
		}, f.Name)
	}
	return false
}

// completeField adds what the type of a field does not say.
func completeField(f jsonfields.Field, n *schema.Node) {
	if f.Name == "name" && f.Type == reflect.TypeFor[string]() {
		n.Pattern, n.MaxLength = `^[a-z]([a-z0-9-]*[a-z0-9])?$`, cluster.MaxName
	}
	if f.Owner == reflect.TypeFor[cluster.Affinity]() && f.Name == "weight" {
		n.Minimum = new(-cluster.MaxWeight) // the one number that may be below 0
	}
}

// requireCountUnlessGiven requires the count of a service unless scaling or the mode daemon determines the number of
// tasks.
func requireCountUnlessGiven(service *schema.Node) {
	service.Required = slices.DeleteFunc(service.Required, func(name string) bool { return name == "count" })
	service.If = &schema.Node{AnyOf: []*schema.Node{{Required: []string{"scaling"}}, has("mode", cluster.ModeDaemon)}}
	service.Else = &schema.Node{Required: []string{"count"}}
}

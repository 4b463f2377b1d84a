package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/jsonfields"
	"github.com/berthd/berth/internal/schema"
)

// manifestSchema returns the schema of one document of a manifest, for editors and for checks without Berth.
func manifestSchema(comments map[string]string) *schema.Node {
	g := schema.New(schema.Options{Refs: "#/$defs/", Strict: true, Comments: comments, Field: completeField})
	root := &schema.Node{
		Schema:      schema.Draft,
		ID:          repository + manifestFile,
		Title:       "Berth manifest",
		Description: "One document of a manifest: an object with its kind.",
		Defs:        &g.Defs,
	}
	for _, kind := range []struct {
		name cluster.Kind
		typ  reflect.Type
	}{
		{cluster.KindCluster, reflect.TypeFor[cluster.Cluster]()},
		{cluster.KindPool, reflect.TypeFor[cluster.Pool]()},
		{cluster.KindTaskDefinition, reflect.TypeFor[cluster.TaskDefinition]()},
		{cluster.KindService, reflect.TypeFor[cluster.Service]()},
		{cluster.KindJob, reflect.TypeFor[cluster.Job]()},
		{cluster.KindCron, reflect.TypeFor[cluster.Cron]()},
	} {
		root.OneOf = append(root.OneOf, g.Of(kind.typ))
		addKind(g.Defs.Get(kind.typ.Name()), kind.name)
	}
	requireCountUnlessGiven(g.Defs.Get("Service"))
	return root
}

// addKind adds the kind to an object, before its fields.
func addKind(object *schema.Node, name cluster.Kind) {
	fields := object.Properties
	object.Properties = &schema.Nodes{}
	object.Properties.Set("kind", &schema.Node{Const: name})
	for _, f := range fields.Names {
		object.Properties.Set(f, fields.Get(f))
	}
	object.Required = append([]string{"kind"}, object.Required...)
}

// completeField adds what the type of a field does not say.
func completeField(f jsonfields.Field, n *schema.Node) {
	n.ReadOnly = f.Owner == reflect.TypeFor[cluster.Lifespan]() ||
		strings.HasSuffix(n.Description, "value is ignored.") || strings.HasSuffix(n.Description, "values are ignored.")
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
	daemon := &schema.Nodes{}
	daemon.Set("mode", &schema.Node{Const: cluster.ModeDaemon})
	service.AnyOf = []*schema.Node{
		{Required: []string{"count"}},
		{Required: []string{"scaling"}},
		{Required: []string{"mode"}, Properties: daemon},
	}
}

package manifest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berthd/berth/internal/enum"
	"github.com/berthd/berth/internal/jsonfields"
	"github.com/berthd/berth/internal/schema"
)

// compiled returns the schema as a validator.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	const name = "manifest.schema.json"
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check validates every document of a YAML text.
func check(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		raw, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if value == nil {
			continue
		}
		if err := s.Validate(value); err != nil {
			return err
		}
	}
	return nil
}

// TestSchemaAgreesWithReader compares the two readers of manifests.
func TestSchemaAgreesWithReader(t *testing.T) {
	const definition = "kind: TaskDefinition\nname: web\nversion: 1\ncontainers:\n- name: app\n  image: a:1\n"
	const service = "kind: Service\nname: web\ndefinition: web@1\ncount: 1\n"
	tests := []struct {
		name, text string
		valid      bool
	}{
		{"cluster", "kind: Cluster\nname: prod\nlabels: {a: b}\n", true},
		{"pool", "kind: Pool\nname: gpu\nstrategy: whole\n", true},
		{"pool with an unknown strategy", "kind: Pool\nname: gpu\nstrategy: pile\n", false},
		{"pool with nodes", "kind: Pool\nname: gpu\nnodes: [n1]\n", false},
		{"definition", definition, true},
		{"definition with all quantities", definition +
			"  resources: {cpu: 0.5, memory: 256MiB, cpu_limit: 500m}\ngrace: 1m30s\ndisk: 1.5GiB\n", true},
		{"service", service, true},
		{"job", "kind: Job\nname: j\nsteps: [{name: a, definition: web, count: 8, time_limit: 0}]\n", true},
		{
			"constraint", service + "placement: {constraints: [{attribute: node.arch, op: \"!=\", value: arm64}]}\n",
			true,
		},
		{"placement", service + "placement:\n  strategy: whole\n  pool: gpu\n  affinities: [{attribute: " +
			"label.disk, value: hdd, weight: -20}]\n" +
			"  spread: [{attribute: label.zone, targets: [{value: a, percent: 60}]}, {attribute: " +
			"label.rack, max_skew: 1}]\n" +
			"  relations: [{labels: {app: cache}, away: true, required: true}]\n  distinct: [{attribute: " +
			"node.name, most: 2}]\n" +
			"  tolerations: [{key: dedicated, effect: avoid}, {}]\n", true},
		{"devices", definition + "  resources: {devices: [{}, {type: gpu, models: [A100], count: 2, memory: " +
			"40GiB}, {share: 250}]}\n", true},
		{"gang", "kind: Job\nname: j\nsteps: [{name: a, definition: web, count: 8, gang: {deadline: 10m}}, " +
			"{name: b, definition: web, gang: {}}]\n", true},
		{
			"service with every policy",
			service + "update: {max_surge: 25%, min_healthy: 0, canaries: 1, auto_rollback: false, order: " +
				"stop-first,\n  gates: [{name: g, http: \"http://127.0.0.1:1/\", pass: status == 200}]}\n" +
				"reschedule: {limit: 3, delay: 1s}\n", true,
		},
		{"autoscaled", "kind: Service\nname: web\ndefinition: web@1\nscaling: {min: 1, max: 8, targets: " +
			"[{metric: cpu, target: 62.5}], down: {window: 0s, step: 25%}}\n", true},
		{"daemon", "kind: Service\nname: web\ndefinition: web@1\nmode: daemon\n", true},
		{"cron", "kind: Cron\nname: c\nschedules: [\"5 3 * * *\"]\nzone: Europe/Paris\nkeep_failed: 0\njob: " +
			"{steps: [{name: a, definition: web@1}]}\n", true},
		{"filled in by the server", service + "generation: 3\ncreated: 2026-11-20T10:00:00Z\n", true},
		{"spread without an attribute", service + "placement: {spread: [{max_skew: 1}]}\n", false},
		{"spread below nothing", service + "placement: {spread: [{attribute: label.a, weight: -1}]}\n", false},
		{
			"dislike without end", service +
				"placement: {affinities: [{attribute: label.a, value: b, weight: -101}]}\n",
			false,
		},
		{
			"target without a share", service + "placement: {spread: [{attribute: label.a, targets: [{value: a}]}]}\n",
			false,
		},
		{"relation without labels", service + "placement: {relations: [{away: true}]}\n", false},
		{"unknown effect", service + "placement: {tolerations: [{effect: NoSchedule}]}\n", false},
		{"unknown strategy", service + "placement: {strategy: best}\n", false},
		{"text for devices", definition + "  resources: {devices: [gpu]}\n", false},
		{"number of devices without the list", definition + "  resources: {devices: 1}\n", false},
		{"no kind", "name: prod\n", false},
		{"unknown kind", "kind: Pod\nname: prod\n", false},
		{"unknown field", service + "x: 1\n", false},
		{"missing count", "kind: Service\nname: web\ndefinition: web@1\n", false},
		{
			"missing count of a service with replicas", "kind: Service\nname: web\ndefinition: web@1\nmode: replicas\n",
			false,
		},
		{"bad portion", service + "update: {max_surge: many}\n", false},
		{"portion below nothing", service + "update: {max_surge: -1}\n", false},
		{"portion that is no whole number", service + "update: {max_surge: 1.5}\n", false},
		{"text for a target", service + "scaling: {min: 1, max: 2, targets: [{metric: cpu, target: high}]}\n", false},
		{"scaling without bounds", service + "scaling: {targets: [{metric: cpu, target: 70}]}\n", false},
		{"cron without a schedule", "kind: Cron\nname: c\njob: {steps: [{name: a, definition: web@1}]}\n", false},
		{"unknown concurrency", "kind: Cron\nname: c\nschedules: [\"@daily\"]\nconcurrency: never\njob: " +
			"{steps: [{name: a, definition: web@1}]}\n", false},
		{"text for a number", "kind: Service\nname: web\ndefinition: web@1\ncount: one\n", false},
		{"priority of 0", service + "priority: 0\n", false},
		{
			"priority of a cron's jobs of 0",
			"kind: Cron\nname: c\nschedules: [\"@daily\"]\njob: {priority: 0, steps: [{name: a, definition: web@1}]}\n",
			false,
		},
		{"step of no tasks", "kind: Job\nname: j\nsteps: [{name: a, definition: web@1, count: 0}]\n", false},
		{"lowest priority", service + "priority: 1\n", true},
		{"priority by name", service + "priority: very-high\n", true},
		{"priority of an unknown name", service + "priority: urgent\n", false},
		{"number for text", "kind: Cluster\nname: prod\nlabels: {a: 1}\n", false},
		{"bad duration", definition + "grace: 10\n", false},
		{"bad size", definition + "disk: big\n", false},
		{"bad reference", "kind: Service\nname: web\ndefinition: Web@1\ncount: 1\n", false},
	}
	s := compiled(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := check(t, s, test.text); (err == nil) != test.valid {
				t.Errorf("schema: got %v, want valid to be %v", err, test.valid)
			}
			if _, err := Parse("m", []byte(test.text)); (err == nil) != test.valid {
				t.Errorf("reader: got %v, want valid to be %v", err, test.valid)
			}
		})
	}
}

// TestExamples validates every manifest of examples/ with both. The files .yml of examples/ansible are Ansible's own.
func TestExamples(t *testing.T) {
	root := "../../examples"
	var files []string
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		ext, ofAnsible := filepath.Ext(path), strings.HasPrefix(path, root+"/ansible/")
		if ext == ".yaml" || ext == ".yml" && !ofAnsible {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s := compiled(t)
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, root+"/"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(t, s, string(text)); err != nil {
				t.Errorf("schema: %v", err)
			}
			if _, err := Parse(file, text); err != nil {
				t.Errorf("reader: %v", err)
			}
		})
	}
}

// schemaDoc is what tests read of the schema.
type schemaDoc struct {
	Defs map[string]struct {
		Description string
		Enum        []string
		Properties  map[string]struct {
			Ref         string `json:"$ref"`
			Description string
		}
		PatternProperties map[string]any
	} `json:"$defs"`
}

func parsedSchema(t *testing.T) (doc schemaDoc) {
	t.Helper()
	if err := json.Unmarshal([]byte(Schema()), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestSchemaDescribes guards against fields that editors could say nothing about, and fields that nobody writes.
func TestSchemaDescribes(t *testing.T) {
	doc := parsedSchema(t)
	for object, field := range map[string]string{
		"Cluster": "deleted", "TaskDefinition": "deleted", "Service": "rollout", "Job": "cron", "Cron": "created",
	} {
		if _, shown := doc.Defs[object].Properties[field]; shown {
			t.Errorf("%s.%s is ignored, and is shown", object, field)
		}
		if len(doc.Defs[object].PatternProperties) != 1 {
			t.Errorf("%s: fields of servers are refused", object)
		}
	}
	for name, def := range doc.Defs {
		if def.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for field, f := range def.Properties {
			if of := doc.Defs[strings.TrimPrefix(f.Ref, "#/$defs/")]; f.Description == "" && of.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
	known := schema.New(schema.Options{})
	for _, kind := range Kinds() {
		known.Of(reflect.TypeOf(newValue(kind)))
	}
	enums := 0
	for name, typ := range known.Types {
		if got, want := doc.Defs[name].Enum, enum.Words(typ); !slices.Equal(got, want) {
			t.Errorf("words of %s: got %v, want %v", name, got, want)
		} else if len(got) > 0 {
			enums++
		}
	}
	if enums < 15 {
		t.Errorf("%d enumerated types: this test checks too few", enums)
	}
}

// TestSchemaSpeaksOfManifests reads all descriptions of the schema. They are sentences for users of manifests: without
// names of Go, numbers of clauses, or words about the code.
func TestSchemaSpeaksOfManifests(t *testing.T) {
	doc := parsedSchema(t)
	kinds := []string{"TaskDefinition", "MiB", "GiB", "KiB", "TiB"}
	goName := regexp.MustCompile(`\b[A-Z]+[a-z]+[A-Z][A-Za-z]*\b|\b[A-Z]{2,}[a-z]{2,}\b`)
	names := map[string]string{}
	known := schema.New(schema.Options{})
	for _, kind := range Kinds() {
		known.Of(reflect.TypeOf(newValue(kind)))
	}
	for _, typ := range known.Types {
		if typ.Kind() == reflect.Struct {
			for f := range jsonfields.Of(typ) {
				if f.Name != f.GoName { // not of a type with a text form
					names[f.GoName] = f.Name
				}
			}
		}
	}
	const ordinary = "Service Job Cron Cluster Consul Pool Prometheus CPU HTTP URL TLS"
	for word := range strings.FieldsSeq(ordinary) {
		delete(names, word)
	}
	words := regexp.MustCompile(`[a-z,;(] ([A-Z][A-Za-z]*)`)
	check := func(place, text string) {
		if text == "" {
			return
		}
		for _, name := range goName.FindAllString(text, -1) {
			if !slices.Contains(kinds, name) {
				t.Errorf("%s: the name %s of Go in %q", place, name, text)
			}
		}
		for _, m := range words.FindAllStringSubmatch(text, -1) {
			if field := names[m[1]]; field != "" {
				t.Errorf("%s: %s, which is %s in a manifest, in %q", place, m[1], field, text)
			}
		}
		for _, bad := range []string{"(P", "ADR", "Writer", "nil", "struct", "method", "record", "A client"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: %q in %q", place, bad, text)
			}
		}
		if !strings.HasSuffix(text, ".") {
			t.Errorf("%s: no sentence: %q", place, text)
		}
	}
	for name, def := range doc.Defs {
		check(name, def.Description)
		for field, f := range def.Properties {
			check(name+"."+field, f.Description)
		}
	}
}

// TestSchemaNamesTheFault validates manifests with one fault each. The message is about the fault, in its place, and
// not about the kinds that the document is not.
func TestSchemaNamesTheFault(t *testing.T) {
	s := compiled(t)
	for _, test := range []struct{ name, text, want string }{
		{
			"unknown field", "kind: Service\nname: web\ndefinition: web@1\ncount: 1\nprioritty: 3\n",
			"at '': additional properties 'prioritty' not allowed",
		},
		{
			"deep", "kind: TaskDefinition\nname: web\nversion: 1\ncontainers: [{name: a, image: a, init: 5}]\n",
			"at '/containers/0/init': got number, want boolean",
		},
		{"missing count", "kind: Service\nname: web\ndefinition: web@1\n", "at '': missing property 'count'"},
		{"unknown kind", "kind: Pod\nname: web\n", "at '/kind': value must be one of 'Domain', 'Cluster'"},
		{"no kind", "name: web\n", "at '': missing property 'kind'"},
		{
			"unknown word", "kind: Service\nname: web\ndefinition: web@1\ncount: 1\non_disconnect: maybe\n",
			"at '/on_disconnect': value must be one of ",
		},
		{
			"beyond a bound", "kind: Job\nname: web\nsteps: [{name: a, definition: web, retries: 100}]\n",
			"at '/steps/0/retries': maximum: got 100, want 49",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check(t, s, test.text)
			if err == nil {
				t.Fatal("no fault")
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "oneOf") {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			faults := strings.Count(err.Error(), "- at ") - strings.Count(err.Error(), "'allOf' failed")
			if faults > 1 {
				t.Errorf("got %d faults, want 1: %v", faults, err)
			}
		})
	}
}

// Package manifest reads the files in which users write objects.
//
// A manifest is a file of YAML documents, each one object: its kind (Cluster, Pool, Profile, TaskDefinition, Service,
// Job, Cron or Endpoint) and the object's own fields, which are those of package cluster in their JSON form. JSON is
// read as well. A manifest lives for the length of one command: it is read into Objects, which remember the position of
// every field. So a later refusal, by the validation here or by the server, can name a line and a column.
//
// The text comes from outside. Reading always ends soon and in bounded memory (see the limits below). It reports all
// faults that it can find together: a syntax error hides no other document, a wrong field no other field.
//
// # Size
//
// The advice for fields of other systems is a quarter of the package. It converts their values, so it reads the same
// unexported tree as the decoder.
package manifest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Limits of a manifest. A manifest past one of them is refused with a fault that names the limit.
const (
	MaxFile      = 4 << 20   // bytes of a file
	MaxDocument  = 3 << 20   // bytes of a document: a job of 10,000 steps
	MaxDocuments = 10_000    // documents of a file
	MaxDepth     = 32        // values inside one another
	MaxEntries   = 20_000    // of a list that is written one a line
	MaxFields    = 2000      // of an object that is written one a line
	MaxTokens    = 500_000   // tokens of a document
	MaxFileWords = 1_000_000 // tokens of a file
	MaxValues    = 300_000   // values of a document, each use of an alias counted
	maxFaults    = 100       // reported faults of a file
)

// Position is a place in a file. Line and Column count from 1, columns in
// characters; both are 0 where the fault is of the file as a whole.
type Position struct {
	File   string
	Line   int
	Column int
}

// String returns "file:line:column", without the parts that are not known.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// Fault is one fault of a manifest: its position, its field (empty for the text itself) and a sentence without a full
// stop.
type Fault struct {
	Position
	Path    string
	Message string
}

// String returns "file:line:column: path: message".
func (f Fault) String() string {
	if f.Path == "" {
		return f.Position.String() + ": " + f.Message
	}
	return f.Position.String() + ": " + f.Path + ": " + f.Message
}

// Faults is an error that holds everything that is wrong, in the order of the text.
type Faults []Fault

// Error returns the faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// err returns the faults as an error, or nil if there are none.
func (fs Faults) err() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}

// Object is one object of a manifest. Value is a *cluster.Cluster, *cluster.Pool, *cluster.Profile,
// *cluster.TaskDefinition, *cluster.Service, *cluster.Job, *cluster.Cron or *cluster.Endpoint, as Kind says.
type Object struct {
	Position
	Kind  cluster.Kind
	Value any
	// positions maps the path of each field that was written to its place.
	positions map[string]Position
}

// Cluster returns the cluster of the object, DefaultCluster if it names none, or "" for kinds without a cluster.
func (o *Object) Cluster() string {
	switch v := o.Value.(type) {
	case *cluster.Service:
		return cmp.Or(v.Cluster, cluster.DefaultCluster)
	case *cluster.Job:
		return cmp.Or(v.Cluster, cluster.DefaultCluster)
	case *cluster.Cron:
		return cmp.Or(v.Cluster, cluster.DefaultCluster)
	case *cluster.Endpoint:
		return cmp.Or(v.Cluster, cluster.DefaultCluster)
	}
	return ""
}

// Name returns the object's name, a definition's with its version: "web@1".
func (o *Object) Name() string {
	switch v := o.Value.(type) {
	case *cluster.Cluster:
		return v.Name
	case *cluster.Pool:
		return v.Name
	case *cluster.Profile:
		return v.Ref().String()
	case *cluster.TaskDefinition:
		return v.Ref().String()
	case *cluster.Service:
		return v.Name
	case *cluster.Job:
		return v.Name
	case *cluster.Cron:
		return v.Name
	case *cluster.Endpoint:
		return v.Name
	}
	return ""
}

// At returns the position of the field of a path, or of the nearest enclosing field in the text. Paths are those of
// cluster.Fault.
func (o *Object) At(path string) Position {
	path = strings.ReplaceAll(path, ".[", "[")
	for path != "" {
		if at, ok := o.positions[path]; ok {
			return at
		}
		path = parent(path)
	}
	return o.Position
}

// parent returns the path of the value that holds the field, "" for the root.
func parent(path string) string {
	if strings.HasSuffix(path, `"]`) { // a key may hold any sign
		if i := strings.LastIndex(path, `["`); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// label names the object in messages: "Service web".
func (o *Object) label() string { return string(o.Kind) + " " + o.Name() }

// newValue returns an empty value of the kind, nil if there is no such kind.
func newValue(kind cluster.Kind) any {
	switch kind {
	case cluster.KindDomain:
		return new(cluster.Domain)
	case cluster.KindCluster:
		return new(cluster.Cluster)
	case cluster.KindPool:
		return new(cluster.Pool)
	case cluster.KindProfile:
		return new(cluster.Profile)
	case cluster.KindTaskDefinition:
		return new(cluster.TaskDefinition)
	case cluster.KindService:
		return new(cluster.Service)
	case cluster.KindJob:
		return new(cluster.Job)
	case cluster.KindCron:
		return new(cluster.Cron)
	case cluster.KindEndpoint:
		return new(cluster.Endpoint)
	}
	return nil
}

// Kinds returns the kinds that a manifest may hold, in the order in which they are applied.
func Kinds() []cluster.Kind {
	return []cluster.Kind{
		cluster.KindDomain, cluster.KindCluster, cluster.KindPool, cluster.KindProfile, cluster.KindTaskDefinition,
		cluster.KindService, cluster.KindJob, cluster.KindCron, cluster.KindEndpoint,
	}
}

// Parse reads the objects of one file, in their order; file is the name for messages. Its error is a Faults. The
// returned objects have non-nil Values, but must not be used if there is an error.
func Parse(file string, data []byte) ([]Object, error) {
	r := reader{file: file}
	r.read(data)
	r.duplicates(r.objects)
	return r.objects, r.sorted().err()
}

// duplicates finds objects that are written twice.
func (r *reader) duplicates(objects []Object) {
	first := make(map[string]*Object, len(objects))
	for i := range objects {
		o := &objects[i]
		if o.Name() == "" {
			continue
		}
		key := string(o.Kind) + "/" + o.Cluster() + "/" + o.Name()
		if prev, ok := first[key]; ok {
			r.faults = append(r.faults, Fault{o.Position, "", fmt.Sprintf(
				"%s is defined twice: the first is at %s", o.label(), prev.Position)})
			continue
		}
		first[key] = o
	}
}

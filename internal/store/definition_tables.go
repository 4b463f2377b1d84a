package store

import (
	"iter"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// definitionTables hold the versions of task definitions.
type definitionTables struct {
	newest      *table[Newest]
	definitions *table[cluster.TaskDefinition]
}

// Definition returns a version of a task definition.
func (d *definitionTables) Definition(r cluster.Ref) (Entry[cluster.TaskDefinition], bool) {
	return d.definitions.Get(definitionKey(r))
}

// NewestDefinition returns a definition's newest version, and the revision of the record that names it.
func (d *definitionTables) NewestDefinition(name string) (cluster.Ref, uint64, bool) {
	e, ok := d.newest.Get(name)
	if !ok {
		return cluster.Ref{}, 0, false
	}
	return e.Value.Ref(), e.Modified, true
}

// Definitions returns all versions of a definition, or of all definitions where the name is empty.
func (d *definitionTables) Definitions(name string) iter.Seq[Entry[cluster.TaskDefinition]] {
	if name != "" {
		name += "/"
	}
	return scan(d.definitions, name)
}

func (d *definitionTables) findDefinition(rest string) (Record, any, bool) {
	name, version, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(version)
	if err != nil {
		return Record{}, nil, false
	}
	return found(d.definitions.Get(definitionKey(cluster.Ref{Name: name, Version: n})))
}

func definitionKey(r cluster.Ref) string {
	n := strconv.Itoa(r.Version)
	if len(n) < 10 {
		n = "0000000000"[len(n):] + n
	}
	return r.Name + "/" + n
}

// Newest is the record task/<name>: the number of a definition's newest version. Writer: the user, by the API server.
type Newest struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// Ref returns the reference to the newest version.
func (n Newest) Ref() cluster.Ref { return cluster.Ref{Name: n.Name, Version: n.Version} }

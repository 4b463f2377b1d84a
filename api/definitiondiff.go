package api

import "github.com/berthd/berth/internal/cluster"

// DefinitionDiff tells what one version of a task definition changed since another.
type DefinitionDiff struct {
	From cluster.Ref `json:"from,omitzero"`
	To   cluster.Ref `json:"to"`
	// Fields that differ, ordered by path, without name and version; Note says why there are none.
	Fields []FieldChange `json:"fields,omitempty"`
	Note   string        `json:"note,omitempty"`
}

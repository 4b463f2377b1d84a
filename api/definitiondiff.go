package api

// DefinitionDiff tells what one version of a task definition changed since another.
type DefinitionDiff struct {
	From Ref `json:"from,omitzero"`
	To   Ref `json:"to"`
	// Fields that differ, ordered by path, without name and version; Note says why there are none.
	Fields []FieldChange `json:"fields,omitempty"`
	Note   string        `json:"note,omitempty"`
}

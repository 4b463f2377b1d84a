package api

// DefinitionDiff is the difference between two versions of a task definition.
type DefinitionDiff struct {
	From Ref `json:"from,omitzero"`
	To   Ref `json:"to"`
	// Fields that differ, ordered by path, without name and version; Note says why there are none.
	Fields []FieldChange `json:"fields,omitempty"`
	Note   string        `json:"note,omitempty"`
}

package cluster

import (
	"bytes"
	"encoding/json"
)

// Spec is an object that users write.
type Spec interface {
	Cluster | TaskDefinition | Service | Job | Host
}

// SameSpec reports whether two objects ask for the same: they are equal in their JSON form, Lifespan left
// out. Defaults should be filled in first. A value that has no JSON form equals none.
func SameSpec[T Spec](a, b T) bool {
	x, err := json.Marshal(timeless(a))
	if err != nil {
		return false
	}
	y, err := json.Marshal(timeless(b))
	return err == nil && bytes.Equal(x, y)
}

// timeless returns the object without what the API server fills in.
func timeless(spec any) any {
	switch s := spec.(type) {
	case Service:
		s.Lifespan = Lifespan{}
		return s
	case Job:
		s.Lifespan = Lifespan{}
		return s
	default:
		return spec
	}
}

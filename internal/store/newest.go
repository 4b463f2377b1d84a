package store

import "github.com/berthd/berth/internal/cluster"

// Newest is the record task/<name>: the number of a definition's newest version. Writer: the user, by the API server.
type Newest struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// Ref returns the reference to the newest version.
func (n Newest) Ref() cluster.Ref { return cluster.Ref{Name: n.Name, Version: n.Version} }

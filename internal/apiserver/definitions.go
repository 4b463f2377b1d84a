package apiserver

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

func (s *Server) listDefinitions(w http.ResponseWriter, r *http.Request) error {
	name, c := r.PathValue("definition"), callerOf(r.Context())
	if err := mayReveal(r); err != nil {
		return err
	}
	if name != "" {
		snap, err := s.snapshot(r)
		if err != nil {
			return err
		}
		if !seesVersion(snap, c, name) {
			return notFound("task definition", name)
		}
	}
	return serveList(s, w, r, func(snap *store.Snapshot) (all []keyed[api.DefinitionView]) {
		sees := c.sight(snap)
		for e := range snap.Definitions(name) {
			if !sees(e.Value.Ref()) {
				continue
			}
			key := fmt.Sprintf("%s/%010d", e.Value.Name, e.Value.Version)
			all = append(all, keyed[api.DefinitionView]{key, api.DefinitionView{TaskDefinition: c.showDefinition(e.Value), Revision: e.Modified}})
		}
		return all
	})
}

// seesVersion reports whether there is a version of a definition that the caller sees.
func seesVersion(snap *store.Snapshot, c *caller, name string) bool {
	sees := c.sight(snap)
	for e := range snap.Definitions(name) {
		if sees(e.Value.Ref()) {
			return true
		}
	}
	return false
}

func (s *Server) readDefinition(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	ref := refOf(r)
	if !callerOf(r.Context()).sight(snap)(ref) {
		return notFound("task definition", ref.String())
	}
	if err := mayReveal(r); err != nil {
		return err
	}
	return answerDefinition(w, r, snap, ref, http.StatusOK)
}

// refOf returns the reference in an address, which was checked before.
func refOf(r *http.Request) cluster.Ref {
	n, _ := strconv.Atoi(r.PathValue("version"))
	return cluster.Ref{Name: r.PathValue("definition"), Version: n}
}

func answerDefinition(w http.ResponseWriter, r *http.Request, snap *store.Snapshot, ref cluster.Ref, status int) error {
	e, ok := snap.Definition(ref)
	if !ok {
		return notFound("task definition", ref.String())
	}
	tag(w, e.Modified)
	return answer(w, status, api.DefinitionView{TaskDefinition: callerOf(r.Context()).showDefinition(e.Value), Revision: e.Modified})
}

func (s *Server) writeDefinition(w http.ResponseWriter, r *http.Request) error {
	ref := refOf(r)
	var def cluster.TaskDefinition
	pre, err := readObject(w, r, &def, func() cluster.Faults {
		faults := named("name", &def.Name, ref.Name)
		if def.Version == 0 {
			def.Version = ref.Version
		}
		if def.Version != ref.Version {
			faults = append(faults, cluster.Fault{Path: "version", Message: fmt.Sprintf("is %d, and the address says %d", def.Version, ref.Version)})
		}
		return faults
	})
	if err != nil {
		return err
	}
	s.pin(r.Context(), []*cluster.TaskDefinition{&def}, nil)
	var change api.Change
	snap, err := s.write(r.Context(), func(d *draft) (err error) {
		old, _ := d.snap.Definition(ref)
		if err := pre.check(old.Modified); err != nil {
			return err
		}
		object := def
		change, err = d.setDefinition(&object)
		return err
	})
	if err != nil {
		return err
	}
	return answerDefinition(w, r, snap, ref, statusOfWrite(change))
}

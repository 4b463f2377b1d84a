package apiserver

import (
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

func (s *Server) listNodes(w http.ResponseWriter, r *http.Request) error {
	c := callerOf(r.Context())
	return serveList(s, w, r, func(snap *store.Snapshot) (all []keyed[api.NodeView]) {
		for _, name := range nodeNames(snap) {
			v, _ := s.nodeView(snap, name)
			c.showNode(&v)
			all = append(all, keyed[api.NodeView]{name, v})
		}
		return all
	})
}

func (s *Server) readNode(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	name := r.PathValue("node")
	v, ok := s.nodeView(snap, name)
	if !ok {
		return notFound("node", name)
	}
	callerOf(r.Context()).showNode(&v)
	tag(w, v.Revision)
	return answer(w, http.StatusOK, v)
}

func (s *Server) writeNode(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("node")
	var host cluster.Host
	pre, err := readObject(w, r, &host, func() cluster.Faults {
		faults := named("name", &host.Name, name)
		if host.Drain != nil {
			faults = append(faults, cluster.Fault{Path: "drain", Message: "is not set here: POST to " + r.URL.Path + "/drain"})
		}
		if host.Gone {
			faults = append(faults, cluster.Fault{Path: "gone", Message: "is not set here: POST to " + r.URL.Path + "/forget"})
		}
		return faults
	})
	if err != nil {
		return err
	}
	var drawn *draft
	snap, err := s.write(r.Context(), func(d *draft) error {
		object := host
		drawn = d
		return d.setHost(&object, pre)
	})
	if err != nil {
		return err
	}
	v, ok := s.nodeView(snap, name)
	if !ok {
		return notFound("node", name)
	}
	v.Revision = drawn.at(v.Revision)
	tag(w, v.Revision)
	return answer(w, http.StatusOK, v)
}

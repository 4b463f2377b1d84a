package apiserver

import (
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

func (s *Server) listNodes(w http.ResponseWriter, r *http.Request) error {
	return serveList(s, w, r, func(snap *store.Snapshot) (all []keyed[api.NodeView]) {
		for _, name := range nodeNames(snap) {
			v, _ := nodeView(snap, name)
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
	return answerNode(w, snap, r.PathValue("node"))
}

func answerNode(w http.ResponseWriter, snap *store.Snapshot, name string) error {
	v, ok := nodeView(snap, name)
	if !ok {
		return notFound("node", name)
	}
	tag(w, v.Revision)
	return answer(w, http.StatusOK, v)
}

func (s *Server) writeNode(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("node")
	var host cluster.Host
	pre, err := readObject(w, r, &host, func() cluster.Faults { return named("name", &host.Name, name) })
	if err != nil {
		return err
	}
	snap, err := s.write(r.Context(), func(d *draft) error {
		object := host
		return d.setHost(&object, pre)
	})
	if err != nil {
		return err
	}
	return answerNode(w, snap, name)
}

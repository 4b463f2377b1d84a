package apiserver

import (
	"net/http"

	"github.com/berthd/berth/internal/cluster"
)

func (s *Server) stopService(w http.ResponseWriter, r *http.Request) error {
	return s.services().change(w, r, func(_ *draft, svc *cluster.Service) (bool, error) {
		write := !svc.Stopped
		svc.Stopped = true
		return write, nil
	})
}

func (s *Server) startService(w http.ResponseWriter, r *http.Request) error {
	return s.services().change(w, r, func(d *draft, svc *cluster.Service) (bool, error) {
		if !svc.Stopped {
			return false, nil
		}
		svc.Stopped = false
		return true, d.still(svc.Cluster, d.permitted(svc.Cluster, svc.Definition, "definition"))
	})
}

func (s *Server) restartService(w http.ResponseWriter, r *http.Request) error {
	return s.services().change(w, r, func(d *draft, svc *cluster.Service) (bool, error) {
		if svc.Stopped {
			return false, problemf(http.StatusConflict, "service %s/%s is stopped: start it", svc.Cluster, svc.Name)
		}
		d.nextVersion(svc)
		svc.Restarted = svc.Generation
		return true, d.still(svc.Cluster, d.permitted(svc.Cluster, svc.Definition, "definition"))
	})
}

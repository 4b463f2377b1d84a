package apiserver

import (
	"fmt"
	"net/http"

	"github.com/berthd/berth/internal/cluster"
)

func (s *Server) scaleService(w http.ResponseWriter, r *http.Request) error {
	var ask struct { // an api.ScaleRequest, where an absent count is not 0
		Count *int `json:"count"`
	}
	if err := readBody(w, r, &ask); err != nil {
		return err
	}
	if ask.Count == nil {
		return faulty(cluster.Faults{{Path: "count", Message: "is missing"}})
	}
	count := *ask.Count
	if count < 0 || count > cluster.MaxCount {
		return faulty(cluster.Faults{{Path: "count", Message: fmt.Sprintf("is %d, want 0 to %d", count, cluster.MaxCount)}})
	}
	return s.services().change(w, r, func(svc *cluster.Service) (bool, error) {
		write := svc.Count != count
		svc.Count = count
		return write, nil
	})
}

func (s *Server) stopService(w http.ResponseWriter, r *http.Request) error {
	return s.services().change(w, r, func(svc *cluster.Service) (bool, error) {
		write := !svc.Stopped
		svc.Stopped = true
		return write, nil
	})
}

func (s *Server) startService(w http.ResponseWriter, r *http.Request) error {
	return s.services().change(w, r, func(svc *cluster.Service) (bool, error) {
		write := svc.Stopped
		svc.Stopped = false
		return write, nil
	})
}

func (s *Server) restartService(w http.ResponseWriter, r *http.Request) error {
	return s.services().change(w, r, func(svc *cluster.Service) (bool, error) {
		if svc.Stopped {
			return false, problemf(http.StatusConflict, "service %s/%s is stopped: start it", svc.Cluster, svc.Name)
		}
		svc.Generation++
		return true, nil
	})
}

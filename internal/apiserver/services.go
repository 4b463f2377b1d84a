package apiserver

import (
	"fmt"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

func (s *Server) listServices(w http.ResponseWriter, r *http.Request) error {
	in := r.PathValue("cluster")
	if err := s.knownCluster(r, in); err != nil {
		return err
	}
	return serveList(s, w, r, func(snap *store.Snapshot) (all []keyed[api.ServiceView]) {
		l := s.look(snap)
		for e := range snap.Services(in) {
			all = append(all, keyed[api.ServiceView]{e.Value.Cluster + "/" + e.Value.Name, l.serviceView(e)})
		}
		return all
	})
}

// knownCluster refuses lists of a cluster that does not exist; the default one always does.
func (s *Server) knownCluster(r *http.Request, name string) error {
	if name == "" || name == cluster.DefaultCluster {
		return nil
	}
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	if _, ok := snap.Cluster(name); !ok {
		return notFound("cluster", name)
	}
	return nil
}

func (s *Server) readService(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	return s.answerService(w, r, snap, http.StatusOK)
}

func (s *Server) answerService(w http.ResponseWriter, r *http.Request, snap *store.Snapshot, status int) error {
	in, name := r.PathValue("cluster"), r.PathValue("service")
	e, ok := snap.Service(in, name)
	if !ok {
		return notFound("service", in+"/"+name)
	}
	tag(w, e.Modified)
	return answer(w, status, s.look(snap).serviceView(e))
}

func (s *Server) writeService(w http.ResponseWriter, r *http.Request) error {
	in, name := r.PathValue("cluster"), r.PathValue("service")
	var svc cluster.Service
	pre, err := readObject(w, r, &svc, func() cluster.Faults {
		return append(named("cluster", &svc.Cluster, in), named("name", &svc.Name, name)...)
	})
	if err != nil {
		return err
	}
	var change api.Change
	snap, err := s.write(r.Context(), func(d *draft) (err error) {
		object := svc
		change, err = d.setService(&object, pre)
		return asProblem(err)
	})
	if err != nil {
		return err
	}
	return s.answerService(w, r, snap, statusOfWrite(change))
}

// changeService writes a service after a change; change reports whether there is something to write.
func (s *Server) changeService(w http.ResponseWriter, r *http.Request, change func(*cluster.Service) (bool, error)) error {
	in, name := r.PathValue("cluster"), r.PathValue("service")
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	snap, err := s.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Service(in, name)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return notFound("service", in+"/"+name)
		}
		if e.Value.Deleted {
			return problemf(http.StatusConflict, "service %s/%s is being deleted", in, name)
		}
		next := *e.Value
		write, err := change(&next)
		if err != nil || !write {
			return err
		}
		next.Updated = d.now
		d.put(d.prefix.Service(in, name), &next, e.Modified)
		return nil
	})
	if err != nil {
		return err
	}
	return s.answerService(w, r, snap, http.StatusOK)
}

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
	return s.changeService(w, r, func(svc *cluster.Service) (bool, error) {
		write := svc.Count != count
		svc.Count = count
		return write, nil
	})
}

func (s *Server) stopService(w http.ResponseWriter, r *http.Request) error {
	return s.changeService(w, r, func(svc *cluster.Service) (bool, error) {
		write := !svc.Stopped
		svc.Stopped = true
		return write, nil
	})
}

func (s *Server) startService(w http.ResponseWriter, r *http.Request) error {
	return s.changeService(w, r, func(svc *cluster.Service) (bool, error) {
		write := svc.Stopped
		svc.Stopped = false
		return write, nil
	})
}

func (s *Server) restartService(w http.ResponseWriter, r *http.Request) error {
	return s.changeService(w, r, func(svc *cluster.Service) (bool, error) {
		if svc.Stopped {
			return false, problemf(http.StatusConflict, "service %s/%s is stopped: start it", svc.Cluster, svc.Name)
		}
		svc.Generation++
		return true, nil
	})
}

// deleteService marks the service; the control plane stops its tasks and then removes the record.
func (s *Server) deleteService(w http.ResponseWriter, r *http.Request) error {
	in, name := r.PathValue("cluster"), r.PathValue("service")
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	var last api.ServiceView
	snap, err := s.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Service(in, name)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return notFound("service", in+"/"+name)
		}
		next := *e.Value
		if !next.Deleted {
			next.Deleted, next.Updated = true, d.now
			d.put(d.prefix.Service(in, name), &next, e.Modified)
		}
		e.Value = &next
		last = s.look(d.snap).serviceView(e)
		return nil
	})
	if err != nil {
		return err
	}
	if e, ok := snap.Service(in, name); ok {
		last = s.look(snap).serviceView(e)
		tag(w, e.Modified)
	}
	return answer(w, http.StatusAccepted, last) // it may be gone already
}

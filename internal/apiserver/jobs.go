package apiserver

import (
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

func (s *Server) listJobs(w http.ResponseWriter, r *http.Request) error {
	in := r.PathValue("cluster")
	if err := s.knownCluster(r, in); err != nil {
		return err
	}
	return serveList(s, w, r, func(snap *store.Snapshot) (all []keyed[api.JobView]) {
		l := s.look(snap)
		for e := range snap.Jobs(in) {
			all = append(all, keyed[api.JobView]{e.Value.Cluster + "/" + e.Value.Name, l.jobView(e)})
		}
		return all
	})
}

func (s *Server) readJob(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	return s.answerJob(w, r, snap, http.StatusOK)
}

func (s *Server) answerJob(w http.ResponseWriter, r *http.Request, snap *store.Snapshot, status int) error {
	in, name := r.PathValue("cluster"), r.PathValue("job")
	e, ok := snap.Job(in, name)
	if !ok {
		return notFound("job", in+"/"+name)
	}
	tag(w, e.Modified)
	return answer(w, status, s.look(snap).jobView(e))
}

func (s *Server) writeJob(w http.ResponseWriter, r *http.Request) error {
	in, name := r.PathValue("cluster"), r.PathValue("job")
	var job cluster.Job
	pre, err := readObject(w, r, &job, func() cluster.Faults {
		return append(named("cluster", &job.Cluster, in), named("name", &job.Name, name)...)
	})
	if err != nil {
		return err
	}
	var change api.Change
	snap, err := s.write(r.Context(), func(d *draft) (err error) {
		object := job
		object.Steps = append([]cluster.Step(nil), job.Steps...) // references are filled in
		change, err = d.setJob(&object, pre)
		return asProblem(err)
	})
	if err != nil {
		return err
	}
	return s.answerJob(w, r, snap, statusOfWrite(change))
}

// changeJob writes a job after a change; change reports whether there is something to write.
func (s *Server) changeJob(w http.ResponseWriter, r *http.Request, change func(*cluster.Job) bool) error {
	in, name := r.PathValue("cluster"), r.PathValue("job")
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	snap, err := s.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Job(in, name)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return notFound("job", in+"/"+name)
		}
		if e.Value.Deleted {
			return problemf(http.StatusConflict, "job %s/%s is being deleted", in, name)
		}
		next := *e.Value
		if change(&next) {
			next.Updated = d.now
			d.put(d.prefix.Job(in, name), &next, e.Modified)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.answerJob(w, r, snap, http.StatusOK)
}

func (s *Server) stopJob(w http.ResponseWriter, r *http.Request) error {
	return s.changeJob(w, r, func(job *cluster.Job) bool {
		write := !job.Cancelled
		job.Cancelled = true
		return write
	})
}

func (s *Server) restartJob(w http.ResponseWriter, r *http.Request) error {
	return s.changeJob(w, r, func(job *cluster.Job) bool {
		job.Cancelled = false
		job.Generation++
		return true
	})
}

// deleteJob marks the job; the control plane stops its tasks and then removes the record.
func (s *Server) deleteJob(w http.ResponseWriter, r *http.Request) error {
	in, name := r.PathValue("cluster"), r.PathValue("job")
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	var last api.JobView
	snap, err := s.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Job(in, name)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return notFound("job", in+"/"+name)
		}
		next := *e.Value
		if !next.Deleted {
			next.Deleted, next.Updated = true, d.now
			d.put(d.prefix.Job(in, name), &next, e.Modified)
		}
		e.Value = &next
		last = s.look(d.snap).jobView(e)
		return nil
	})
	if err != nil {
		return err
	}
	if e, ok := snap.Job(in, name); ok {
		last = s.look(snap).jobView(e)
		tag(w, e.Modified)
	}
	return answer(w, http.StatusAccepted, last) // it may be gone already
}

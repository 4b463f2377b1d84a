package apiserver

import (
	"net/http"

	"github.com/berthd/berth/internal/cluster"
)

func (s *Server) stopJob(w http.ResponseWriter, r *http.Request) error {
	return s.jobs().change(w, r, func(_ *draft, job *cluster.Job) (bool, error) {
		write := !job.Cancelled
		job.Cancelled = true
		return write, nil
	})
}

func (s *Server) restartJob(w http.ResponseWriter, r *http.Request) error {
	return s.jobs().change(w, r, func(d *draft, job *cluster.Job) (bool, error) {
		job.Cancelled = false
		job.Generation = d.snap.NextGeneration(job.Owner())
		return true, d.still(job.Cluster, d.permittedSteps(job.Cluster, job.Steps, "steps"))
	})
}

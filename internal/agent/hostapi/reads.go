package hostapi

import (
	"encoding/json"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// listTasks answers with all that runs on the node, or with the stream of its changes.
func (s *Server) listTasks(w http.ResponseWriter, r *http.Request) error {
	if route.WantsStream(r) {
		return s.streamChanges(w, r)
	}
	body, err := s.readings.fresh().JSON()
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, json.RawMessage(body))
}

// readTask answers with one task.
func (s *Server) readTask(w http.ResponseWriter, r *http.Request) error {
	t, err := s.readings.find(r)
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, t)
}

// readResources answers with the resources of the node.
func (s *Server) readResources(w http.ResponseWriter, _ *http.Request) error {
	return respond.JSON(w, http.StatusOK, s.readings.state().Resources)
}

// readDocument answers with the description of this API.
func (s *Server) readDocument(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(s.spec.JSON)
	return err
}

// find returns the task that the address names: by its name, its id, or the UUID of its attempt.
func (rs *readings) find(r *http.Request) (api.HostTask, error) {
	name := r.PathValue(pathTask)
	tasks := rs.state().Tasks
	for i := range tasks { // of several attempts of a task the newest comes first
		if t := &tasks[i]; t.Name == name || t.ID != "" && t.ID == cluster.TaskID(name) || t.UUID == name {
			return *t, nil
		}
	}
	return api.HostTask{}, respond.Problemf(http.StatusNotFound,
		"there is no task %s on the node %s; GET /v1/tasks lists its tasks", respond.Clip(name), rs.config.Name)
}

package clitest

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/selector"
)

// keepSelected returns a list with the elements that the selector of the request selects, as servers do. It returns
// other answers as they are.
func keepSelected(w State, r *http.Request, answer any) any {
	text := r.URL.Query().Get("selector")
	if text == "" || answer == nil {
		return answer
	}
	chosen, err := selector.Parse(text)
	if err != nil {
		panic(err) // the command line has checked it
	}
	encoded, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	var page api.Page[json.RawMessage]
	if err := json.Unmarshal(encoded, &page); err != nil {
		panic(err)
	}
	page.Items = slices.DeleteFunc(page.Items, func(item json.RawMessage) bool {
		var v struct {
			Labels cluster.Labels
			Owner  cluster.OwnerRef
		}
		if err := json.Unmarshal(item, &v); err != nil {
			panic(err)
		}
		if r.URL.Path == "/v1/tasks" {
			v.Labels = w.labelsOf(v.Owner)
		}
		return !chosen.Matches(v.Labels)
	})
	return page
}

// labelsOf returns the labels of a service or job.
func (w State) labelsOf(o cluster.OwnerRef) cluster.Labels {
	for i := range w.Services {
		if w.Services[i].Owner() == o {
			return w.Services[i].Labels
		}
	}
	for i := range w.Jobs {
		if w.Jobs[i].Owner() == o {
			return w.Jobs[i].Labels
		}
	}
	return nil
}

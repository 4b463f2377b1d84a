package clitest

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/trouble"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// troublesOf returns the troubles that a server finds in a state.
func troublesOf(w State, r *http.Request) any {
	kind, in, name := r.URL.Query().Get("kind"), r.URL.Query().Get("cluster"), r.URL.Query().Get("name")
	tasks := func(job bool, wanted func(*api.TaskView) bool) (all []api.TaskView) {
		for _, v := range w.Tasks {
			if !wanted(&v) || !job && v.State.Terminal() {
				continue
			}
			if i := slices.IndexFunc(all, func(a api.TaskView) bool { return a.ID == v.ID }); i < 0 {
				all = append(all, v)
			} else if v.Attempt > all[i].Attempt {
				all[i] = v
			}
		}
		return all
	}
	if kind == "task" {
		found := tasks(true, func(v *api.TaskView) bool { return string(v.ID) == name })
		if len(found) == 0 || trouble.OfTask(found[0]) == nil {
			return pageOf([]api.Trouble{})
		}
		return pageOf([]api.Trouble{*trouble.OfTask(found[0])})
	}
	w.Services = slices.SortedFunc(slices.Values(w.Services), func(x, y api.ServiceView) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Name, y.Name))
	})
	o := trouble.Objects{
		Now: Start(), Nodes: w.Nodes, Services: w.Services, Jobs: w.Jobs, Crons: w.Crons,
		Tasks: func(o cluster.OwnerRef) []api.TaskView {
			return tasks(o.Kind == cluster.KindJob, func(v *api.TaskView) bool { return v.Owner == o })
		},
		Misplaced: func(o cluster.OwnerRef) []api.TaskView {
			return tasks(false, func(v *api.TaskView) bool { return v.Owner == o && v.Misplaced != "" })
		},
	}
	return pageOf(slices.DeleteFunc(trouble.Find(&o), func(t api.Trouble) bool {
		return kind != "" && t.Object != wording.Object(kind, in, name)
	}))
}

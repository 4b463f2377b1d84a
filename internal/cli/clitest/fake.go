// Package clitest is a fake API server for tests of the command line. A test sets its answers.
package clitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// Start returns the time at which a fake server finds troubles, and at which commands run in tests.
func Start() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// State is the content of a fake server at one moment.
type State struct {
	Clusters    []api.Cluster        `json:"clusters"`
	Definitions []api.TaskDefinition `json:"definitions"`
	Services    []api.ServiceView    `json:"services"`
	Jobs        []api.JobView        `json:"jobs"`
	Tasks       []api.TaskView       `json:"tasks"`
	Nodes       []api.NodeView       `json:"nodes"`
	Pools       []api.PoolView       `json:"pools"`
	Profiles    []api.ProfileView    `json:"profiles"`
	Events      []api.EventView      `json:"events"`
	// Addresses are those of endpoints, by the endpoint's name.
	Addresses map[string][]api.EndpointAddress `json:"addresses"`
	Images    []api.ImageView                  `json:"images"`
	Volumes   []api.VolumeView                 `json:"volumes"`
	Logs      map[cluster.TaskID][]api.LogLine `json:"logs"`
	// Answers about rollouts, scaling, crons, reservations and explanations.
	Rollouts     []api.RolloutView     `json:"rollouts"`
	Histories    []api.RolloutHistory  `json:"histories"`
	Scales       []api.ScaleView       `json:"scales"`
	Crons        []api.CronView        `json:"crons"`
	Endpoints    []api.EndpointView    `json:"endpoints"`
	Reservations []api.ReservationView `json:"reservations"`
	Explanations []api.Explanation     `json:"explanations"`
	Queue        api.Queue             `json:"queue"`
	Rebalance    api.Rebalance         `json:"rebalance"`
	Simulation   api.Simulation        `json:"simulation"`
	// Rebalancings are the answers about rebalancings; without an id the first one counts. Undo is the answer to a dry
	// undo.
	Rebalancings []api.RebalancingView `json:"rebalancings"`
	Undo         api.RebalancingView   `json:"undo"`
	// Answers about servers, tokens, the domain and settings.
	Status   *api.Status       `json:"status"`
	Servers  []api.ServerView  `json:"servers"`
	Tokens   []api.TokenView   `json:"tokens"`
	Token    api.TokenReply    `json:"token"`
	Recovery api.RecoveryView  `json:"recovery"`
	Domains  []api.DomainView  `json:"domains"`
	Settings map[string]string `json:"settings"`
	Metrics  string            `json:"metrics"`
	// Apply is the reply to an apply. Refuse holds refusals by "METHOD /path"; a refusal replaces the reply.
	Apply api.ApplyReply `json:"apply"`
	// Diffs are the differences of definitions, by the version on the right.
	Diffs  []api.DefinitionDiff   `json:"diffs"`
	Refuse map[string]api.Problem `json:"refuse"`
}

// Fake is an API server that shows its states one after the other. Each read of a single service or job moves to the
// next state. Calls records each change that a client requests.
type Fake struct {
	*httptest.Server

	Mutex  sync.Mutex
	States []State
	Calls  []string
	read   chan struct{} // closed and replaced when an object is read
}

// NewFake returns a fake server on a free loopback port.
func NewFake() *Fake { return NewFakeAt(nil) }

// NewFakeAt returns a fake server on a listener, or on a free loopback port if the listener is nil.
func NewFakeAt(listener net.Listener, worlds ...State) *Fake { //nolint:funlen // one row a path
	f := &Fake{States: append(worlds, State{})[:max(len(worlds), 1)], read: make(chan struct{})}
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(State, *http.Request) any{
		"GET /v1/services": func(w State, _ *http.Request) any { return pageOf(w.Services) },
		"GET /v1/jobs":     func(w State, _ *http.Request) any { return pageOf(w.Jobs) },
		"GET /v1/clusters/{c}/services": func(w State, r *http.Request) any {
			return pageOf(slices.DeleteFunc(slices.Clone(w.Services), func(v api.ServiceView) bool {
				return v.Cluster != r.PathValue("c")
			}))
		},
		"GET /v1/clusters/{c}/jobs": func(w State, r *http.Request) any {
			return pageOf(slices.DeleteFunc(slices.Clone(w.Jobs), func(v api.JobView) bool {
				return v.Cluster != r.PathValue("c")
			}))
		},
		"GET /v1/endpoints": func(w State, _ *http.Request) any { return pageOf(w.Endpoints) },
		"GET /v1/clusters/{c}/endpoints": func(w State, r *http.Request) any {
			return pageOf(slices.DeleteFunc(slices.Clone(w.Endpoints), func(v api.EndpointView) bool {
				return v.Cluster != r.PathValue("c")
			}))
		},
		"GET /v1/clusters/{c}/endpoints/{e}/addresses": func(w State, r *http.Request) any {
			return pageOf(w.Addresses[r.PathValue("e")])
		},
		"GET /v1/pools": func(w State, _ *http.Request) any { return pageOf(w.Pools) },
		"GET /v1/pools/{p}": func(w State, r *http.Request) any {
			return findItem(w.Pools, func(v api.PoolView) bool { return v.Name == r.PathValue("p") })
		},
		"GET /v1/profiles": func(w State, _ *http.Request) any { return pageOf(w.Profiles) },
		"GET /v1/profiles/{p}": func(w State, r *http.Request) any {
			return findItem(w.Profiles, func(v api.ProfileView) bool {
				return v.Name == r.PathValue("p")
			})
		},
		"GET /v1/profiles/{p}/{v}": func(w State, r *http.Request) any {
			return findItem(w.Profiles, func(v api.ProfileView) bool {
				return v.Name == r.PathValue("p") && strconv.Itoa(v.Version) == r.PathValue("v")
			})
		},
		"DELETE /v1/profiles/{p}/{v}": emptyReply,
		"DELETE /v1/pools/{p}":        emptyReply,
		"GET /v1/nodes":               func(w State, _ *http.Request) any { return pageOf(w.Nodes) },
		"GET /v1/tasks":               func(w State, r *http.Request) any { return pageOf(filterTasks(w.Tasks, r)) },
		"GET /v1/definitions/{d}/{v}": definitionNamed,
		"GET /v1/definitions/{d}": func(w State, r *http.Request) any {
			var all []api.DefinitionView
			for _, d := range w.Definitions {
				if d.Name == r.PathValue("d") {
					all = append(all, api.DefinitionView{TaskDefinition: d})
				}
			}
			return pageOf(all)
		},
		"GET /v1/definitions/{d}/{v}/diff": func(w State, r *http.Request) any {
			return findItem(w.Diffs, func(d api.DefinitionDiff) bool {
				from := r.URL.Query().Get("from")
				return d.To.Name == r.PathValue("d") && fmt.Sprint(d.To.Version) == r.PathValue("v") &&
					(from == "" || from == fmt.Sprint(d.From.Version))
			})
		},
		"POST /v1/definitions/{d}/{v}/diff": func(w State, r *http.Request) any {
			return findItem(w.Diffs, func(d api.DefinitionDiff) bool {
				return d.From.Name == r.PathValue("d") && fmt.Sprint(d.From.Version) == r.PathValue("v")
			})
		},
		"GET /v1/clusters/{c}": func(w State, r *http.Request) any {
			return findItem(w.Clusters, func(v api.Cluster) bool { return v.Name == r.PathValue("c") })
		},
		"GET /v1/images":  func(w State, _ *http.Request) any { return api.ImagesReply{Items: w.Images} },
		"GET /v1/volumes": func(w State, _ *http.Request) any { return api.VolumesReply{Items: w.Volumes} },
		"POST /v1/volumes/remove": func(w State, r *http.Request) any {
			var ask api.VolumeRemove
			_ = json.NewDecoder(r.Body).Decode(&ask)
			return findItem(w.Volumes, func(v api.VolumeView) bool { return v.Name == ask.Name && v.Node == ask.Node })
		},
		"GET /v1/events": f.listEvents,
		"POST /v1/images": func(w State, _ *http.Request) any {
			return api.ImagesReply{Items: w.Images}
		},
		"POST /v1/apply":                        func(w State, _ *http.Request) any { return w.Apply },
		"POST /v1/clusters/{c}/{kind}/{n}/{do}": emptyReply,
		"DELETE /v1/clusters/{c}/{kind}/{n}":    emptyReply,
		"PUT /v1/clusters/{c}/{kind}/{s}":       emptyReply,
		"DELETE /v1/clusters/{c}":               emptyReply,
		"GET /v1/definitions": func(w State, _ *http.Request) any {
			return pageOf(viewsOf(w.Definitions, func(d api.TaskDefinition) api.DefinitionView {
				return api.DefinitionView{TaskDefinition: d}
			}))
		},
		"GET /v1/clusters": func(w State, _ *http.Request) any {
			return pageOf(viewsOf(w.Clusters, func(c api.Cluster) api.ClusterView {
				return api.ClusterView{Cluster: c}
			}))
		},
		"GET /v1/version":               func(State, *http.Request) any { return api.Version{Version: "0.1.0"} },
		"GET /v1/servers":               func(w State, _ *http.Request) any { return pageOf(w.Servers) },
		"POST /v1/servers/{s}/promote":  func(w State, r *http.Request) any { return serverNamed(w, r.PathValue("s")) },
		"DELETE /v1/servers/{s}":        emptyReply,
		"GET /v1/tokens":                func(w State, _ *http.Request) any { return pageOf(w.Tokens) },
		"POST /v1/tasks/{t}/checks/{c}": emptyReply,
		"POST /v1/tokens":               func(w State, _ *http.Request) any { return w.Token },
		"DELETE /v1/tokens/{t}":         emptyReply,
		"GET /v1/recovery":              func(w State, _ *http.Request) any { return w.Recovery },
		"POST /v1/recovery":             func(w State, _ *http.Request) any { return w.Recovery },
		"GET /v1/domains":               func(w State, _ *http.Request) any { return pageOf(w.Domains) },
		"GET /v1/domains/{d}": func(w State, r *http.Request) any {
			return findItem(w.Domains, func(v api.DomainView) bool { return v.Name == r.PathValue("d") })
		},
		"POST /v1/domains/{d}/reschedule": func(w State, r *http.Request) any {
			return findItem(w.Domains, func(v api.DomainView) bool { return v.Name == r.PathValue("d") })
		},
		"GET /v1/config":          func(w State, _ *http.Request) any { return api.Settings{Values: w.Settings} },
		"GET /readyz":             func(State, *http.Request) any { return api.Readiness{Ready: true} },
		"POST /v1/nodes/{n}/{do}": nodeNamed,
		"GET /v1/nodes/{n}":       nodeNamed,
		"GET /v1/troubles":        troublesOf,
		"GET /v1/queue": func(w State, r *http.Request) any {
			q, query := w.Queue, r.URL.Query()
			in, job, service := query.Get("cluster"), query.Get("job"), query.Get("service")
			q.Entries = slices.DeleteFunc(slices.Clone(q.Entries), func(e api.QueueEntry) bool {
				return in != "" && e.Owner.Cluster != in || job != "" && e.Owner.Name != job ||
					service != "" && e.Owner.Name != service
			})
			limit, _ := strconv.Atoi(query.Get("limit"))
			for _, e := range q.Entries[min(limit, len(q.Entries)):] {
				q.LeftOut += e.Tasks
			}
			q.Entries = q.Entries[:min(limit, len(q.Entries))]
			return q
		},
		"GET /v1/status": func(w State, _ *http.Request) any {
			if w.Status == nil {
				return api.Status{Servers: api.ServerCount{Total: 1, Up: 1}}
			}
			return w.Status
		},
		"GET /v1/tasks/{id}": func(w State, r *http.Request) any {
			found := slices.DeleteFunc(slices.Clone(w.Tasks), func(v api.TaskView) bool {
				return string(v.ID) != r.PathValue("id")
			})
			if len(found) == 0 {
				return nil
			}
			slices.SortFunc(found, func(a, b api.TaskView) int { return b.Attempt - a.Attempt })
			return found[0]
		},
	} {
		mux.HandleFunc(pattern, f.handle(h))
	}
	mux.HandleFunc("GET /v1/clusters/{c}/services/{n}", f.handle(func(w State, r *http.Request) any {
		return findItem(w.Services, func(v api.ServiceView) bool {
			return v.Cluster == r.PathValue("c") && v.Name == r.PathValue("n")
		})
	}))
	mux.HandleFunc("GET /v1/clusters/{c}/jobs/{n}", f.handle(func(w State, r *http.Request) any {
		return findItem(w.Jobs, func(v api.JobView) bool {
			return v.Cluster == r.PathValue("c") && v.Name == r.PathValue("n")
		})
	}))
	f.addObjectRoutes(mux)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, f.current().Metrics)
	})
	mux.HandleFunc("GET /debug/pprof/{p}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "profile "+r.PathValue("p")) //nolint:gosec // the content is for a test only
	})
	mux.HandleFunc("GET /v1/tasks/{id}/logs", f.streamLogs)
	mux.HandleFunc("GET /v1/tasks/{id}/exec", f.serveExec)
	mux.HandleFunc("GET /v1/tasks/{id}/forward", f.refuseForward)
	f.Server = httptest.NewUnstartedServer(mux)
	if listener != nil {
		_ = f.Listener.Close() // the given listener replaces it
		f.Listener = listener
	}
	f.Start()
	return f
}

// addObjectRoutes adds the routes of services, crons, rebalancings and reservations. Only a GET of a path that ends in
// {n} moves to the next state.
func (f *Fake) addObjectRoutes(mux *http.ServeMux) {
	rollout := func(w State, r *http.Request) any {
		return findItem(w.Rollouts, func(v api.RolloutView) bool {
			return v.Cluster == r.PathValue("c") && v.Service == r.PathValue("s")
		})
	}
	explain := func(w State, r *http.Request) any {
		return findItem(w.Explanations, func(v api.Explanation) bool {
			return v.Task != "" && string(v.Task) == r.PathValue("s") || v.Task == "" &&
				v.Owner.Name == r.PathValue("s") && v.Owner.Cluster == r.PathValue("c")
		})
	}
	rebalancing := func(w State, r *http.Request) any {
		id := r.PathValue("n") + r.PathValue("s")
		return findItem(w.Rebalancings, func(v api.RebalancingView) bool {
			return id == "" || id == "last" || fmt.Sprint(v.ID) == id
		})
	}
	for pattern, h := range map[string]func(State, *http.Request) any{
		"GET /v1/clusters/{c}/services/{s}/rollout":       rollout,
		"POST /v1/clusters/{c}/services/{s}/rollout/{do}": rollout,
		"GET /v1/clusters/{c}/services/{s}/rollout/history": func(w State, r *http.Request) any {
			return findItem(w.Histories, func(v api.RolloutHistory) bool {
				return v.Cluster == r.PathValue("c") && v.Service == r.PathValue("s")
			})
		},
		"GET /v1/clusters/{c}/services/{s}/scale": func(w State, r *http.Request) any {
			return findItem(w.Scales, func(v api.ScaleView) bool {
				return v.Cluster == r.PathValue("c") && v.Service == r.PathValue("s")
			})
		},
		"POST /v1/clusters/{c}/services/{s}/scale/{do}": emptyReply,
		"GET /v1/clusters/{c}/services/{s}/explain":     explain,
		"GET /v1/clusters/{c}/jobs/{s}/explain":         explain,
		"GET /v1/tasks/{s}/explain":                     explain,
		"POST /v1/simulate":                             func(w State, _ *http.Request) any { return w.Simulation },
		"GET /v1/rebalance":                             func(w State, _ *http.Request) any { return w.Rebalance },
		"POST /v1/rebalance":                            rebalancing,
		"GET /v1/rebalancings/{n}":                      rebalancing,
		"POST /v1/rebalancings/{s}/cancel":              rebalancing,
		"POST /v1/rebalancings/{s}/undo":                func(w State, _ *http.Request) any { return w.Undo },
		"GET /v1/rebalancings": func(w State, _ *http.Request) any {
			return pageOf(viewsOf(w.Rebalancings, func(v api.RebalancingView) api.RebalancingBrief {
				return api.RebalancingBrief{
					ID: v.ID, State: v.State, Created: v.Created, Ended: v.Ended, By: v.By, Undoes: v.Undoes,
					Moves: len(v.Moves), Counts: v.Counts,
				}
			}))
		},
		"GET /v1/reservations": func(w State, _ *http.Request) any { return pageOf(w.Reservations) },
		"GET /v1/reservations/{n}": func(w State, r *http.Request) any {
			return findItem(w.Reservations, func(v api.ReservationView) bool { return v.Name == r.PathValue("n") })
		},
		"PUT /v1/reservations/{s}": func(w State, r *http.Request) any {
			return findItem(w.Reservations, func(v api.ReservationView) bool { return v.Name == r.PathValue("s") })
		},
		"DELETE /v1/reservations/{s}": emptyReply,
		"GET /v1/crons":               func(w State, _ *http.Request) any { return pageOf(w.Crons) },
		"GET /v1/clusters/{c}/crons": func(w State, r *http.Request) any {
			return pageOf(slices.DeleteFunc(slices.Clone(w.Crons), func(v api.CronView) bool {
				return v.Cluster != r.PathValue("c")
			}))
		},
		"GET /v1/clusters/{c}/crons/{n}": func(w State, r *http.Request) any {
			return findItem(w.Crons, func(v api.CronView) bool {
				return v.Cluster == r.PathValue("c") && v.Name == r.PathValue("n")
			})
		},
		"POST /v1/clusters/{c}/crons/{s}/run": func(w State, r *http.Request) any {
			return findItem(w.Jobs, func(v api.JobView) bool { return v.Cron == r.PathValue("s") && v.At.IsZero() })
		},
	} {
		mux.HandleFunc(pattern, f.handle(h))
	}
}

// Load reads the states from YAML files.
func (f *Fake) Load(files ...string) error {
	var worlds []State
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		raw, err := yaml.YAMLToJSON(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		var w State
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&w); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		worlds = append(worlds, w)
	}
	f.Mutex.Lock()
	defer f.Mutex.Unlock()
	f.States, f.Calls = worlds, nil
	return nil
}

func (f *Fake) advance() {
	f.Mutex.Lock()
	defer f.Mutex.Unlock()
	close(f.read)
	f.read = make(chan struct{})
	if len(f.States) > 1 {
		f.States = f.States[1:]
	}
}

// isDeleted reports whether a client deleted the object at a path.
func (f *Fake) isDeleted(path string) bool {
	f.Mutex.Lock()
	defer f.Mutex.Unlock()
	return slices.Contains(f.Calls, "DELETE "+path)
}

func (f *Fake) current() State {
	f.Mutex.Lock()
	defer f.Mutex.Unlock()
	return f.States[0]
}

// handle returns a handler that encodes the result of h as JSON. A nil result is 404.
func (f *Fake) handle(h func(State, *http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.PathValue("n") != "" {
			f.advance()
		}
		if r.Header.Get("Accept") == "text/event-stream" && !strings.HasSuffix(r.URL.Path, "/events") {
			f.streamChanges(w, r)
			return
		}
		now := f.current()
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if r.Method != http.MethodGet {
			f.Mutex.Lock()
			f.Calls = append(f.Calls, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
			f.Mutex.Unlock()
		}
		if r.Method == http.MethodGet && f.isDeleted(r.URL.Path) {
			WriteProblem(w, api.Problem{Title: "Not Found", Status: http.StatusNotFound})
			return
		}
		if p, ok := now.Refuse[r.Method+" "+r.URL.Path]; ok {
			WriteProblem(w, p)
			return
		}
		v := keepSelected(now, r, h(now, r))
		if v == nil {
			WriteProblem(w, api.Problem{
				Title: "Not Found", Status: http.StatusNotFound,
				Detail: "there is nothing at " + r.URL.Path,
			})
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	}
}

// streamChanges sends a change immediately and after each read of an object. A waiting client then reads the next
// state.
func (f *Fake) streamChanges(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for index := 1; ; index++ {
		f.Mutex.Lock()
		read := f.read
		f.Mutex.Unlock()
		fmt.Fprintf(w, "event: synced\nid: %d\ndata: {}\n\n", index)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-read:
		}
	}
}

// WriteProblem answers with an API problem.
func WriteProblem(w http.ResponseWriter, p api.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

func pageOf[T any](items []T) any { return api.Page[T]{Items: items, Index: 1} }

func findItem[T any](items []T, is func(T) bool) any {
	if i := slices.IndexFunc(items, is); i >= 0 {
		return items[i]
	}
	return nil
}

func emptyReply(State, *http.Request) any { return struct{}{} }

func viewsOf[T, V any](items []T, view func(T) V) []V {
	all := make([]V, len(items))
	for i, v := range items {
		all[i] = view(v)
	}
	return all
}

func nodeNamed(w State, r *http.Request) any {
	return findItem(w.Nodes, func(v api.NodeView) bool { return v.Name == r.PathValue("n") })
}

func serverNamed(w State, id string) any {
	return findItem(w.Servers, func(v api.ServerView) bool {
		return v.ID == id || v.Engine != nil && v.Engine.ID == id
	})
}

func definitionNamed(w State, r *http.Request) any {
	return findItem(w.Definitions, func(d api.TaskDefinition) bool {
		return d.Name == r.PathValue("d") && fmt.Sprint(d.Version) == r.PathValue("v")
	})
}

func filterTasks(tasks []api.TaskView, r *http.Request) []api.TaskView {
	q := r.URL.Query()
	return slices.DeleteFunc(slices.Clone(tasks), func(t api.TaskView) bool {
		no := func(param, value string) bool { return q.Get(param) != "" && q.Get(param) != value }
		service, job := t.Owner.Name, ""
		if t.Owner.Kind == cluster.KindJob {
			service, job = "", t.Owner.Name
		}
		return no("service", service) || no("job", job) || no("node", t.Node) || no("cluster", t.Owner.Cluster) ||
			no("state", string(t.State)) || q.Get("all") == "" && t.State.Terminal() && !isFinalOfJob(tasks, t)
	})
}

// isFinalOfJob reports whether an attempt is the newest one of a job's task. Lists of tasks contain it after its end.
func isFinalOfJob(tasks []api.TaskView, t api.TaskView) bool {
	return t.Owner.Kind == cluster.KindJob && !slices.ContainsFunc(tasks, func(v api.TaskView) bool {
		return v.ID == t.ID && (v.Attempt > t.Attempt || v.State == cluster.StatePending && v.Attempt == 0)
	})
}

// listEvents answers with a page of events, or with a stream that ends after the last one.
func (f *Fake) listEvents(w State, r *http.Request) any {
	q := r.URL.Query()
	after := q.Get("after")
	return pageOf(slices.DeleteFunc(slices.Clone(w.Events), func(e api.EventView) bool {
		no := func(param, value string) bool { return q.Get(param) != "" && q.Get(param) != value }
		owner := map[cluster.Kind]string{}
		if e.Owner != nil {
			owner[e.Owner.Kind] = e.Owner.Name
		}
		return after != "" && e.ID <= after || no("node", e.Node) || no("task", string(e.Task)) ||
			no("cluster", e.Cluster) || no("types", e.Type) ||
			no("reasons", string(e.Reason)) || no("service", owner[cluster.KindService]) ||
			no("job", owner[cluster.KindJob]) || no("cron", owner[cluster.KindCron]) || no("since", "1h0m0s")
	}))
}

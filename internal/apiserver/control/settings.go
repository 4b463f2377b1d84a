package control

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

// SettingsAPI shows a server's settings and profiles of its process.
type SettingsAPI struct {
	ServerID string
	Settings map[string]string
}

// secretWords returns parts of the names of settings that are never shown. No such setting should exist.
func secretWords() []string { return []string{"secret", "password", "token"} }

func (a *SettingsAPI) readConfig(w http.ResponseWriter, _ *http.Request) error {
	v := api.Settings{Server: a.ServerID, Values: map[string]string{}}
	for name, value := range a.Settings { // order-free: a map is filled
		v.Values[name] = value
		for _, word := range secretWords() {
			if strings.Contains(name, word) && !strings.HasSuffix(name, "-file") {
				v.Values[name] = "(left out)"
			}
		}
	}
	return respond.JSON(w, http.StatusOK, v)
}

// Bounds of a CPU profile, in seconds.
const (
	profileSeconds = 30
	profileMost    = 120
)

// readProfile answers as Go's own handlers of profiles do, so that its tools can read the answer.
func (a *SettingsAPI) readProfile(w http.ResponseWriter, r *http.Request) error {
	kind := r.PathValue("profile")
	seconds, err := route.Number(r, "seconds", profileSeconds)
	if err != nil {
		return err
	}
	debug, err := route.Number(r, "debug", 0)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if kind == "profile" {
		if err := profileCPU(r.Context(), &out,
			time.Duration(min(max(seconds, 1), profileMost))*time.Second); err != nil {
			return err
		}
	} else {
		p := pprof.Lookup(kind)
		if p == nil {
			return respond.NotFound("profile", respond.Clip(kind))
		}
		if kind == "heap" && route.Flag(r, "gc") {
			runtime.GC()
		}
		if debug > 0 {
			h.Set("Content-Type", "text/plain; charset=utf-8")
		}
		if err := p.WriteTo(&out, int(min(debug, 2))); err != nil {
			return err
		}
	}
	h.Set("Cache-Control", "no-store")
	// Some writers have no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(respond.WriteTimeout))
	_, err = w.Write(out.Bytes())
	return err
}

// profileCPU profiles the CPU for a while. A process can have one CPU profile at a time.
func profileCPU(ctx context.Context, out *bytes.Buffer, during time.Duration) error {
	if err := pprof.StartCPUProfile(out); err != nil {
		return respond.Problemf(http.StatusConflict, "a CPU profile is running: retry when it has ended")
	}
	defer pprof.StopCPUProfile()
	return pause.For(ctx, during)
}

// Routes returns the operations of settings and profiles.
func (a *SettingsAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/config", Name: "readConfig",
			Summary: "The settings of the server that answers, without secrets.", Role: cluster.RoleOperator,
			Audited: true,
			Reply:   reflect.TypeFor[api.Settings](), Serve: a.readConfig,
		},
		{
			Method: "GET", Path: "/debug/pprof/{profile}", Name: "readProfile",
			Summary: "A profile of the server that answers: goroutine, heap, allocs, block, mutex, " +
				"threadcreate, or profile, which measures the CPU.",
			Role: cluster.RoleAdmin, Audited: true, Query: []route.Parameter{
				route.QueryParam("seconds", "integer", "how long the CPU is measured; default 30, at most 120"),
				route.QueryParam("debug", "integer", "1 or 2: as text"),
				route.QueryParam("gc", "integer", "1: collect garbage before a heap profile"),
			}, Stream: "application/octet-stream", Long: true, Serve: a.readProfile,
		},
	}
}

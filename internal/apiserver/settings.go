package apiserver

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
	"github.com/berthd/berth/internal/cluster"
)

// settingsAPI shows a server's settings and profiles of its process.
type settingsAPI struct {
	serverID string
	settings map[string]string
}

// secretWords are in the names of settings that are left out, in case one finds its way there.
func secretWords() []string { return []string{"secret", "password", "token"} }

func (a *settingsAPI) readConfig(w http.ResponseWriter, _ *http.Request) error {
	v := api.Settings{Server: a.serverID, Values: map[string]string{}}
	for name, value := range a.settings { // order-free: a map is filled
		v.Values[name] = value
		for _, word := range secretWords() {
			if strings.Contains(name, word) && !strings.HasSuffix(name, "-file") {
				v.Values[name] = "(left out)"
			}
		}
	}
	return answer(w, http.StatusOK, v)
}

// Bounds of a CPU profile, in seconds.
const (
	profileSeconds = 30
	profileMost    = 120
)

// readProfile answers as Go's own handlers of profiles do, so that its tools can read it.
func (a *settingsAPI) readProfile(w http.ResponseWriter, r *http.Request) error {
	kind := r.PathValue("profile")
	seconds, err := number(r, "seconds", profileSeconds)
	if err != nil {
		return err
	}
	debug, err := number(r, "debug", 0)
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
			return notFound("profile", clip(kind))
		}
		if kind == "heap" && given(r, "gc") {
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
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
	_, err = w.Write(out.Bytes())
	return err
}

// profileCPU measures the CPU for a while. The process has one such profile at a time.
func profileCPU(ctx context.Context, out *bytes.Buffer, during time.Duration) error {
	if err := pprof.StartCPUProfile(out); err != nil {
		return problemf(http.StatusConflict, "the CPU is being measured already: ask again once that has ended")
	}
	defer pprof.StopCPUProfile()
	timer := time.NewTimer(during)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (a *settingsAPI) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/config", name: "readConfig",
			summary: "The settings of the server that answers, without what is secret.", role: cluster.RoleOperator,
			audited: true,
			reply:   reflect.TypeFor[api.Settings](), serve: a.readConfig,
		},
		{
			method: "GET", path: "/debug/pprof/{profile}", name: "readProfile",
			summary: "A profile of the server that answers: goroutine, heap, allocs, block, mutex, " +
				"threadcreate, or profile, which measures the CPU.",
			role: cluster.RoleAdmin, audited: true, query: []parameter{
				queryParam("seconds", "integer", "how long the CPU is measured; default 30, at most 120"),
				queryParam("debug", "integer", "1 or 2: as text"),
				queryParam("gc", "integer", "1: collect garbage before a heap profile"),
			}, stream: "application/octet-stream", long: true, serve: a.readProfile,
		},
	}
}

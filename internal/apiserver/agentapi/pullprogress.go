package agentapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
)

// pullProgress sends the progress of a pull to a client, as lines of JSON. Its methods may be called concurrently; on
// nil they do nothing.
type pullProgress struct {
	mu  sync.Mutex
	out *json.Encoder
	ctl *http.ResponseController
	err error // first error of the client's connection, which also ends the request's context
}

// newPullProgress returns a pullProgress for a client that requests lines, else nil.
func newPullProgress(w http.ResponseWriter, r *http.Request) *pullProgress {
	if !strings.Contains(r.Header.Get("Accept"), route.MediaLines) {
		return nil
	}
	w.Header().Set("Content-Type", route.MediaLines)
	w.Header().Set("Cache-Control", "no-store")
	return &pullProgress{out: json.NewEncoder(w), ctl: http.NewResponseController(w)}
}

// reporter returns a function for messages about an image on a node, or nil if f is nil.
func (f *pullProgress) reporter(node, image string) func(string) {
	if f == nil {
		return nil
	}
	return func(text string) { _ = f.send(&api.ImagePullNews{Node: node, Image: image, Message: text}) } // see err
}

// done reports that a node has pulled all images or has given up.
func (f *pullProgress) done(node string) {
	if f != nil {
		_ = f.send(&api.ImagePullNews{Node: node, Done: true}) // see err
	}
}

// end sends the last line, the result.
func (f *pullProgress) end(reply *api.ImagesReply) error {
	return f.send(&api.ImagePullNews{Reply: reply})
}

func (f *pullProgress) send(n *api.ImagePullNews) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	_ = f.ctl.SetWriteDeadline(time.Now().Add(respond.WriteTimeout)) // not every writer has deadlines
	if f.err = f.out.Encode(n); f.err == nil {
		f.err = f.ctl.Flush()
	}
	return f.err
}

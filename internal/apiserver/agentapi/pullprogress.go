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

// pullFollower tells a client how a pull comes along on the nodes, as lines of JSON. Its methods may be called
// concurrently, and of nil do nothing.
type pullFollower struct {
	mu  sync.Mutex
	out *json.Encoder
	ctl *http.ResponseController
	err error // the first of the client's connection: the request's context ends with it
}

// followPull returns one for a client that asks for lines, nil for others.
func followPull(w http.ResponseWriter, r *http.Request) *pullFollower {
	if !strings.Contains(r.Header.Get("Accept"), route.MediaLines) {
		return nil
	}
	w.Header().Set("Content-Type", route.MediaLines)
	w.Header().Set("Cache-Control", "no-store")
	return &pullFollower{out: json.NewEncoder(w), ctl: http.NewResponseController(w)}
}

// told returns what is called with each text about an image on a node, nil where nobody follows.
func (f *pullFollower) told(node, image string) func(string) {
	if f == nil {
		return nil
	}
	return func(text string) { _ = f.send(&api.ImagePullNews{Node: node, Image: image, Message: text}) } // see err
}

// done tells that a node has all images, or could not pull some.
func (f *pullFollower) done(node string) {
	if f != nil {
		_ = f.send(&api.ImagePullNews{Node: node, Done: true}) // see err
	}
}

// end sends the last line: what came of it.
func (f *pullFollower) end(reply *api.ImagesReply) error {
	return f.send(&api.ImagePullNews{Reply: reply})
}

func (f *pullFollower) send(n *api.ImagePullNews) error {
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

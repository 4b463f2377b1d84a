package control

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// StoreCopyAPI streams copies of the whole store.
type StoreCopyAPI struct {
	Reads   *snapshot.Reader
	Engine  store.Engine
	Streams *prometheus.GaugeVec // open streams, by kind
	Log     *slog.Logger
}

// readSnapshot streams a copy of the whole store. A header holds a revision that the copy contains at least. A trailer
// holds the checksum, so that a client notices a truncated copy.
func (a *StoreCopyAPI) readSnapshot(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.Settled(r.Context())
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	h.Set(api.SnapshotRevision, strconv.FormatUint(snap.Revision(), 10))
	h.Set("Trailer", api.SnapshotSum)
	gauge := a.Streams.WithLabelValues("snapshot")
	gauge.Inc()
	defer gauge.Dec()
	out := &snapshotStream{w: w, ctl: http.NewResponseController(w), sum: sha256.New()}
	if err := a.Engine.Snapshot(r.Context(), store.DefaultPrefix, out); err != nil {
		if !out.began {
			h.Del("Trailer")
			return err
		}
		if r.Context().Err() == nil {
			a.Log.Error("a snapshot was cut short", "error", err)
		}
		panic(http.ErrAbortHandler) // closes the connection, so that the client notices the truncation
	}
	h.Set(api.SnapshotSum, hex.EncodeToString(out.sum.Sum(nil)))
	return nil
}

// snapshotStream writes a stream of any length, as long as the reader keeps reading.
type snapshotStream struct {
	w     io.Writer
	ctl   *http.ResponseController
	sum   hash.Hash
	began bool
}

// Write writes a piece, within respond.WriteTimeout.
func (p *snapshotStream) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil // an empty write would begin the answer
	}
	p.began = true
	_ = p.ctl.SetWriteDeadline(time.Now().Add(respond.WriteTimeout)) // some writers have no deadlines
	n, err := p.w.Write(b)
	p.sum.Write(b[:n])
	return n, err
}

// Routes returns the operations of copies of the store.
func (a *StoreCopyAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/snapshot", Name: "readSnapshot",
			Summary: "A copy of the whole store, secrets' hashes included. The header Berth-Revision has " +
				"a revision that it contains at least, the trailer Berth-Sha256 the sum of its bytes.",
			Role:    cluster.RoleOperator,
			Audited: true, Stream: "application/octet-stream", Long: true, Serve: a.readSnapshot,
		},
	}
}

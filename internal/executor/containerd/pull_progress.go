package containerd

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/cluster"
)

// part is a blob of the image that counts as progress.
type part struct {
	ocispec.Descriptor
	layer bool
	have  int64
}

// progress describes the progress of the pull.
func (p *pull) progress(ctx context.Context) string {
	p.mu.Lock()
	state, failure, parts := p.state, p.failure, make([]*part, 0, len(p.parts))
	for d, b := range p.parts { // order-free: they are counted
		if _, fetched := p.blobs[d]; fetched { // layers that are here unpacked, of another image, are not requested
			parts = append(parts, b)
		}
	}
	p.mu.Unlock()
	switch {
	case state != "":
		return state
	case len(parts) == 0 && failure != "":
		return failure
	case len(parts) == 0:
		return cluster.MessagePulling + p.displayName
	}
	p.progressMu.Lock()
	defer p.progressMu.Unlock()
	store := p.images.client.ContentStore()
	var layers, whole int
	var have, all int64
	for _, b := range parts {
		b.have = max(b.have, receivedBytes(ctx, store, b.Descriptor, b.have))
		have, all = have+b.have, all+b.Size
		if b.layer {
			layers++
		}
		if b.layer && b.have >= b.Size {
			whole++
		}
	}
	if whole == layers && have >= all {
		return "unpacking " + p.displayName
	}
	text := fmt.Sprintf("%s%s: %d of %d layers, %s of %s MiB", cluster.MessagePulling, p.displayName, whole, layers,
		mebi(have), mebi(all))
	if n := p.rate.take(time.Now(), have); n > 0 {
		text += ", " + mebi(n) + " MiB/s"
	}
	return text
}

// rate measures the transfer rate.
type rate struct {
	at   time.Time // of the last measurement
	have int64
	rate int64 // bytes per second before it
}

// rateEvery is over how long a rate is measured at least.
const rateEvery = time.Second

// take returns the bytes per second, or 0 while they are unknown.
func (r *rate) take(now time.Time, have int64) int64 {
	switch since := now.Sub(r.at); {
	case r.at.IsZero() || have < r.have: // a layer started again
		r.at, r.have, r.rate = now, have, 0
	case since >= rateEvery:
		r.rate = int64(float64(have-r.have) / since.Seconds())
		r.at, r.have = now, have
	}
	return r.rate
}

// receivedBytes returns the received bytes of a blob; known is the previous result.
func receivedBytes(ctx context.Context, store content.Store, d ocispec.Descriptor, known int64) int64 {
	if known >= d.Size {
		return known
	}
	if status, err := store.Status(ctx, remotes.MakeRefKey(ctx, d)); err == nil {
		return status.Offset
	}
	if _, err := store.Info(ctx, d.Digest); err == nil {
		return d.Size
	}
	return 0
}

func mebi(n int64) string { return fmt.Sprintf("%.1f", float64(n)/float64(cluster.MiB)) }

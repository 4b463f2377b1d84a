package containerd

import (
	"context"
	"strconv"
	"time"

	metadata "github.com/containerd/containerd/v2/core/images"
)

// UsedAt has an image look as if it was last used then.
func (e *Executor) UsedAt(ctx context.Context, name string, at time.Time) error {
	img := metadata.Image{Name: name, Labels: map[string]string{labelUsed: strconv.FormatInt(at.Unix(), 10)}}
	_, err := e.client.ImageService().Update(e.in(ctx), img, "labels."+labelUsed)
	return err
}

// Creating returns how many containers are being created now.
func (e *Executor) Creating() int { return len(e.creating) }

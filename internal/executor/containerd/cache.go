package containerd

import (
	"sync"
	"time"
)

// Labels of containerd's record of an image, so that they last as long as the image does.
const (
	// labelUsed is when a container was last made from the image or removed, in seconds since 1970.
	labelUsed = "berth.used"
	// labelKeep says why the image is removed only on request: keepLoaded or keepPinned.
	labelKeep = "berth.keep"

	// sourceLabel begins the labels of a blob that name the registries that it came from.
	sourceLabel = "containerd.io/distribution.source."
)

// Values of labelKeep.
const (
	keepLoaded = "loaded"
	keepPinned = "pinned"
)

// usedEvery is the precision of an image's last use. Each update is a write of containerd.
const usedEvery = time.Minute

// cache holds the state of images beyond containerd's records. Safe for concurrent use.
type cache struct {
	mu   sync.Mutex
	held map[string]int // images by name and by digest that a container is about to be made from

	noting  sync.Mutex
	noted   map[string]time.Time // when the use of an image was last written, by name
	folders []string             // where containerd keeps images
}

// hold keeps images, by name or digest, until release is called.
func (c *cache) hold(keys ...string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = map[string]int{}
	}
	for _, k := range keys {
		c.held[k]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, k := range keys {
			if c.held[k]--; c.held[k] == 0 {
				delete(c.held, k)
			}
		}
	})
}

// due reports whether the use of an image is to be written now.
func (c *cache) due(name string, now time.Time) bool {
	c.noting.Lock()
	defer c.noting.Unlock()
	if now.Sub(c.noted[name]) < usedEvery {
		return false
	}
	if c.noted == nil || len(c.noted) > maxConfigs {
		c.noted = map[string]time.Time{}
	}
	c.noted[name] = now
	return true
}

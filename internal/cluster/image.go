package cluster

import (
	"slices"
	"strings"
)

// Bounds of images and volumes.
const (
	MaxImage      = 512 // bytes of a name
	MaxNodeImages = 200 // images of a node that are told of

	MaxNodeVolumes = 1000 // volumes of a node that keep tasks with them
)

// NormalImage returns the name of an image as registries know it, so that names that mean the same are the same:
// "redis" is "docker.io/library/redis:latest". What is no name of an image it returns as something that no image is
// called. Of a name with a tag and a digest the digest counts. Source: the rules of the distribution project's
// reference package for familiar names.
func NormalImage(name string) string {
	domain, rest, found := strings.Cut(name, "/")
	if !found || !strings.ContainsAny(domain, ".:") && domain != "localhost" && domain == strings.ToLower(domain) {
		domain, rest = "docker.io", name
	}
	if domain == "index.docker.io" {
		domain = "docker.io"
	}
	if domain == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	rest, digest, pinned := strings.Cut(rest, "@")
	tag := strings.LastIndexByte(rest, ':')
	tagged := tag > strings.LastIndexByte(rest, '/')
	switch {
	case pinned && tagged:
		rest = rest[:tag] + "@" + digest
	case pinned:
		rest += "@" + digest
	case !tagged:
		rest += ":latest"
	}
	return domain + "/" + rest
}

// Pinned returns the digest that the container's image has to have, "" if any that is called so will do.
func (c *Container) Pinned() string {
	if c.Pull == PullAlways || c.Pull == PullNever {
		return ""
	}
	return c.Digest
}

// Pinnable reports whether the container's image could be pinned and is not: it is named by a tag, and the registry is
// not to be asked anew.
func (c *Container) Pinnable() bool {
	return c.Image != "" && c.Digest == "" && !strings.Contains(c.Image, "@") && (c.Pull == "" || c.Pull == PullMissing)
}

// PinAs pins the images that are called as in another definition to the digests that they have there. It does not
// change what it shares with others.
func (d *TaskDefinition) PinAs(other *TaskDefinition) {
	d.pin(func(c *Container) string {
		for i := range other.Containers {
			if o := &other.Containers[i]; o.Name == c.Name && o.Image == c.Image {
				return o.Pinned()
			}
		}
		return ""
	})
}

// Pin pins the images that can be to the digests that are told, "" for none. It does not change what it shares with
// others.
func (d *TaskDefinition) Pin(digest func(*Container) string) { d.pin(digest) }

func (d *TaskDefinition) pin(digest func(*Container) string) {
	containers := slices.Clone(d.Containers)
	for i := range containers {
		if c := &containers[i]; c.Pinnable() {
			c.Digest = digest(c)
		}
	}
	d.Containers = containers
}

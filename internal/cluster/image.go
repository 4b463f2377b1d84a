package cluster

import (
	"slices"
	"strings"
)

// Bounds of images and volumes.
const (
	MaxImage      = 512 // bytes of a name
	MaxNodeImages = 200 // reported images of a node

	MaxNodeVolumes = 1000 // volumes of a node that keep tasks with them
)

// ImageSource is an archive with an image, or a folder with one.
type ImageSource struct {
	// Source is the address of an archive (tar), http or https, without a user and a password, an archive in the object
	// store that the node's agent uses: "s3://BUCKET/KEY", or a path of the node: "file:///srv/web.tar", or the folder
	// of an OCI image layout. Archives are those of docker save, or OCI image
	// layouts. A path needs the permission host-path, and must be below a path that the node's agent lends.
	Source string `json:"source"`
	// Checksum is the digest of the archive, or of the file index.json of a folder: "sha256:…" or "sha512:…", in
	// lower-case hexadecimal digits.
	Checksum string `json:"checksum"`
}

// LabelImageSources is the label that nodes have for the scheduler whose agents know the field image_source.
const LabelImageSources = "berth.image-sources"

// UsesImageSources reports whether an image of the definition comes from another source than a registry.
func (d *TaskDefinition) UsesImageSources() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool { return c.ImageSource.Source != "" })
}

// validateImageSource checks the source of the container's image.
func (c *Container) validateImageSource(k check) {
	if c.ImageSource == (ImageSource{}) {
		return
	}
	validateSource(k.at("source"), c.ImageSource.Source)
	validateChecksum(k.at("checksum"), c.ImageSource.Checksum)
	k.must(c.Image != "", "needs image, the name of the image in the archive")
	k.must(c.Pull == "" || c.Pull == PullMissing,
		"cannot be combined with pull %q, which is for registries: leave out pull", c.Pull)
	k.must(c.Digest == "", "cannot be combined with digest: its checksum decides which image runs")
	k.must(c.PullSecret == "", "cannot be combined with pull_secret, which is for registries")
}

// NormalImage returns the canonical name of an image, as registries know it, so that equal images have equal names:
// "redis" is "docker.io/library/redis:latest". For an invalid name it returns a text that no image has as its name. In
// a name with a tag and a digest the digest counts. Source: the rules of the distribution project's reference package
// for familiar names.
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

// Pinned returns the digest that the container's image must have, or "" if any image of that name suffices.
func (c *Container) Pinned() string {
	if c.Pull == PullAlways || c.Pull == PullNever {
		return ""
	}
	return c.Digest
}

// Pinnable reports whether the container's image has a tag but no digest yet, and is not pulled at each start.
func (c *Container) Pinnable() bool {
	return c.Image != "" && c.Digest == "" && c.ImageSource.Source == "" &&
		!strings.Contains(c.Image, "@") && (c.Pull == "" || c.Pull == PullMissing)
}

// PinAs pins images to the digests that the same names have in another definition. It copies what it changes.
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

// Pin pins the images that can be pinned to the digests that digest returns, "" for none. It copies what it changes.
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

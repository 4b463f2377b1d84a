package cluster

import "strings"

// Bounds of images and volumes.
const (
	MaxImage      = 512 // bytes of a name
	MaxNodeImages = 200 // images of a node that are told of

	MaxNodeVolumes = 1000 // volumes of a node that keep tasks with them
)

// NormalImage returns the name of an image as registries know it, so that names that mean the same are the same: "redis" is
// "docker.io/library/redis:latest". What is no name of an image it returns as something that no image is called. Of a name with a tag and a digest the
// digest counts. Source: the rules of the distribution project's reference package for familiar names.
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

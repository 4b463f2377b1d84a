package cluster

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Artifact is a file or an archive that the agent fetches before the container is made. The container sees nothing of
// it before its checksum was compared. Nodes cache artifacts by checksum, for all tasks that use them.
type Artifact struct {
	// Source is the address, http or https, without a user and a password, an object of the object store that the
	// node's agent uses: "s3://BUCKET/KEY", or a file of the node: "file:///srv/tool". A file needs the permission
	// host-path, and must be below a path that the node's agent lends.
	Source string `json:"source"`
	// Checksum is the digest of the source: "sha256:…" or "sha512:…", in lower-case hexadecimal digits.
	Checksum string `json:"checksum"`
	// Path is where the container finds the artifact. An absolute path is mounted read-only from the cache that all
	// tasks of the node share. A relative path is below the working folder (BERTH_DIR) and holds a private copy; it
	// excludes image and dir.
	Path string `json:"path"`
	// Mode is the octal mode of a file that is not unpacked. Default "0644".
	Mode string `json:"mode,omitempty"`
	// Unpack unpacks an archive (tar, also with gzip or zstd, and zip) into the folder Path.
	Unpack bool `json:"unpack,omitempty"`
}

// Bounds of artifacts.
const (
	MaxArtifacts       = 32 // a container
	MaxArtifactAddress = 2048
)

// LabelArtifacts is the label that nodes have for the scheduler whose agents fetch artifacts.
const LabelArtifacts = "berth.artifacts"

// Shared reports whether the artifact is mounted from the cache that all tasks of the node share, instead of copied.
func (a *Artifact) Shared() bool { return strings.HasPrefix(a.Path, "/") }

// fileScheme begins the source of a file on the node.
const fileScheme = "file://"

// HostFile returns the path on the node of a source that begins with "file://", or "" for an address.
func HostFile(source string) string {
	path, ok := strings.CutPrefix(source, fileScheme)
	if !ok {
		return ""
	}
	return path
}

// objectScheme begins the source of an object.
const objectScheme = "s3://"

// LabelObjectStore is the label that nodes have for the scheduler whose agents have an object store.
const LabelObjectStore = "berth.object-store"

// Object returns the bucket and the key of a source that begins with "s3://"; ok is false for another source. The key
// is taken as it is written, without an escape.
func Object(source string) (bucket, key string, ok bool) {
	rest, ok := strings.CutPrefix(source, objectScheme)
	if !ok {
		return "", "", false
	}
	bucket, key, _ = strings.Cut(rest, "/")
	return bucket, key, true
}

// UsesObjectStore reports whether an image or an artifact of the definition is an object.
func (d *TaskDefinition) UsesObjectStore() bool {
	isObject := func(source string) bool { return strings.HasPrefix(source, objectScheme) }
	return slices.ContainsFunc(d.Containers, func(c Container) bool {
		return isObject(c.ImageSource.Source) ||
			slices.ContainsFunc(c.Artifacts, func(a Artifact) bool { return isObject(a.Source) })
	})
}

// hostFiles returns the paths of the node that the container's image and artifacts come from.
func (c *Container) hostFiles() (paths []string) {
	if path := HostFile(c.ImageSource.Source); path != "" {
		paths = append(paths, path)
	}
	for i := range c.Artifacts {
		if path := HostFile(c.Artifacts[i].Source); path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// UsesArtifacts reports whether a container of the definition wants artifacts: then its node's agent must be one that
// fetches them.
func (d *TaskDefinition) UsesArtifacts() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool { return len(c.Artifacts) > 0 })
}

func (c *Container) artifactDefaults() {
	for i := range c.Artifacts {
		if a := &c.Artifacts[i]; !a.Unpack {
			setDefault(&a.Mode, DefaultFileMode)
		}
	}
}

// validateArtifacts checks the artifacts of the container. validatePaths checks that absolute paths are unique.
func (c *Container) validateArtifacts(k check) {
	k.at("artifacts").must(len(c.Artifacts) <= MaxArtifacts, "holds %d artifacts, at most %d are allowed",
		len(c.Artifacts), MaxArtifacts)
	taken := map[string]int{}
	for i := range c.Artifacts {
		a, at := &c.Artifacts[i], k.index("artifacts", i)
		validateSource(at.at("source"), a.Source)
		validateChecksum(at.at("checksum"), a.Checksum)
		if a.Unpack {
			at.at("mode").must(a.Mode == "",
				"is not for archives with unpack: their files have the modes of the archive")
		} else {
			mode, err := strconv.ParseUint(a.Mode, 8, 32)
			at.at("mode").must(err == nil && len(a.Mode) <= 4 && mode <= 0o777,
				"%q is not a file mode: want octal digits, such as \"0755\"", clip(a.Mode))
		}
		if a.Shared() {
			continue
		}
		at = at.at("path")
		switch {
		case a.Path == "" || a.Path != "." && !cleanPath("/"+a.Path) || a.Path == "." && !a.Unpack:
			at.fault("%q is not a path: want \"bin/tool\", below the folder that the program starts in, or "+
				"\"/opt/tool\", shown read-only; without \".\", \"..\" and double slashes", clip(a.Path))
			continue
		case c.Image != "":
			at.fault("%q is below the folder that a program without an image starts in: with an image, begin it with /",
				clip(a.Path))
		case c.Dir != "":
			at.fault("%q is below the folder that the program starts in unless dir names another: begin it "+
				"with /, or leave out dir", clip(a.Path))
		}
		for other, n := range taken { // order-free: any conflict suffices
			if within(other, a.Path) || within(a.Path, other) {
				at.fault("%q overlaps with the path of artifacts[%d]: one would hide the other",
					clip(a.Path), n)
				break
			}
		}
		taken[a.Path] = i
	}
}

// validateChecksum checks the checksum of a source.
func validateChecksum(k check, checksum string) {
	k.must(checksum != "", "is missing: want \"sha256:\" or \"sha512:\" and the digits that `sha256sum FILE` prints")
	k.must(checksum == "" || validDigest(checksum),
		"%q is not a checksum: want \"sha256:\" and 64, or \"sha512:\" and 128 hexadecimal digits in lower case",
		clip(checksum))
}

// validateSource checks the address, or the path on the node, of an artifact or an image.
func validateSource(k check, source string) {
	k.must(len(source) <= MaxArtifactAddress, "is %d bytes long, at most %d are allowed", len(source),
		MaxArtifactAddress)
	u, err := url.Parse(source)
	switch {
	case source == "":
		k.fault("is missing: want an address such as \"https://files.example/tool.tar.gz\"")
	case strings.HasPrefix(source, "file:"):
		path := HostFile(source)
		k.must(cleanPath(path) && path != "/", "%q is not a file of the node: want \"file:///srv/tool\", with an "+
			"absolute path without \".\", \"..\" and double slashes", clip(source))
	case strings.HasPrefix(source, "s3:"):
		validateObject(k, source)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		k.fault("%q is not an address that can be fetched: want one that begins with https://, http://, s3:// "+
			"or file:///",
			clip(ShownSource(source)))
	case u.User != nil:
		k.fault("holds a user or a password, which every reader of the manifest would see: leave them out")
	}
}

// maxObjectKey limits the key of an object, in bytes. Object stores have the same limit.
const maxObjectKey = 1024

// validateObject checks the source of an object.
func validateObject(k check, source string) {
	bucket, key, _ := Object(source)
	if strings.Contains(bucket, "@") { // perhaps a password
		source = objectScheme + "…"
	}
	k.must(validBucket(bucket), "%q has no valid bucket: want \"s3://BUCKET/KEY\", with 3 to 63 of a-z, 0-9, \"-\" "+
		"and \".\" for BUCKET, a letter or a digit first and last", clip(source))
	printable := !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError })
	k.must(cleanPath("/"+key) && key != "" && len(key) <= maxObjectKey && printable, "%q has no valid key: want "+
		"\"s3://BUCKET/KEY\", with at most %d bytes for KEY, without \".\", \"..\", double slashes and control "+
		"characters", clip(source), maxObjectKey)
}

func validBucket(name string) bool {
	isEnd := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	if len(name) < 3 || len(name) > 63 || !isEnd(name[0]) || !isEnd(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isEnd(c) && c != '-' && c != '.' {
			return false
		}
	}
	return !strings.Contains(name, "..")
}

// ShownSource returns an address as people may see it: without what may be a secret, a user and a query.
func ShownSource(source string) string {
	if HostFile(source) != "" || strings.HasPrefix(source, objectScheme) {
		return source
	}
	u, err := url.Parse(source)
	if err != nil {
		source, _, _ = strings.Cut(source, "?")
		return source
	}
	u.User, u.Fragment = nil, ""
	if u.RawQuery != "" {
		u.RawQuery = ""
		return u.String() + "?…"
	}
	return u.String()
}

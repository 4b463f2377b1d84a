package containerd_test

import (
	"strings"
	"testing"

	metadata "github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/internal/executor/containerd"
)

// An archive may hold one image under any name, several with names, or one for several kinds of machines.
func TestImageOfAnArchive(t *testing.T) {
	t.Parallel()
	entry := func(name, content, machine string) ocispec.Descriptor {
		d := ocispec.Descriptor{Digest: digest.FromString(content)}
		if name != "" {
			d.Annotations = map[string]string{metadata.AnnotationImageName: name}
		}
		if machine != "" {
			d.Platform = &ocispec.Platform{OS: "linux", Architecture: machine}
		}
		return d
	}
	whole := digest.FromString("the list")
	attestation := entry("", "attestation", "unknown")
	attestation.Annotations = map[string]string{"vnd.docker.reference.type": "attestation-manifest"}
	for name, tc := range map[string]struct {
		entries []ocispec.Descriptor
		want    digest.Digest // none: the fault
		fault   string
	}{
		"one without a name":   {[]ocispec.Descriptor{entry("", "a", "")}, digest.FromString("a"), ""},
		"one of another name":  {[]ocispec.Descriptor{entry("other:2", "a", "")}, digest.FromString("a"), ""},
		"one and another kind": {[]ocispec.Descriptor{attestation, entry("", "a", "")}, digest.FromString("a"), ""},
		"one under two names": {
			[]ocispec.Descriptor{entry("x", "a", ""), entry("y", "a", "")},
			digest.FromString("a"), "",
		},
		"the named of several": {
			[]ocispec.Descriptor{entry("x", "a", ""), entry("web:1", "b", "")},
			digest.FromString("b"), "",
		},
		"none of several": {
			[]ocispec.Descriptor{entry("x", "a", ""), entry("y", "b", "")},
			"",
			"it holds x, y, and none of them is docker.io/library/web:1",
		},
		"several machines": {[]ocispec.Descriptor{entry("", "a", "amd64"), entry("", "b", "arm64")}, whole, ""},
		"nothing":          {nil, "", "it holds no image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := containerd.ChooseImage(ocispec.Descriptor{Digest: whole}, tc.entries, "web:1")
			if tc.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fault) {
					t.Errorf("got %v, %v, want the error %q", got.Digest, err, tc.fault)
				}
			} else if err != nil || got.Digest != tc.want {
				t.Errorf("got %v, %v, want %v", got.Digest, err, tc.want)
			}
		})
	}
}

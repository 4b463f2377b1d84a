package cluster_test

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// An image from another source than a registry needs a name, a source and a checksum, and excludes what is for
// registries.
func TestImageSource(t *testing.T) {
	t.Parallel()
	sum := "sha256:" + strings.Repeat("0a", 32)
	for name, tc := range map[string]struct {
		change func(*cluster.Container)
		want   string
	}{
		"an archive": {func(*cluster.Container) {}, ""},
		"an address": {func(c *cluster.Container) { c.ImageSource.Source = "https://files.example/web.tar" }, ""},
		"no source":  {func(c *cluster.Container) { c.ImageSource.Source = "" }, "image_source.source: is missing"},
		"no checksum": {
			func(c *cluster.Container) { c.ImageSource.Checksum = "" },
			"image_source.checksum: is missing",
		},
		"no digits": {
			func(c *cluster.Container) { c.ImageSource.Checksum = "sha256:12" },
			`image_source.checksum: "sha256:12" is not a checksum`,
		},
		"no name": {func(c *cluster.Container) {
			c.Image, c.Pull, c.Command = "", "", []string{"web"}
		}, "image_source: needs image"},
		"a digest": {func(c *cluster.Container) { c.Digest = sum }, "image_source: cannot be combined with digest"},
		"a policy": {
			func(c *cluster.Container) { c.Pull = cluster.PullAlways },
			`image_source: cannot be combined with pull "always"`,
		},
		"a login": {
			func(c *cluster.Container) { c.PullSecret = "registry" },
			"image_source: cannot be combined with pull_secret",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := plainDefinition()
			d.Containers[0].ImageSource = cluster.ImageSource{Source: "file:///srv/web.tar", Checksum: sum}
			tc.change(&d.Containers[0])
			got := ""
			if err := d.Validate(); err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if d.Containers[0].Pinnable() && d.Containers[0].ImageSource.Source != "" {
				t.Error("a registry would be asked for its digest")
			}
		})
	}
}

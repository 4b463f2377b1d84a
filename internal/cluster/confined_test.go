package cluster_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

func confined(change func(*cluster.Container)) *cluster.TaskDefinition {
	c := cluster.Container{Name: "main", Command: []string{"run"}, Artifacts: []cluster.Artifact{{
		Source: "https://files.example/tool", Checksum: "sha256:" + strings.Repeat("0a", 32), Path: "bin/tool",
	}}}
	change(&c)
	d := &cluster.TaskDefinition{Name: "web", Version: 1, Containers: []cluster.Container{c}}
	d.SetDefaults()
	return d
}

// Each fault of an artifact, an isolation or a limit of processes names its field; a correct definition has no fault.
func TestConfinedFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*cluster.Container)
		want   string // none: it is right
	}{
		"right": {func(*cluster.Container) {}, ""},
		"isolated": {func(c *cluster.Container) {
			c.Isolation, c.Resources.Pids = cluster.IsolationRequired, 50
		}, ""},
		"unpacked here": {func(c *cluster.Container) { c.Artifacts[0].Unpack, c.Artifacts[0].Path = true, "." }, ""},
		"in an image":   {func(c *cluster.Container) { c.Image, c.Artifacts[0].Path = "web:1", "/opt/tool" }, ""},
		"sha512": {func(c *cluster.Container) {
			c.Artifacts[0].Checksum = "sha512:" + strings.Repeat("0a", 64)
		}, ""},
		"no source": {func(c *cluster.Container) {
			c.Artifacts[0].Source = ""
		}, "containers[0].artifacts[0].source: is missing"},
		"a file": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "file:///srv/tool"
		}, ""},
		"a file of another machine": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "file://host/tool"
		}, "artifacts[0].source: \"file://host/tool\" is not a file of the node"},
		"a file in no short form": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "file:///srv/../etc/shadow"
		}, "artifacts[0].source: \"file:///srv/../etc/shadow\" is not a file of the node"},
		"an object": {func(c *cluster.Container) { c.Artifacts[0].Source = "s3://my.bucket-1/a b/ü?x#y%2F" }, ""},
		"an object without a bucket": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "s3:///tool"
		}, "artifacts[0].source: \"s3:///tool\" has no valid bucket"},
		"an object without a key": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "s3://bucket"
		}, "artifacts[0].source: \"s3://bucket\" has no valid key"},
		"an object of a user": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "s3://me:hush@bucket/tool"
		}, "has no valid bucket"},
		"an object out of its bucket": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "s3://bucket/../other/tool"
		}, "has no valid key"},
		"another scheme": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "ftp://files.example/tool"
		}, "artifacts[0].source: \"ftp://files.example/tool\" is not an address"},
		"a login": {func(c *cluster.Container) {
			c.Artifacts[0].Source = "https://me:hush@files.example/x"
		}, "artifacts[0].source: holds a user or a password"},
		"no checksum": {func(c *cluster.Container) {
			c.Artifacts[0].Checksum = ""
		}, "artifacts[0].checksum: is missing"},
		"md5": {func(c *cluster.Container) {
			c.Artifacts[0].Checksum = "md5:00"
		}, "artifacts[0].checksum: \"md5:00\" is not a checksum"},
		"a path out": {func(c *cluster.Container) {
			c.Artifacts[0].Path = "../x"
		}, "artifacts[0].path: \"../x\" is not a path"},
		"no path": {func(c *cluster.Container) {
			c.Artifacts[0].Path = ""
		}, "artifacts[0].path: \"\" is not a path"},
		"/proc": {func(c *cluster.Container) {
			c.Artifacts[0].Path = "/proc/x"
		}, "artifacts[0].path: \"/proc/x\" cannot be mounted over"},
		"a mode": {func(c *cluster.Container) {
			c.Artifacts[0].Mode = "4755"
		}, "artifacts[0].mode: \"4755\" is not a file mode"},
		"a tree's mode": {func(c *cluster.Container) {
			c.Artifacts[0].Mode, c.Artifacts[0].Unpack = "0755", true
		}, "artifacts[0].mode: is not for archives with unpack"},
		"below an image": {func(c *cluster.Container) {
			c.Image = "web:1"
		}, "artifacts[0].path: \"bin/tool\" is below the folder that a program without an image"},
		"below dir": {func(c *cluster.Container) {
			c.Dir = "/srv"
		}, "artifacts[0].path: \"bin/tool\" is below the folder that the program starts in unless dir"},
		"twice": {func(c *cluster.Container) {
			c.Artifacts = append(c.Artifacts, c.Artifacts[0])
		}, "artifacts[1].path: \"bin/tool\" overlaps with the path of artifacts[0]"},
		"a kind": {func(c *cluster.Container) { c.Isolation = "some" }, "containers[0].isolation: "},
		"few processes": {func(c *cluster.Container) {
			c.Resources.Pids = 1
		}, "containers[0].resources.pids: is 1, want from 8"},
		"few files": {func(c *cluster.Container) {
			c.Resources.OpenFiles = 3
		}, "containers[0].resources.open_files: is 3, want from 32"},
	} {
		err := confined(tc.change).Validate()
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: it contains the password: %v", name, err)
		}
	}
}

// Builds without isolation neither read such definitions nor get them: they would run the tasks without it.
func TestConfinedNeeds(t *testing.T) {
	t.Parallel()
	plain := func(by string) cluster.Facts {
		return cluster.Facts{Artifacts: true, Executors: []cluster.ExecutorFact{{Name: "process", Isolation: by}}}
	}
	images := cluster.Facts{Executors: []cluster.ExecutorFact{{Name: "containerd"}, {Name: "process"}}}
	both := cluster.Facts{
		Artifacts: true,
		Executors: []cluster.ExecutorFact{{Name: "containerd"}, {Name: "process", Isolation: "namespaces"}},
	}
	fetching := confined(func(*cluster.Container) {})
	apart := confined(func(c *cluster.Container) { c.Artifacts, c.Isolation = nil, cluster.IsolationRequired })
	apartImage := confined(func(c *cluster.Container) {
		c.Artifacts, c.Isolation, c.Image = nil, cluster.IsolationRequired, "web:1"
	})
	free := confined(func(c *cluster.Container) { c.Artifacts, c.Isolation = nil, cluster.IsolationNone })
	got := map[string][]bool{}
	for name, d := range map[string]*cluster.TaskDefinition{
		"fetching": fetching, "apart": apart, "image": apartImage,
		"free": free,
	} {
		for _, f := range []cluster.Facts{{}, plain(""), plain("namespaces"), images, both} {
			labels, met := f.CapabilityLabels(), true
			for _, c := range d.Needs() {
				value := labels[strings.TrimPrefix(c.Attribute, "label.")]
				met = met && (c.Op == cluster.OpEqual && value == c.Value || c.Op == cluster.OpIn &&
					strings.Contains(" "+strings.Join(c.Values, " ")+" ", " "+value+" ") && value != "")
			}
			got[name] = append(got[name], met)
		}
	}
	want := map[string][]bool{ // none, without isolation, with it, images and plain ones without it, both
		"fetching": {false, true, true, false, true},
		"apart":    {false, false, true, false, true},
		"image":    {false, false, true, true, true},
		"free":     {true, true, true, true, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("which nodes can (-want +got):\n%s", diff)
	}
}

package cluster

import "testing"

func TestNormalImage(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, want := range map[string]string{
		"redis":                            "docker.io/library/redis:latest",
		"redis:7":                          "docker.io/library/redis:7",
		"docker.io/redis":                  "docker.io/library/redis:latest",
		"index.docker.io/library/redis:7":  "docker.io/library/redis:7",
		"group/app:1":                      "docker.io/group/app:1",
		"localhost/app":                    "localhost/app:latest",
		"localhost:5000/app":               "localhost:5000/app:latest",
		"registry.example/a/b/c:v1":        "registry.example/a/b/c:v1",
		"app@" + digest:                    "docker.io/library/app@" + digest,
		"registry.example/app:1@" + digest: "registry.example/app@" + digest,
		"registry.example:443/app:1":       "registry.example:443/app:1",
		"":                                 "docker.io/library/:latest",
	} {
		got := NormalImage(name)
		if got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
		if name != "" && NormalImage(got) != got {
			t.Errorf("%q is not normal: it becomes %q", got, NormalImage(got))
		}
	}
}

package node

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/privatefile"
)

// registryLogin is the login for one registry.
type registryLogin struct {
	user, secret string
}

// readRegistries reads a file with the logins of registries, in the form that container tools keep them in:
//
//	{"auths": {"registry.example": {"auth": "<base64 of user:secret>"},
//	           "other.example:5000": {"username": "u", "password": "p"}}}
//
// A file that other users may read is refused. No error shows the content.
func readRegistries(path string) (func(registry string) (user, secret string), error) {
	b, err := privatefile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read the registry logins: %w", err)
	}
	logins, err := parseRegistries(b)
	if err != nil {
		return nil, fmt.Errorf("read the registry logins: %s: %w", path, err)
	}
	return func(registry string) (string, string) {
		l := logins[registry]
		return l.user, l.secret
	}, nil
}

// parseRegistries parses the logins, by host and port of the registry.
func parseRegistries(b []byte) (map[string]registryLogin, error) {
	var file struct {
		Auths map[string]struct {
			Auth     string `json:"auth"`
			Username string `json:"username"`
			Password string `json:"password"`
		} `json:"auths"`
	}
	if json.Unmarshal(b, &file) != nil || file.Auths == nil {
		// The decoder's message could quote a secret.
		return nil, errors.New(`it is not JSON of the form {"auths": {"registry.example": {"auth": "…"}}}`)
	}
	logins := make(map[string]registryLogin, len(file.Auths))
	for registry, a := range file.Auths {
		host := strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
		host, _, _ = strings.Cut(host, "/")
		l := registryLogin{a.Username, a.Password}
		if a.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(a.Auth)
			user, secret, ok := strings.Cut(string(text), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("the auth of %q is not base64 of user:secret", registry)
			}
			l = registryLogin{user, strings.TrimRight(secret, "\x00")}
		}
		logins[host] = l
	}
	return logins, nil
}

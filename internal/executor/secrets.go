package executor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EncodeEnv returns variables in the form of a Spec's SecretEnv: each "NAME=value" with a zero byte behind it.
func EncodeEnv(env []string) []byte {
	var b bytes.Buffer
	for _, kv := range env {
		b.WriteString(kv)
		b.WriteByte(0)
	}
	return b.Bytes()
}

// ReadEnv reads a file of the form of a Spec's SecretEnv. No name is none.
func ReadEnv(name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the variables of secrets: %w", err)
	}
	if len(b) == 0 {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

// WithEnv returns env with the values of over. Each name occurs once, at its first position.
func WithEnv(env, over []string) []string {
	env = slices.Clone(env)
	for _, kv := range over {
		name, _, _ := strings.Cut(kv, "=")
		i := slices.IndexFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		if i < 0 {
			env = append(env, kv)
		} else {
			env[i] = kv
		}
	}
	return env
}

// OwnSecrets makes the files of secrets, and the file of their variables unless it is empty, those of a user, for
// drivers.
func OwnSecrets(folders []Mount, env string, uid, gid int) error {
	var names []string
	for _, f := range folders {
		entries, err := os.ReadDir(f.Source)
		if err != nil {
			return fmt.Errorf("secrets: %w", err)
		}
		for _, e := range entries {
			names = append(names, filepath.Join(f.Source, e.Name()))
		}
	}
	if env != "" {
		names = append(names, env)
	}
	for _, name := range names {
		if err := os.Lchown(name, uid, gid); err != nil {
			return fmt.Errorf("secrets: %w", err)
		}
	}
	return nil
}

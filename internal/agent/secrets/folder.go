package secrets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/agent/files"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// The agent requests secrets when it makes a container, writes them to a folder in memory, and keeps them nowhere else:
// neither in its state nor in its own memory. The folder of an attempt is <root>/<uuid>/<container>/ with the entries
//
//	0, 1, …   one folder for each folder of secret files in the container, with these files
//	env       the variables, in the form of executor.EncodeEnv
//	stamps    the stamps of these values, written last: without it the folder does not count
//	former/   earlier values, newest last, which the programs may still print: for masking alone, by the agent
//	          and by the writer of the log
//
// The folder stays for restarts of the container in place, which then need no server. It is removed with the attempt.

const (
	secretsEnv    = "env"
	secretsStamps = "stamps"
	// maxFormerFiles and maxFormerBytes limit the former values in memory of a container; the newest ones stay.
	maxFormerFiles = 256
	maxFormerBytes = 8 * int64(cluster.MiB)
)

// secretFolder is the folder in memory of the secrets of one container.
type secretFolder struct {
	dir       string
	container *cluster.Container
}

// placed returns the stamps of the stored values, nil if the values are incomplete.
func (b secretFolder) placed() map[string]string {
	var stamps map[string]string
	text, err := os.ReadFile(filepath.Join(b.dir, secretsStamps))
	if err != nil || json.Unmarshal(text, &stamps) != nil {
		return nil
	}
	return stamps
}

// mounts returns the folders with files, as the container sees them.
func (b secretFolder) mounts() (list []executor.Mount) {
	for i, folder := range b.container.SecretFolders() {
		list = append(list, executor.Mount{Source: filepath.Join(b.dir, strconv.Itoa(i)), Path: folder, ReadOnly: true})
	}
	return list
}

// env returns the file of variables, "" for none.
func (b secretFolder) env() string {
	if slices.ContainsFunc(b.container.Secrets, func(u cluster.SecretUse) bool { return u.Env != "" }) {
		return filepath.Join(b.dir, secretsEnv)
	}
	return ""
}

// write writes the files that differ, each atomically; a file keeps its owner. It writes nothing if a value is missing.
func (b secretFolder) write(reply transport.SecretsReply) error {
	var missing []string
	for _, u := range b.container.Secrets {
		if _, ok := reply.Secrets[u.Secret]; !ok {
			missing = reply.Missing
		}
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	folders := b.container.SecretFolders()
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	var variables []string
	for _, u := range b.container.Secrets {
		value := reply.Secrets[u.Secret].Value
		if u.Env != "" {
			if strings.ContainsRune(string(value), 0) || len(u.Env)+1+len(value) > cluster.MaxArg {
				return fmt.Errorf("the secret %s cannot be the variable %s: it has a zero byte, or more "+
					"than %d bytes; mount it as a file", u.Secret, u.Env, cluster.MaxArg)
			}
			variables = append(variables, u.Env+"="+string(value))
			continue
		}
		mode, err := strconv.ParseUint(u.Mode, 8, 12)
		if err != nil {
			return fmt.Errorf("secret %s: %q is not a file mode: %w", u.Secret, u.Mode, err)
		}
		folder := filepath.Join(b.dir, strconv.Itoa(slices.Index(folders, filepath.Dir(u.File))))
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // the parent folder is private; the container's user enters this one
			return fmt.Errorf("write secrets: %w", err)
		}
		if err := b.replace(filepath.Join(folder, filepath.Base(u.File)), value, os.FileMode(mode)); err != nil {
			return err
		}
	}
	if b.env() == "" {
		return nil
	}
	return b.replace(b.env(), executor.EncodeEnv(variables), 0o400)
}

// stamp records which values the container has.
func (b secretFolder) stamp(reply transport.SecretsReply) error {
	stamps := map[string]string{}
	for _, u := range b.container.Secrets {
		stamps[u.Secret] = reply.Secrets[u.Secret].Stamp
	}
	text, err := json.Marshal(stamps)
	if err != nil {
		return err
	}
	return b.replace(filepath.Join(b.dir, secretsStamps), text, 0o600)
}

// replace replaces a file.
func (b secretFolder) replace(name string, content []byte, mode os.FileMode) error {
	if err := b.keepFormer(name, content); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	if err := files.Replace(filepath.Join(b.dir, "next"), name, content, mode); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	return nil
}

// keepFormer keeps the replaced value of a file, and of all former values the newest.
func (b secretFolder) keepFormer(name string, next []byte) error {
	was, err := os.ReadFile(name)
	if os.IsNotExist(err) || err == nil && bytes.Equal(was, next) || filepath.Base(name) == secretsStamps &&
		filepath.Dir(name) == b.dir {
		return nil
	}
	dir := filepath.Join(b.dir, executor.FormerFolder)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return err
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	number := 1
	if len(all) > 0 {
		newest := all[len(all)-1].Name()
		if b, err := os.ReadFile(filepath.Join(dir, newest)); err == nil && bytes.Equal(b, was) {
			return nil // kept before a crash, and then not replaced
		}
		last, _ := strconv.Atoi(newest) // only this function writes here
		number = last + 1
	}
	// Numbers have a fixed length, so that the names sort in the order of the replacements.
	if err := os.Link(name, filepath.Join(dir, fmt.Sprintf("%020d", number))); err != nil {
		return err
	}
	left := maxFormerBytes - int64(len(was))
	for i, e := range slices.Backward(all) {
		if info, err := e.Info(); err == nil {
			left -= info.Size()
		}
		if i < len(all)+1-maxFormerFiles || left < 0 {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

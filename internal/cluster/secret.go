package cluster

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// SecretType is the purpose of a secret.
type SecretType string

// Types of secrets.
const (
	SecretValue    SecretType = "value"    // bytes that containers are handed
	SecretRegistry SecretType = "registry" // a user and a password for the images of a registry; agents alone use it
)

// Values returns every SecretType, in the order of the constants.
func (SecretType) Values() []SecretType {
	return []SecretType{SecretValue, SecretRegistry}
}

// Bounds of secrets.
const (
	MaxSecret     = 256 * KiB // bytes of one value
	MaxSecretUses = 64        // secrets of one container
)

// Secret is a value that only the agents of nodes that run its tasks get to see: the record secret/<cluster>/<name>.
// Only the newest value is kept. Writer: the user. A rotation of the servers' key seals the value again and changes
// nothing else.
type Secret struct {
	Cluster string     `json:"cluster"`
	Name    string     `json:"name"`
	Type    SecretType `json:"type"`
	// Registry is the host (with its port, if any) that a secret of type registry logs in to.
	Registry string `json:"registry,omitempty"`
	// Version counts the values that a secret of the name had since it was made, from 1.
	Version uint64 `json:"version"`
	// Stamp identifies the value without revealing it. It differs for each value, even if the secret was deleted and
	// made again.
	Stamp string `json:"stamp"`
	// Size is the size of the value in bytes.
	Size int `json:"size"`
	// Key is the id of the SecretKey that the value is sealed with, and Sealed the result, bound to the record's key.
	Key     string    `json:"key"`
	Sealed  []byte    `json:"sealed"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// SecretKey is a key that values are sealed with, itself wrapped by the servers' master key: the record secretkey/<id>.
// The one with the highest number is used. Writer: the user, by setting the first secret and by rotating the key.
type SecretKey struct {
	// ID is the number in its text form.
	ID     string `json:"id"`
	Number uint64 `json:"number"`
	// Master names the master key, which is in a file on every server and never in the store.
	Master  string    `json:"master"`
	Wrapped []byte    `json:"wrapped"`
	Created time.Time `json:"created"`
	// Retired is when a rotation replaced the key, zero for the current key. The record is deleted once no value is
	// sealed with it.
	Retired time.Time `json:"retired,omitzero"`
}

// MasterKey describes a key that wraps data keys: the record masterkey/<id>. The key itself is in a file on every
// server and never in the store. Such records exist once the first key was replaced. Writer: until Used, the server
// that receives the request to replace or drop a key; then the leader; for Dropped again the server with the request.
type MasterKey struct {
	// ID is derived from the key and does not reveal it. Data keys name it.
	ID string `json:"id"`
	// Number grows with each key: the highest is the newest.
	Number  uint64    `json:"number"`
	Created time.Time `json:"created"`
	// Used is since when data keys are wrapped with it; zero while it is handed to the servers.
	Used time.Time `json:"used,omitzero"`
	// Retired is when the store held nothing more under the key. The key is kept for earlier snapshots.
	Retired time.Time `json:"retired,omitzero"`
	// Dropped is when the user dropped it: each server removes it from its file. The record stays, because servers that
	// are down read it later.
	Dropped time.Time `json:"dropped,omitzero"`
}

// SecretUse hands a secret of the task's cluster to a container, in a file or a variable.
type SecretUse struct {
	// Secret is the name of a secret of the cluster, as `berth secret set` wrote it.
	Secret string `json:"secret"`
	// File is the absolute path of a file in memory. Such files hide the rest of their folder.
	File string `json:"file,omitempty"`
	// Mode is the octal mode of the file, which is the container's user's. Default "0400".
	Mode string `json:"mode,omitempty"`
	// Env is the name of a variable, instead of a file. The value must hold no zero byte.
	Env string `json:"env,omitempty"`
	// OnChange is the reaction to a new value of the secret. Default restart.
	OnChange SecretChange `json:"on_change,omitempty"`
	// Signal is the name of the signal that the program gets, with on_change signal. Default "HUP".
	Signal string `json:"signal,omitempty"`
}

// SecretChange is a running task's reaction to a new value of a secret. In every case files are replaced in place, each
// atomically, and containers that start from then on get the new value.
type SecretChange string

// Ways to take in another value.
const (
	// SecretRestart replaces the tasks of services as a restart does, by their update policy. Tasks of jobs run on.
	SecretRestart SecretChange = "restart"
	// SecretSignal sends the container a signal once its file was replaced.
	SecretSignal SecretChange = "signal"
	// SecretNoop does nothing: the program watches the file itself.
	SecretNoop SecretChange = "noop"
)

// Values returns every SecretChange, in the order of the constants.
func (SecretChange) Values() []SecretChange {
	return []SecretChange{SecretRestart, SecretSignal, SecretNoop}
}

// LabelSecrets is the label that nodes have for the scheduler whose agents hand out secrets.
const LabelSecrets = "berth.secrets"

// Defaults of the uses of secrets.
const (
	DefaultSecretMode   = "0400"
	DefaultSecretSignal = "HUP"
)

// secretSignals are the signals that a change may send, those by which programs receive notifications.
var secretSignals = [...]string{"HUP", "INT", "USR1", "USR2", "WINCH", "CONT"}

// Secrets returns the names of the secrets that the definition's containers are handed or are pulled with, ordered,
// each once.
func (d *TaskDefinition) Secrets() (names []string) {
	for i := range d.Containers {
		c := &d.Containers[i]
		for j := range c.Secrets {
			names = append(names, c.Secrets[j].Secret)
		}
		if c.PullSecret != "" {
			names = append(names, c.PullSecret)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// UsesSecrets reports whether a container of the definition is handed a secret: then its node must be one that keeps
// them in memory.
func (d *TaskDefinition) UsesSecrets() bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool { return len(c.Secrets) > 0 })
}

// RestartsFor reports whether tasks of the definition are replaced when the secret has another value.
func (d *TaskDefinition) RestartsFor(secret string) bool {
	return slices.ContainsFunc(d.Containers, func(c Container) bool {
		return slices.ContainsFunc(c.Secrets, func(u SecretUse) bool {
			return u.Secret == secret && u.OnChange == SecretRestart
		})
	})
}

// SetDefaults fills in the fields that the user left out. It is idempotent.
func (s *Secret) SetDefaults() {
	setDefault(&s.Cluster, DefaultCluster)
	setDefault(&s.Type, SecretValue)
}

// Validate returns all that is wrong with a secret, but for its value, as Faults.
func (s *Secret) Validate() error {
	k := newCheck()
	k.at("cluster").name(s.Cluster)
	k.at("name").name(s.Name)
	oneOf(k.at("type"), s.Type)
	if s.Type == SecretRegistry {
		k.at("registry").must(validRegistry(s.Registry),
			"%q is not the host of a registry: want one such as \"ghcr.io\" or \"registry.example:5000\"",
			clip(s.Registry))
	} else {
		k.at("registry").must(s.Registry == "", "is for secrets of the type %q only: leave it out", SecretRegistry)
	}
	return k.err()
}

func (c *Container) secretDefaults() {
	for i := range c.Secrets {
		u := &c.Secrets[i]
		setDefault(&u.OnChange, SecretRestart)
		if u.File != "" {
			setDefault(&u.Mode, DefaultSecretMode)
		}
		if u.OnChange == SecretSignal {
			setDefault(&u.Signal, DefaultSecretSignal)
		}
	}
}

// validateSecrets checks the secrets of the container.
func (c *Container) validateSecrets(k check, d *TaskDefinition) {
	if c.PullSecret != "" {
		k.at("pull_secret").name(c.PullSecret)
		k.at("pull_secret").must(c.Image != "", "is for containers with an image only: leave it out")
	}
	k.at("secrets").must(len(c.Secrets) <= MaxSecretUses, "holds %d secrets, at most %d are allowed", len(c.Secrets),
		MaxSecretUses)
	files, variables := map[string]bool{}, map[string]bool{}
	for i := range c.Secrets {
		u, at := &c.Secrets[i], k.index("secrets", i)
		at.at("secret").name(u.Secret)
		oneOf(at.at("on_change"), u.OnChange)
		if u.OnChange == SecretSignal {
			at.at("signal").must(slices.Contains(secretSignals[:], u.Signal),
				"%q cannot be sent: want one of HUP, INT, USR1, USR2, WINCH and CONT", clip(u.Signal))
		} else {
			at.at("signal").must(u.Signal == "", "is for on_change %q only: leave it out", SecretSignal)
		}
		switch {
		case (u.File == "") == (u.Env == ""):
			at.fault("wants either file or env: where the container finds the secret %q", clip(u.Secret))
		case u.File != "":
			u.validateFile(at, c, files)
		default:
			u.validateVariable(at, c, d, variables)
		}
	}
	c.validateSecretFolders(k)
}

func (u *SecretUse) validateFile(at check, c *Container, taken map[string]bool) {
	mode, err := strconv.ParseUint(u.Mode, 8, 32)
	at.at("mode").must(err == nil && len(u.Mode) <= 4 && mode <= 0o777,
		"%q is not a file mode: want octal digits, such as \"0400\"", clip(u.Mode))
	at = at.at("file")
	if !cleanPath(u.File) {
		at.absolute(u.File)
		return
	}
	folder := folderOf(u.File)
	switch {
	case folder == "/" || folderOf(folder) == "/":
		at.fault("%q would hide the folder %s: want a path in a folder of its own, such as \"/run/secrets/%s\"",
			clip(u.File), clip(folder), clip(u.Secret))
	case within(u.File, "/proc") || within(u.File, "/sys"):
		at.fault("%q cannot be mounted over: want a path outside of /proc and /sys", clip(u.File))
	case taken[u.File]:
		at.fault("%q is already the file of another secret", clip(u.File))
	}
	taken[u.File] = true
	for i := range c.Files {
		at.must(!within(c.Files[i].Path, folder),
			"%q hides the folder of %s (files[%d]): want a folder of its own", clip(u.File),
			clip(c.Files[i].Path), i)
	}
	for i := range c.Mounts {
		at.must(!within(c.Mounts[i].Path, folder) && !within(u.File, c.Mounts[i].Path),
			"%q and %s (mounts[%d]) overlap: want a folder of its own", clip(u.File),
			clip(c.Mounts[i].Path), i)
	}
	for i := range c.Tmpfs {
		at.must(!within(c.Tmpfs[i].Path, folder) && !within(u.File, c.Tmpfs[i].Path),
			"%q and %s (tmpfs[%d]) overlap: want a folder of its own", clip(u.File),
			clip(c.Tmpfs[i].Path), i)
	}
}

func (u *SecretUse) validateVariable(at check, c *Container, d *TaskDefinition, taken map[string]bool) {
	at.at("mode").must(u.Mode == "", "is for files only: leave it out")
	at.at("on_change").must(u.OnChange != SecretSignal,
		"cannot be %q: the variables of a running program cannot change", SecretSignal)
	_, plain := c.Env[u.Env]
	at.at("env").must(!plain && !taken[u.Env], "%q is set already, by env or for another secret", clip(u.Env))
	taken[u.Env] = true
	only := Container{Env: map[string]string{u.Env: ""}}
	name := newCheck()
	only.validateEnv(name, d)
	for _, f := range *name.faults {
		at.at("env").fault("%s", f.Message)
	}
}

// validateSecretFolders refuses folders of secrets that overlap: one would hide the content of the other.
func (c *Container) validateSecretFolders(k check) {
	folders := c.SecretFolders()
	for i, a := range folders {
		for _, b := range folders[i+1:] {
			k.at("secrets").must(!within(b, a),
				"the folders %s and %s overlap: want files of secrets side by side", clip(a), clip(b))
		}
	}
}

// SecretFolders returns the folders in which the container finds the files of secrets, ordered, each once.
func (c *Container) SecretFolders() (folders []string) {
	for i := range c.Secrets {
		if cleanPath(c.Secrets[i].File) {
			folders = append(folders, folderOf(c.Secrets[i].File))
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// folderOf returns the folder of a clean absolute path.
func folderOf(file string) string { return file[:max(1, strings.LastIndexByte(file, '/'))] }

// NoSecret returns the sentence that a cluster has no secret of the name, and the command that makes it.
func NoSecret(inCluster, name string) string {
	command := "berth secret set " + name
	if inCluster != DefaultCluster {
		command += " --cluster " + inCluster
	}
	return "the secret " + name + " does not exist in cluster " + inCluster + ": `" + command + "` makes it"
}

// RegistryLogin is the value of a secret of the type registry, as JSON.
type RegistryLogin struct {
	User     string `json:"user"`
	Password []byte `json:"password"`
}

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// The agent asks for secrets when it makes a container, writes them to a folder in memory, and keeps them nowhere else:
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
	// secretsRequestTimeout limits one request for secrets.
	secretsRequestTimeout = 15 * time.Second
)

// secretSource is a Source that provides secrets.
type secretSource interface {
	Secrets(ctx context.Context, r transport.SecretsRequest) (transport.SecretsReply, error)
}

// secretsFolder returns the folder for the secrets of all attempts and creates it if it is missing. The folder is in
// memory and only this user can open it. Given, unless empty, is the only candidate.
func secretsFolder(given string) (string, error) {
	places := []string{given}
	if given == "" {
		places = []string{fmt.Sprintf("/dev/shm/berth-secrets-%d", os.Geteuid())}
		if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
			places = slices.Insert(places, 0, filepath.Join(dir, "berth-secrets"))
		}
		if os.Geteuid() == 0 {
			places = slices.Insert(places, 0, "/run/berth-secrets")
		}
	}
	var errs []error
	for _, dir := range places {
		if err := privateMemory(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		return dir, nil
	}
	return "", errors.Join(errs...)
}

// privateMemory creates a folder unless it exists. It returns an error if the folder is not in memory or if other users
// can open it.
func privateMemory(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &fs); err != nil {
		return fmt.Errorf("%s: %w", filepath.Dir(dir), err)
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is not in memory (tmpfs)", filepath.Dir(dir))
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this user alone: remove it", dir)
	}
	return nil
}

// probeSecrets determines whether the node can provide secrets, and logs once why not.
func (a *Agent) probeSecrets(f *cluster.Facts) {
	if a.Volatile {
		return // whoever runs a Volatile agent sets the facts
	}
	if _, asks := a.Source.(secretSource); !asks {
		return
	}
	dir, err := secretsFolder(a.SecretsDir)
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	if text != "" && text != a.machine.noSecrets {
		a.Logger.Warn("the node hands out no secrets: there is no folder in memory for them", "error", text)
	}
	a.machine.noSecrets, a.machine.secretsDir = text, dir
	f.Secrets = err == nil
}

// secretsDir returns the folder of an attempt's secrets, "" if the node has no place for them.
func (a *Agent) secretsDir(uuid string) string {
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	if a.machine.secretsDir == "" {
		return ""
	}
	return filepath.Join(a.machine.secretsDir, uuid)
}

// secretState is what a task knows about its secrets.
type secretState struct {
	// mu is held while the folders are written.
	mu sync.Mutex
	// wanted are the newest stamps from the server, nil before the first. refreshing means that a goroutine updates the
	// files to them.
	wanted     map[string]string
	refreshing bool
}

// askSecrets requests the secrets of the attempt, or the login for a registry.
func (t *task) askSecrets(ctx context.Context, registry, container string) (transport.SecretsReply, error) {
	source, ok := t.agent.Source.(secretSource)
	if !ok {
		return transport.SecretsReply{}, errors.New("the server hands out no secrets")
	}
	ctx, cancel := context.WithTimeout(ctx, secretsRequestTimeout)
	defer cancel()
	return source.Secrets(ctx, transport.SecretsRequest{
		Node: t.agent.Name, Session: t.agent.currentMark().Session, Task: t.id, UUID: t.uuid,
		Revision: t.acted.Load().Revision,
		Registry: registry, Container: container,
	})
}

// placeSecrets writes the secrets of a container and adds them to its spec. If no server answers, the secrets of the
// container's last run stay in use.
func (t *task) placeSecrets(ctx context.Context, c *cluster.Container, spec *executor.Spec) error {
	if len(c.Secrets) == 0 || t.agent.Volatile {
		return nil
	}
	root := t.agent.secretsDir(t.uuid)
	if root == "" {
		return fmt.Errorf("secrets: %w: the node has no folder in memory for them", executor.ErrUnsupported)
	}
	reply, err := t.askSecrets(ctx, "", "")
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	folder := secretFolder{filepath.Join(root, c.Name), c}
	switch {
	case err == nil:
		err = folder.write(reply)
		if err == nil {
			err = folder.stamp(reply)
		}
	case !errors.Is(err, transport.ErrRefused) && folder.placed() != nil:
		t.agent.Logger.Warn("a container is made with the secrets of its last run: no server answers", "task", t.id,
			"attempt", t.attempt, "error", err)
		err = nil
	default:
		err = fmt.Errorf("ask for the secrets of container %s: %w", c.Name, err)
	}
	if err != nil {
		return err
	}
	spec.Secrets, spec.SecretEnv = folder.mounts(), folder.env()
	return nil
}

// credentials returns the login function for the container's image. The login is the secret that the container names,
// the cluster's secret for the registry, or the entry in the node's own file, in this order. The function stores whose
// login it was in origin, and a failure in problem.
func (t *task) credentials(ctx context.Context, c *cluster.Container, origin,
	problem *atomic.Pointer[string],
) func(string) (string, string) {
	own := t.agent.Credentials
	if _, asks := t.agent.Source.(secretSource); !asks {
		return own
	}
	return func(registry string) (user, secret string) {
		reply, err := t.askSecrets(ctx, registry, c.Name)
		switch {
		case err == nil && reply.User != "":
			origin.Store(&reply.Login)
			return reply.User, string(reply.Password)
		case err == nil && len(reply.Missing) > 0:
			problem.Store(&reply.Missing[0])
		case err != nil:
			why := "the secrets for the registry could not be asked for: " + err.Error()
			problem.Store(&why)
		}
		if own == nil {
			return "", ""
		}
		return own(registry)
	}
}

// loginHint says where to renew a login that a registry rejected: in the named secret, or in the node's own file.
func loginHint(name *string, in string) string {
	switch {
	case name == nil:
		return "; a login for it is that of a secret (`berth secret set NAME --type registry`), or of the " +
			"file of --registry-logins of the node's agent"
	case *name == "":
		return "; it is that of a secret of the cluster " + in
	}
	return fmt.Sprintf("; it is that of the secret %s of the cluster %s: set it anew with `berth secret set "+
		"%s --type registry`", *name, in, *name)
}

// setStamps stores the current stamps of the secrets. Work that begins here ends with ctx.
func (t *task) setStamps(ctx context.Context, stamps map[string]string) {
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	t.secrets.wanted = stamps
	if t.secrets.refreshing || t.agent.Volatile {
		return
	}
	t.secrets.refreshing = true
	t.agent.work.Go(func() { t.refreshSecrets(ctx) })
}

// refreshSecrets updates the files to the wanted stamps, until they match or the attempt is over.
func (t *task) refreshSecrets(ctx context.Context) {
	p := t.agent.newBackoff(minRetryBackoff, fastProbeInterval)
	for {
		done, err := t.refreshOnce(ctx)
		if err != nil && ctx.Err() == nil {
			t.agent.Logger.Warn("changed secrets could not be written yet", "task", t.id, "attempt", t.attempt, "error",
				err)
		}
		if done {
			return
		}
		timer := time.NewTimer(p.next())
		select {
		case <-ctx.Done():
		case <-t.ended:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// refreshOnce updates all containers once. It is done once nothing differs; a later change starts a new refresh.
func (t *task) refreshOnce(ctx context.Context) (done bool, err error) {
	stale, wait := t.findStaleSecrets()
	if len(stale) > 0 {
		reply, err := t.askSecrets(ctx, "", "")
		if err != nil {
			return errors.Is(err, transport.ErrRefused) && t.endRefresh(true), err
		}
		for i := range stale {
			if err := t.renewSecrets(ctx, &stale[i], reply); err != nil {
				return false, err
			}
		}
		stale, wait = t.findStaleSecrets()
	}
	return len(stale) == 0 && !wait && t.endRefresh(false), nil
}

// endRefresh ends the refresh unless other stamps arrived meanwhile.
func (t *task) endRefresh(anyway bool) bool {
	stale, _ := t.findStaleSecrets()
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	if len(stale) > 0 && !anyway {
		return false
	}
	t.secrets.refreshing = false
	return true
}

// staleSecrets is a container with secrets that differ from the wanted stamps.
type staleSecrets struct {
	secretFolder
	changed []string // names of these secrets
}

// findStaleSecrets returns the containers whose secrets differ from the wanted stamps. wait means that some containers
// have no secrets yet.
func (t *task) findStaleSecrets() (list []staleSecrets, wait bool) {
	root, v := t.agent.secretsDir(t.uuid), t.view.Load()
	select {
	case <-t.ended:
		return nil, false
	default:
	}
	if root == "" || v == nil || v.def == nil {
		return nil, root != ""
	}
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	for i := range v.def.Containers {
		c := &v.def.Containers[i]
		if len(c.Secrets) == 0 {
			continue
		}
		s := staleSecrets{secretFolder: secretFolder{filepath.Join(root, c.Name), c}}
		placed := s.placed()
		if placed == nil {
			wait = wait || v.rec.Phase == attempt.PhaseNew || v.rec.Phase == attempt.PhasePreparing
			continue
		}
		for _, u := range c.Secrets {
			if now := t.secrets.wanted[u.Secret]; now != "" && now != placed[u.Secret] &&
				!slices.Contains(s.changed, u.Secret) {
				s.changed = append(s.changed, u.Secret)
			}
		}
		if len(s.changed) > 0 {
			list = append(list, s)
		}
	}
	return list, wait
}

// renewSecrets replaces the files of a container, sends the signals that its uses ask for, and then records the stamps.
// After a crash in between, the next run repeats all of it.
func (t *task) renewSecrets(ctx context.Context, s *staleSecrets, reply transport.SecretsReply) error {
	t.secrets.mu.Lock()
	err := s.write(reply)
	t.secrets.mu.Unlock()
	if err != nil {
		return err
	}
	var sent []string
	for _, u := range s.container.Secrets {
		if u.OnChange != cluster.SecretSignal || !slices.Contains(s.changed, u.Secret) ||
			slices.Contains(sent, u.Signal) {
			continue
		}
		sent = append(sent, u.Signal)
		if err := t.signalContainer(ctx, s.container.Name, u.Signal); err != nil {
			return err
		}
	}
	t.secrets.mu.Lock()
	defer t.secrets.mu.Unlock()
	t.agent.Logger.Info("secrets of a container were replaced", "task", t.id, "attempt", t.attempt, "container",
		s.container.Name, "secrets", s.changed, "signals", sent)
	return s.stamp(reply)
}

// signalContainer sends a signal to a container, if it runs.
func (t *task) signalContainer(ctx context.Context, container, name string) error {
	exec, id, err := t.runningContainer(container)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, signalTimeout)
		defer cancel()
		err = exec.Signal(ctx, id, unix.SignalNum("SIG"+name))
	}
	if errors.Is(err, executor.ErrNotRunning) || errors.Is(err, executor.ErrNotFound) {
		return nil // the next run gets the new values
	}
	return err
}

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
				return fmt.Errorf("the secret %s cannot be the variable %s: it holds a zero byte, or more "+
					"than %d bytes; hand it over as a file", u.Secret, u.Env, cluster.MaxArg)
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
	if err := replaceFile(filepath.Join(b.dir, "next"), name, content, mode); err != nil {
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

// mask removes the values of the attempt's secrets from text for other readers. The function text returns the text with
// the given number of additional bytes.
func (t *task) mask(text func(more int) string) string {
	root := t.agent.secretsDir(t.uuid)
	var values []string
	if root != "" {
		containers, _ := filepath.Glob(filepath.Join(root, "*")) // the pattern is valid
		for _, folder := range containers {
			folders, _ := filepath.Glob(filepath.Join(folder, "[0-9]*"))
			values = append(values, executor.SecretValues(folders, filepath.Join(folder, secretsEnv))...)
		}
	}
	if values = executor.MaskedTexts(values); len(values) == 0 {
		return text(0)
	}
	out := text(len(values[0]))
	out = maskBeginning(out, values)
	for _, v := range values {
		out = strings.ReplaceAll(out, v, executor.Masked)
	}
	return maskEnd(out, values)
}

// maskEnd masks the beginning of a value at the end of the text, where the text was cut.
func maskEnd(text string, values []string) string {
	for _, v := range values {
		for n := len(v) - 1; n >= executor.ShortSecret; n-- {
			if strings.HasSuffix(text, v[:n]) {
				return text[:len(text)-n] + executor.Masked
			}
		}
	}
	return text
}

// maskBeginning masks the end of a value at the beginning of the text, where the text was cut.
func maskBeginning(text string, values []string) string {
	for _, v := range values {
		for from := 1; len(v)-from >= executor.ShortSecret; from++ {
			if strings.HasPrefix(text, v[from:]) {
				return executor.Masked + text[len(v)-from:]
			}
		}
	}
	return text
}

// maskText masks a complete text.
func (t *task) maskText(s string) string { return t.mask(func(int) string { return s }) }

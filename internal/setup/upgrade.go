package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"
)

const (
	// upgradeFile has the upgrade that is not confirmed.
	upgradeFile = StateDir + "/upgrade.json"
	// watchLock is held by the process that watches the upgrade.
	watchLock = "/run/berth-upgrade.lock"

	watchUnitName = "berth-upgrade.service"
	watchUnitFile = "/etc/systemd/system/" + watchUnitName

	// watchPeriod is the time between two looks at the upgrade, and revertPause that between two tries to go back.
	watchPeriod = time.Second
	revertPause = 5 * time.Second
	// maxVersions is the number of binaries that a confirmed upgrade leaves.
	maxVersions = 4
)

// ErrNoUpgrade means that the machine has no unconfirmed upgrade.
var ErrNoUpgrade = errors.New("the machine has no upgrade that waits for a confirmation")

// upgrade is an upgrade that goes back, unless it is confirmed in time. It is durable before the agent is replaced, so
// each crash from then on ends with a confirmation or with the agent before.
type upgrade struct {
	// From and To are the shortened checksums of the two binaries.
	From string `json:"from"`
	To   string `json:"to"`
	// Until is the end of the time for the confirmation, and Limit its length. A watch waits no longer than Limit, so a
	// clock that jumps back does not extend it by more.
	Until time.Time     `json:"until"`
	Limit time.Duration `json:"limit"`
}

// binaryAt returns the installed binary with a shortened checksum.
func binaryAt(sum string) *binary { return &binary{sum: sum} }

// Upgrade replaces the agent by that of this program, and keeps the arguments of the agent. Unless Confirm is called
// within a limit, the machine goes back to the binary before by itself, also after a boot. Tasks are not touched.
func (m *Machine) Upgrade(ctx context.Context, limit time.Duration, report func(Step)) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := ownBinary()
	if err != nil {
		return err
	}
	if m.installedSum() == "" || !m.has(unitFile) && !m.has(ArgumentsFile) {
		return errors.New("'berth node add' did not set up the agent of this machine: upgrade it the way it was " +
			"installed")
	}
	u := upgrade{To: b.sum[:shortSum], Limit: limit}
	if u.From, err = m.upgradeFrom(ctx, u.To); err != nil {
		return err
	}
	runs, err := m.agentRuns(ctx, b)
	if err != nil || runs && u.From == u.To {
		return err
	}
	if err := m.applyItem(ctx, &stored{b}, report); err != nil {
		return err
	}
	begun := time.Now()
	u.Until = begun.Add(limit)
	return m.replaceAgent(ctx, u, b, report)
}

// upgradeFrom returns the binary to which an upgrade goes back. An unconfirmed upgrade to the same binary goes on; one
// to another goes back before.
func (m *Machine) upgradeFrom(ctx context.Context, to string) (string, error) {
	u, err := m.readUpgrade()
	switch {
	case errors.Is(err, ErrNoUpgrade):
		return m.installedSum(), nil
	case err != nil:
		return "", err
	case u.To == to:
		return u.From, nil
	}
	if err := m.goBack(ctx); err != nil {
		return "", fmt.Errorf("go back from an unconfirmed upgrade: %w", err)
	}
	return u.From, nil
}

// replaceAgent makes the agent run a binary, and has the upgrade watched before.
func (m *Machine) replaceAgent(ctx context.Context, u upgrade, b *binary, report func(Step)) error {
	begun := time.Now()
	err := m.writeUpgrade(&u)
	if err == nil {
		err = m.startWatch(ctx, b)
	}
	if err == nil && m.installedSum() != u.To {
		err = m.link(b.place())
	}
	runs := false
	if err == nil {
		runs, err = m.agentRuns(ctx, b)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("prepare the upgrade: %w", err), m.goBack(context.WithoutCancel(ctx)))
	}
	if runs {
		return nil // an upgrade that was interrupted goes on
	}
	err = m.restartAgent(ctx, b)
	step := Step{
		Difference: Difference{Item: agentItem, Is: "sha256 " + u.From, Want: "sha256 " + u.To},
		Took:       time.Since(begun),
	}
	if err != nil {
		err = fmt.Errorf("start the new agent: %w", err)
		step.Problem = err.Error()
		report(step)
		return errors.Join(err, m.goBack(context.WithoutCancel(ctx)))
	}
	report(step)
	return nil
}

// Confirm ends an upgrade to this program successfully. It may be repeated.
func (m *Machine) Confirm(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := ownBinary()
	if err != nil {
		return err
	}
	if is := m.installedSum(); is != b.sum[:shortSum] {
		return fmt.Errorf("the upgrade to %s went back to %s before it was confirmed", b.sum[:shortSum], is)
	}
	u, err := m.readUpgrade()
	if err != nil {
		if errors.Is(err, ErrNoUpgrade) {
			return nil
		}
		return err
	}
	if err := m.endUpgrade(ctx); err != nil {
		return err
	}
	return m.removeVersions(u.From, u.To)
}

// Revert goes back to the binary before an unconfirmed upgrade. Without one it returns ErrNoUpgrade.
func (m *Machine) Revert(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return m.goBack(ctx)
}

// WatchUpgrade waits until the upgrade of the machine was confirmed, or goes back once its time has passed. Another
// watch is waited for.
func (m *Machine) WatchUpgrade(ctx context.Context, log *slog.Logger) error {
	lock, err := m.holdWatch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	var watched upgrade
	var ends time.Time // by the monotonic clock
	for {
		u, err := m.readUpgrade()
		if errors.Is(err, ErrNoUpgrade) {
			return nil
		}
		wait := watchPeriod
		switch {
		case err != nil:
			log.Error("the upgrade cannot be read", "error", err)
		case *u != watched:
			now := time.Now()
			watched, ends = *u, now.Add(min(u.Limit, max(u.Until.Sub(now), 0)))
		case time.Now().After(ends):
			log.Warn("the upgrade was not confirmed in time: back to the binary before", "from", u.To, "to", u.From)
			if err := m.revertOnly(ctx, *u); err != nil {
				log.Error("the machine could not go back; it tries again", "error", err)
				wait = revertPause
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// revertOnly goes back from one upgrade, unless another one is there meanwhile.
func (m *Machine) revertOnly(ctx context.Context, from upgrade) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	u, err := m.readUpgrade()
	if errors.Is(err, ErrNoUpgrade) || err == nil && *u != from {
		return nil
	}
	if err != nil {
		return err
	}
	return m.goBack(ctx)
}

// goBack ends an unconfirmed upgrade with the binary before. The caller holds the lock of setups.
func (m *Machine) goBack(ctx context.Context) error {
	u, err := m.readUpgrade()
	if err != nil {
		return err
	}
	if m.installedSum() != u.From {
		if err := m.link(binaryAt(u.From).place()); err != nil {
			return err
		}
	}
	if err := m.restartAgent(ctx, binaryAt(u.From)); err != nil {
		return fmt.Errorf("start the agent before: %w", err)
	}
	return m.endUpgrade(ctx)
}

// endUpgrade removes an upgrade and its watch.
func (m *Machine) endUpgrade(ctx context.Context) error {
	if err := os.Remove(m.path(upgradeFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !m.HasSystemd() || !m.has(watchUnitFile) {
		return nil // the watch ends by itself
	}
	if _, err := m.Run(ctx, "systemctl", "disable", "--quiet", "--", watchUnitName); err != nil {
		return err
	}
	return os.Remove(m.path(watchUnitFile))
}

func (m *Machine) writeUpgrade(u *upgrade) error {
	b, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return m.replaceFile(upgradeFile, append(b, '\n'), 0o600, -1, -1)
}

// readUpgrade returns the unconfirmed upgrade, or ErrNoUpgrade.
func (m *Machine) readUpgrade() (*upgrade, error) {
	b, err := os.ReadFile(m.path(upgradeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoUpgrade
	}
	if err != nil {
		return nil, err
	}
	var u upgrade
	if err := json.Unmarshal(b, &u); err != nil || u.From == "" || u.To == "" {
		return nil, fmt.Errorf("read %s: it is damaged", upgradeFile)
	}
	return &u, nil
}

// startWatch starts the process that goes back. It is of the new binary, because the one before may not know upgrades.
func (m *Machine) startWatch(ctx context.Context, b *binary) error {
	if !m.HasSystemd() {
		return startDetached(m.path(b.place()), m.path(LogFile), watchArguments()...)
	}
	unit := `# Written by Berth.
[Unit]
Description=Return to the previous Berth agent unless its upgrade is confirmed
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=` + b.place() + ` machine watch-upgrade
Restart=on-failure
RestartSec=2

[Install]
WantedBy=multi-user.target
`
	if err := m.replaceFile(watchUnitFile, []byte(unit), 0o644, -1, -1); err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"daemon-reload"}, {"enable", "--quiet", "--", watchUnitName}, {"restart", "--", watchUnitName},
	} {
		if _, err := m.Run(ctx, "systemctl", arguments...); err != nil {
			return err
		}
	}
	return nil
}

func watchArguments() []string { return []string{"machine", "watch-upgrade"} }

// holdWatch makes this process the watch of the machine, until the file is closed.
func (m *Machine) holdWatch(ctx context.Context) (*os.File, error) {
	f, err := m.openRunFile(watchLock)
	if err != nil {
		return nil, err
	}
	if err := awaitLock(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeVersions deletes old binaries, except some of the newest and those of an upgrade.
func (m *Machine) removeVersions(keep ...string) error {
	folders, err := os.ReadDir(m.path(VersionsDir))
	if err != nil {
		return err
	}
	type version struct {
		name string
		at   time.Time
	}
	var old []version
	for _, f := range folders {
		info, err := f.Info()
		if err != nil {
			return err
		}
		if !slices.Contains(keep, f.Name()) {
			old = append(old, version{f.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(old, func(a, b version) int { return b.at.Compare(a.at) })
	for _, v := range old[min(len(old), maxVersions-len(keep)):] {
		if err := os.RemoveAll(m.path(VersionsDir + "/" + v.name)); err != nil {
			return err
		}
	}
	return nil
}

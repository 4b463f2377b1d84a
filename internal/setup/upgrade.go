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

// Upgrades replaces the agent of a machine by that of another binary. At most one upgrade of a machine waits for its
// confirmation. Its record is in a file, so any process of any binary may end it; a second process watches its time.
// Upgrades and setups of one machine wait for each other.
type Upgrades struct{ machine *Machine }

// NewUpgrades returns the upgrades of a machine.
func NewUpgrades(m *Machine) *Upgrades { return &Upgrades{m} }

// binaryAt returns the installed binary with a shortened checksum.
func binaryAt(sum string) *binary { return &binary{sum: sum} }

// Begin replaces the agent by that of this program, and keeps the arguments of the agent. Unless Confirm is called
// within a limit, the machine goes back to the binary before by itself, also after a boot. Tasks are not touched.
func (u *Upgrades) Begin(ctx context.Context, limit time.Duration, report func(Step)) error {
	m := u.machine
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
	next := upgrade{To: b.sum[:shortSum], Limit: limit}
	if next.From, err = u.from(ctx, next.To); err != nil {
		return err
	}
	runs, err := m.agentRuns(ctx, b)
	if err != nil || runs && next.From == next.To {
		return err
	}
	if err := m.applyItem(ctx, &stored{b}, report); err != nil {
		return err
	}
	next.Until = time.Now().Add(limit)
	return u.replaceAgent(ctx, next, b, report)
}

// from returns the binary to which an upgrade goes back. An unconfirmed upgrade to the same binary goes on; one to
// another goes back before.
func (u *Upgrades) from(ctx context.Context, to string) (string, error) {
	waiting, err := u.read()
	switch {
	case errors.Is(err, ErrNoUpgrade):
		return u.machine.installedSum(), nil
	case err != nil:
		return "", err
	case waiting.To == to:
		return waiting.From, nil
	}
	if err := u.goBack(ctx); err != nil {
		return "", fmt.Errorf("go back from an unconfirmed upgrade: %w", err)
	}
	return waiting.From, nil
}

// replaceAgent makes the agent run a binary, and has the upgrade watched before.
func (u *Upgrades) replaceAgent(ctx context.Context, next upgrade, b *binary, report func(Step)) error {
	begun := time.Now()
	err := u.write(&next)
	if err == nil {
		err = u.startWatch(ctx, b)
	}
	if err == nil && u.machine.installedSum() != next.To {
		err = u.machine.link(b.place())
	}
	runs := false
	if err == nil {
		runs, err = u.machine.agentRuns(ctx, b)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("prepare the upgrade: %w", err), u.goBack(context.WithoutCancel(ctx)))
	}
	if runs {
		return nil // an upgrade that was interrupted goes on
	}
	err = u.machine.restartAgent(ctx, b)
	step := Step{
		Difference: Difference{Item: agentItem, Is: "sha256 " + next.From, Want: "sha256 " + next.To},
		Took:       time.Since(begun),
	}
	if err != nil {
		err = fmt.Errorf("start the new agent: %w", err)
		step.Problem = err.Error()
		report(step)
		return errors.Join(err, u.goBack(context.WithoutCancel(ctx)))
	}
	report(step)
	return nil
}

// Confirm ends an upgrade to this program successfully. It may be repeated.
func (u *Upgrades) Confirm(ctx context.Context) error {
	unlock, err := u.machine.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	b, err := ownBinary()
	if err != nil {
		return err
	}
	if is := u.machine.installedSum(); is != b.sum[:shortSum] {
		return fmt.Errorf("the upgrade to %s went back to %s before it was confirmed", b.sum[:shortSum], is)
	}
	waiting, err := u.read()
	if err != nil {
		if errors.Is(err, ErrNoUpgrade) {
			return nil
		}
		return err
	}
	if err := u.end(ctx); err != nil {
		return err
	}
	return u.removeVersions(waiting.From, waiting.To)
}

// Revert goes back to the binary before an unconfirmed upgrade. Without one it returns ErrNoUpgrade.
func (u *Upgrades) Revert(ctx context.Context) error {
	unlock, err := u.machine.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return u.goBack(ctx)
}

// Watch waits until the upgrade of the machine was confirmed, or goes back once its time has passed. Another watch is
// waited for.
func (u *Upgrades) Watch(ctx context.Context, log *slog.Logger) error {
	lock, err := u.holdWatch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	var watched upgrade
	var ends time.Time // by the monotonic clock
	for {
		waiting, err := u.read()
		if errors.Is(err, ErrNoUpgrade) {
			return nil
		}
		wait := watchPeriod
		switch {
		case err != nil:
			log.Error("the upgrade cannot be read", "error", err)
		case *waiting != watched:
			now := time.Now()
			watched, ends = *waiting, now.Add(min(waiting.Limit, max(waiting.Until.Sub(now), 0)))
		case time.Now().After(ends):
			log.Warn("the upgrade was not confirmed in time: back to the binary before", "from", waiting.To, "to",
				waiting.From)
			if err := u.revertOnly(ctx, *waiting); err != nil {
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
func (u *Upgrades) revertOnly(ctx context.Context, from upgrade) error {
	unlock, err := u.machine.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	waiting, err := u.read()
	if errors.Is(err, ErrNoUpgrade) || err == nil && *waiting != from {
		return nil
	}
	if err != nil {
		return err
	}
	return u.goBack(ctx)
}

// goBack ends an unconfirmed upgrade with the binary before. The caller holds the lock of setups.
func (u *Upgrades) goBack(ctx context.Context) error {
	waiting, err := u.read()
	if err != nil {
		return err
	}
	before := binaryAt(waiting.From)
	if u.machine.installedSum() != waiting.From {
		if err := u.machine.link(before.place()); err != nil {
			return err
		}
	}
	if err := u.machine.restartAgent(ctx, before); err != nil {
		return fmt.Errorf("start the agent before: %w", err)
	}
	return u.end(ctx)
}

// isWaiting reports whether an upgrade waits for its confirmation.
func (u *Upgrades) isWaiting() bool { return u.machine.has(upgradeFile) }

// end removes an upgrade and its watch.
func (u *Upgrades) end(ctx context.Context) error {
	m := u.machine
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

func (u *Upgrades) write(next *upgrade) error {
	b, err := json.Marshal(next)
	if err != nil {
		return err
	}
	return u.machine.replaceFile(upgradeFile, append(b, '\n'), 0o600, -1, -1)
}

// read returns the unconfirmed upgrade, or ErrNoUpgrade.
func (u *Upgrades) read() (*upgrade, error) {
	b, err := os.ReadFile(u.machine.path(upgradeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoUpgrade
	}
	if err != nil {
		return nil, err
	}
	var waiting upgrade
	if err := json.Unmarshal(b, &waiting); err != nil || waiting.From == "" || waiting.To == "" {
		return nil, fmt.Errorf("read %s: it is damaged", upgradeFile)
	}
	return &waiting, nil
}

// startWatch starts the process that goes back. It is of the new binary, because the one before may not know upgrades.
func (u *Upgrades) startWatch(ctx context.Context, b *binary) error {
	m := u.machine
	if !m.HasSystemd() {
		return startDetached(m.path(b.place()), m.path(LogFile), "machine", "watch-upgrade")
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

// holdWatch makes this process the watch of the machine, until the file is closed.
func (u *Upgrades) holdWatch(ctx context.Context) (*os.File, error) {
	f, err := u.machine.openRunFile(watchLock)
	if err != nil {
		return nil, err
	}
	if err := awaitLock(ctx, f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeVersions deletes old binaries, except some of the newest and those of an upgrade.
func (u *Upgrades) removeVersions(keep ...string) error {
	folders, err := os.ReadDir(u.machine.path(VersionsDir))
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
		if err := os.RemoveAll(u.machine.path(VersionsDir + "/" + v.name)); err != nil {
			return err
		}
	}
	return nil
}

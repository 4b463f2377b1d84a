// Package machines makes machines with an SSH server, for tests of their setup.
//
// A machine is a set of namespaces with a network of its own, its own processes and host name, and a root file system
// that is a copy-on-write view of this machine's, or of that of another Debian release. Its first process is a real
// sshd; when that ends, everything on the machine ends. It belongs to one test, and needs root.
package machines

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/netlab"
)

// startLimit is how long a machine may take until its SSH server answers.
const startLimit = 30 * time.Second

// Key is the key of a user, in a file.
type Key struct {
	File   string // of the private key
	Public string // the line for authorized_keys
}

// NewKey makes a key in a folder.
func NewKey(tb testing.TB, dir string) Key {
	tb.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		tb.Fatal(err)
	}
	k := Key{File: filepath.Join(dir, "id_test")}
	if err := os.WriteFile(k.File, pem.EncodeToMemory(block), 0o600); err != nil {
		tb.Fatal(err)
	}
	line, err := ssh.NewPublicKey(public)
	if err != nil {
		tb.Fatal(err)
	}
	k.Public = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line)))
	return k
}

// Machine is one machine. Its SSH server accepts the key for root and for the user admin.
type Machine struct {
	*netlab.Host

	// HostKey is the fingerprint of the SSH server's key, and HostKeyLine its line for known_hosts without the address.
	HostKey, HostKeyLine string

	tb      testing.TB
	dir     string
	command *exec.Cmd
	output  *bytes.Buffer
}

// Release returns the root file system of a Debian release for StartFrom, and leaves the test out without it.
func Release(tb testing.TB, name string) string {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	root := filepath.Join(cache, "berth", "root-"+name)
	if _, err := os.Stat(root); err != nil {
		testkit.Skip(tb, "there are no files of Debian "+name+": scripts/install-root makes them")
	}
	return root
}

// script makes the root file system and starts the SSH server. Its arguments are the folder of the machine, the name,
// and the folder of the files that the machine begins with.
const script = `set -e
dir=$1
hostname "$2"
mount -t tmpfs -o mode=755 tmpfs "$dir/top"
mkdir "$dir/top/upper" "$dir/top/work" "$dir/top/root"
mount -t overlay -o lowerdir=$3,upperdir=$dir/top/upper,workdir=$dir/top/work overlay "$dir/top/root"
cd "$dir/top/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p run/sshd etc/ssh/test
rm -rf var/lib/berth var/lib/berth-setup usr/local/bin/berth usr/local/lib/berth
rm -f root/.bashrc root/.profile # each command over SSH would read them
cp "$dir/host_key" "$dir/authorized" etc/ssh/test/
chmod 600 etc/ssh/test/host_key
chmod 644 etc/ssh/test/authorized # sshd reads it as the user
chroot . useradd --create-home --shell /bin/sh admin
echo 'admin:secret' | chroot . chpasswd
echo 'admin ALL=(ALL) ALL' >etc/sudoers.d/admin
cat >etc/ssh/test/config <<END
HostKey /etc/ssh/test/host_key
AuthorizedKeysFile /etc/ssh/test/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
AllowTcpForwarding yes
MaxStartups 100
END
exec chroot . /usr/sbin/sshd -D -e -f /etc/ssh/test/config
`

// Start starts a machine with this machine's files on a host of a network, and waits until its SSH server answers.
func Start(tb testing.TB, on *netlab.Host, key Key) *Machine {
	tb.Helper()
	testkit.NeedCommand(tb, "sshd", "sudo")
	return StartFrom(tb, "/", on, key)
}

// StartFrom is Start for a machine that begins with the files of a folder, which has an SSH server and sudo.
func StartFrom(tb testing.TB, root string, on *netlab.Host, key Key) *Machine {
	tb.Helper()
	testkit.NeedRoot(tb)
	testkit.NeedCommand(tb, "unshare", "nsenter")
	m := &Machine{Host: on, tb: tb, dir: tb.TempDir(), output: new(bytes.Buffer)}
	m.writeKeys(key)
	if err := os.Mkdir(filepath.Join(m.dir, "top"), 0o700); err != nil {
		tb.Fatal(err)
	}
	// "ip netns exec" would hide the control groups
	words := strings.Fields("nsenter --net=/var/run/netns/" + on.Space + " unshare --mount --pid --fork --uts --ipc " +
		"--kill-child --propagation private")
	words = append(words, "sh", "-c", script, "machine", m.dir, on.Name, root)
	m.command = exec.Command(words[0], words[1:]...) //nolint:noctx // it is ended by Stop
	m.command.Stdout, m.command.Stderr = m.output, m.output
	if err := m.command.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Stop)
	testkit.Eventually(tb, startLimit, func() error {
		conn, err := on.Dial(tb.Context(), "tcp", net.JoinHostPort(on.Address, "22"))
		if err != nil {
			return fmt.Errorf("%w; %s", err, m.output)
		}
		return conn.Close()
	})
	return m
}

// writeKeys makes the key of the SSH server, and accepts the key of the user.
func (m *Machine) writeKeys(user Key) {
	m.tb.Helper()
	host := NewKey(m.tb, m.dir)
	if err := os.Rename(host.File, filepath.Join(m.dir, "host_key")); err != nil {
		m.tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "authorized"), []byte(user.Public+"\n"), 0o600); err != nil {
		m.tb.Fatal(err)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(host.Public))
	if err != nil {
		m.tb.Fatal(err)
	}
	m.HostKey, m.HostKeyLine = ssh.FingerprintSHA256(public), host.Public
}

// Stop ends the machine with everything on it, as if its power went.
func (m *Machine) Stop() {
	m.tb.Helper()
	if m.command.ProcessState != nil {
		return
	}
	_ = m.command.Process.Kill() // it may have ended; the kernel ends its child
	err := m.command.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		m.tb.Error(err)
	}
}

// Run runs a command of a shell on the machine, as root and without SSH, and returns its output.
func (m *Machine) Run(line string) string {
	m.tb.Helper()
	out, err := m.Try(line)
	if err != nil {
		m.tb.Fatalf("on %s: %s: %v: %s", m.Name, line, err, out)
	}
	return out
}

// Try is Run for a command that may fail.
func (m *Machine) Try(line string) (string, error) {
	ctx, cancel := context.WithTimeout(m.tb.Context(), startLimit)
	defer cancel()
	pid, err := m.first()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "nsenter", "--target", pid, "--all", "--root", "--wd", "sh", "-c",
		line).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// first returns the first process of the machine, as this machine sees it.
func (m *Machine) first() (string, error) {
	// nsenter becomes unshare, which has one child
	pid := fmt.Sprint(m.command.Process.Pid)
	b, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	children := strings.Fields(string(b))
	if err != nil || len(children) != 1 {
		return "", errors.Join(fmt.Errorf("the machine does not run: %s", m.output), err)
	}
	return children[0], nil
}

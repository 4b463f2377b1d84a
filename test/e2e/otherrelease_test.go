//go:build prove

package e2e_test

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/machines"
)

// greeterRepository makes a repository of packages on a machine, and makes it the machine's only one. The package
// greeter needs another package, and brings a service that notes the greeting at each start.
const greeterRepository = `set -e
mkdir -p /srv/repository /tmp/data/DEBIAN /tmp/greeter/DEBIAN /tmp/greeter/etc/init.d
cat >/tmp/data/DEBIAN/control <<'END'
Package: greeter-data
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.com>
Description: words
END
cat >/tmp/greeter/DEBIAN/control <<'END'
Package: greeter
Version: 1.0
Architecture: all
Depends: greeter-data (>= 1.0)
Maintainer: Nobody <nobody@example.com>
Description: a service that greets
END
cat >/tmp/greeter/etc/init.d/greeter <<'END'
#!/bin/sh
case $1 in
restart) cat /etc/app/greeting >>/run/greetings ;;
status) exit 0 ;;
esac
END
chmod 755 /tmp/greeter/etc/init.d/greeter
for name in data greeter; do dpkg-deb --root-owner-group --build /tmp/$name /srv/repository/$name.deb >&2; done
cd /srv/repository
for file in *.deb; do
	dpkg-deb --field $file
	echo "Filename: ./$file"
	echo "Size: $(stat -c %s $file)"
	echo "SHA256: $(sha256sum $file | cut -d ' ' -f 1)"
	echo
done >Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/repository ./' >/etc/apt/sources.list.d/greeter.list
`

// greeterProfile is a profile with an item of each kind that a machine without modules of its own can have.
const greeterProfile = `
kind: Profile
name: greeter
version: 1
requires: {cpu: 1, memory: 64MiB, kernel: "3.10", clock_skew: 1m}
packages: {debian: [greeter, sudo], fedora: [httpd]}
sysctls: {net.core.somaxconn: "512"}
users:
  - {name: app, uid: 7700, groups: [operators], home: /home/app, shell: /bin/sh}
  - {name: daemon-of-app}
files:
  - {path: /etc/app/greeting, content: "hello\n", mode: "0640", owner: "app:operators", restart: [greeter]}
agent:
  executor: process
  flags: ["--process-isolation=none", "--dns-listen=off"]
`

// steadyService is a task that runs until it is ended.
const steadyService = `
kind: Service
name: steady
count: 1
template:
  containers:
    - name: main
      command: [sleep, "54321"]
      resources: {cpu: 10m, memory: 8MiB}
  min_healthy_time: 100ms
`

// TestNodeAddOnAnotherRelease makes a node of a machine with the files of another Debian release: with its sudo, apt,
// dpkg and useradd. A task runs there while the machine is changed by hand and mended again. BERTH_TEST_RELEASE is the
// name of the release.
func TestNodeAddOnAnotherRelease(t *testing.T) {
	t.Parallel()
	release := cmp.Or(os.Getenv("BERTH_TEST_RELEASE"), "trixie")
	root := machines.Release(t, release)
	s := newMachineSite(t)
	m := machines.StartFrom(t, root, s.lab.Add("m1"), s.key)
	s.Write("known_hosts", m.Address+" "+m.HostKeyLine+"\n")
	if got := m.Run(". /etc/os-release; echo $VERSION_CODENAME; test ! -e /run/systemd"); got != release {
		t.Fatalf("the machine is %s", got)
	}
	m.Run(greeterRepository)
	s.Berth("run", s.Write("greeter.yaml", greeterProfile)).Want(t, 0)
	password := s.Write("password", "secret")
	add := []string{"m1=admin@" + m.Address, "--profile", "greeter", "--sudo-password-file", password}

	s.add("m1=admin@"+m.Address, "--profile", "greeter", "--sudo-password-file", s.Write("wrong", "wrong")).Want(t, 1,
		"sudo does not accept the password of the user admin")
	// sudo warns that the host name has no address, and the program's own error is shown nevertheless
	unknown := s.Write("unknown.yaml", strings.Replace(greeterProfile, "debian: [greeter", "debian: [nobody-has-it", 1))
	s.add("m1=admin@"+m.Address, "--profile", unknown, "--sudo-password-file", password).Want(t, 1,
		"apply failed: package nobody-has-it: apt-get", "Unable to locate package nobody-has-it")
	s.add(append(add, "--dry-run")...).Want(t, 0, "would-change", "package greeter", "user app", "sysctl")
	m.Run("test ! -e /etc/app && test ! -e /usr/local/bin/berth && test ! -e /home/admin/.cache/berth-setup")
	s.add(add...).Want(t, 0, "added")
	s.NodeIs("m1", cluster.NodeReady)
	const whole = "640 app operators\n512\nii greeter ii greeter-data \n7700 app operators\n/bin/sh /usr/sbin/nologin"
	is := func() string {
		return m.Run(`stat -c '%a %U %G' /etc/app/greeting; cat /proc/sys/net/core/somaxconn
dpkg-query --show --showformat '${db:Status-Abbrev}${Package} ' 'greeter*'; echo; echo $(id -u app; id -nG app)
echo $(getent passwd app daemon-of-app | cut -d : -f 7)`)
	}
	if got := is(); got != whole {
		t.Errorf("the machine has %q, want %q", got, whole)
	}
	m.Run("test $(cat /run/greetings) = hello && test ! -e /home/admin/.cache/berth-setup")
	s.add(add...).Want(t, 0, "unchanged", "0 changes")

	steady := s.Write("steady.yaml", steadyService)
	s.Berth("run", steady).Want(t, 0, "healthy")
	before := s.attempts()
	s.checkRepair(m, password)
	if got := is(); got != whole {
		t.Errorf("after a repair the machine has %q, want %q", got, whole)
	}
	m.Run("test $(wc -l </run/greetings) = 2")
	if got := s.attempts(); got != before {
		t.Errorf("tasks were touched: got %s, want %s", got, before)
	}
	s.Berth("down", steady).Want(t, 0)
}

// checkRepair changes a machine by hand. `berth node drift` finds each change, and `berth node repair` mends it.
func (s *machineSite) checkRepair(m *machines.Machine, password string) {
	s.t.Helper()
	run := func(verb string) harness.Result {
		return s.BerthOn(labHost(s.desk), nil, "node", verb, "m1", "--no-agent", "--identity", s.key.File,
			"--host-key", m.HostKey, "--sudo-password-file", password)
	}
	run("drift").Want(s.t, 0, "unchanged")
	m.Run("dpkg --remove greeter >&2; gpasswd --delete app operators; usermod --shell /bin/false app; " +
		"echo 128 >/proc/sys/net/core/somaxconn; echo other >/etc/app/greeting")
	run("drift").Want(s.t, 1, "would-change", "package greeter", "not in group operators", "shell /bin/false",
		"sysctl net.core.somaxconn", "128", "file /etc/app/greeting", "other content")
	s.Berth("events", "--node", "m1").Want(s.t, 0, "node.drifted")
	run("repair").Want(s.t, 0, "changed")
	run("drift").Want(s.t, 0, "unchanged")
	s.Berth("events", "--node", "m1").Want(s.t, 0, "node.repaired")
}

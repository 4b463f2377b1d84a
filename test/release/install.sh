#!/bin/bash
# Installs the Debian package on a machine with systemd, runs a program and a container through the services, and
# removes it again. The commands for users are those of the page docs/guide/install.md. scripts/check-release runs this
# script in a virtual machine as root. The folder of the script has install.md, the package and the archive of a
# release, service.yaml and web.tar.
set -euo pipefail
cd "$(dirname "$0")"
export HOME=/root DEBIAN_FRONTEND=noninteractive

step() { echo "release: $* (at $SECONDS s)"; }
fail() {
	echo "release: FAILED: $*"
	journalctl --no-pager -n 40 -u berth-server -u berth-agent || true
	berth status || true
	berth ps || true
	exit 1
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR
# until_true repeats a command until it succeeds, for at most ten minutes.
until_true() {
	local end=$((SECONDS + 600))
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || fail "$* did not succeed within ten minutes"
		sleep 1
	done
}
# equal compares what is and what should be.
equal() { [[ $2 == "$3" ]] || fail "$1 is \"$2\", want \"$3\""; }
state() { systemctl is-active "$1" || true; }
enabled() { systemctl is-enabled "$1" 2>/dev/null || true; }
# tasks prints the id, the process and the start of each task's main process.
tasks() {
	for cmd in 'sh -c while' '^web$'; do
		{ pgrep -f -o "$cmd" || true; } | while read -r pid; do
			echo "$cmd $pid $(cut -d' ' -f22 "/proc/$pid/stat")"
		done
	done
}
# page runs the commands of a block of the page, "```sh step=NAME", with the version of this release.
version=$(ls berth_*_amd64.deb)
version=${version#berth_}
version=${version%_amd64.deb}
page() {
	local commands
	commands=$(awk -v begin="\`\`\`sh step=$1" '$0 == "```" { on = 0 } on { print } $0 == begin { on = 1 }' install.md |
		sed -E "s/berth_[0-9]+\.[0-9]+\.[0-9]+_/berth_${version}_/g")
	[[ -n $commands ]] || fail "the page has no step $1"
	bash -euxc "$commands" || fail "step $1 of the page"
}

# apt asks nothing, and installs the package again where a user would have a newer one.
printf '%s\n' 'quiet "2";' 'APT::Get::Assume-Yes "true";' 'APT::Get::ReInstall "true";' \
	'APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/90release

step "install"
page install
berth version
for unit in berth-server berth-agent berth-standalone; do
	equal "$unit after the installation" "$(state $unit) $(enabled $unit)" "inactive disabled"
done
getent passwd berth >/dev/null || fail "the user berth is missing"
equal "owner and mode of the server's folder" "$(stat -c '%U %a' /var/lib/berth/server)" "berth 700"
for file in /usr/share/man/man1/berth-node-drain.1.gz /usr/share/bash-completion/completions/berth \
	/usr/share/zsh/vendor-completions/_berth /usr/share/fish/vendor_completions.d/berth.fish; do
	[[ -s $file ]] || fail "$file is missing or empty"
done
bash -n /usr/share/bash-completion/completions/berth
equal "configuration files" "$(dpkg-query -W -f='${Conffiles}' berth | awk '{ print $1 }' | sort | xargs)" \
	"/etc/berth/agent.env /etc/berth/server.env /etc/berth/standalone.env"
systemd-analyze verify --man=no /usr/lib/systemd/system/berth-{server,agent,standalone}.service
systemd-analyze security --no-pager berth-server | tail -n 1

step "start the services"
echo 'BERTH_AGENT_FLAGS=--executor auto --name m1' >/etc/berth/agent.env
echo 'BERTH_SERVER_FLAGS=--default-permissions all' >/etc/berth/server.env
page start
until_true berth wait node/m1 --timeout 60s
equal "user of the server" "$(ps -o user= -p "$(systemctl show -P MainPID berth-server)")" berth

step "run a program and a container"
berth image load web.tar --node m1 || berth image load web.tar
page run | cat # no terminal
before=$(tasks)
echo "$before"
equal "number of tasks" "$(wc -l <<<"$before")" 2

step "restart the agent"
systemctl restart berth-agent
until_true berth wait node/m1 --timeout 60s
equal "tasks after a restart of the agent" "$(tasks)" "$before"
step "kill the agent and the server"
systemctl kill --kill-whom=main -s KILL berth-agent berth-server
sleep 3
until_true berth wait node/m1 service/program service/container --timeout 60s
equal "tasks after kills" "$(tasks)" "$before"
[[ $(systemctl show -P NRestarts berth-agent) -ge 1 ]] || fail "systemd did not restart the agent"

step "upgrade"
old=$(systemctl show -P MainPID berth-agent)
page upgrade
[[ $(systemctl show -P MainPID berth-agent) != "$old" ]] || fail "the upgrade did not restart the agent"
until_true berth wait node/m1 service/program service/container --timeout 60s
equal "tasks after an upgrade" "$(tasks)" "$before"
grep -q 'name m1' /etc/berth/agent.env || fail "the upgrade changed agent.env"

step "remove"
page remove
equal "states after the removal" "$(state berth-server) $(state berth-agent)" "inactive inactive"
[[ ! -e /usr/bin/berth ]] || fail "the removal left the binary"
[[ -d /var/lib/berth/server && -e /etc/berth/agent.env ]] || fail "the removal deleted data or settings"
equal "tasks after the removal" "$(tasks)" "$before"

step "install again"
page install
equal "berth-agent after the second installation" "$(state berth-agent) $(enabled berth-agent)" "inactive disabled"
systemctl start berth-server berth-agent
until_true berth wait node/m1 service/program service/container --timeout 60s
equal "tasks after the second installation" "$(tasks)" "$before"

step "purge"
page purge
for path in /var/lib/berth /etc/berth /run/berth /run/berth-secrets /sys/fs/cgroup/berth; do
	[[ ! -e $path ]] || { find $path | head; fail "the purge left $path"; }
done
equal "tasks after the purge" "$(tasks)" ""
! pgrep -a '^berth' || fail "the purge left processes"
! pgrep -a '^containerd-sh' || fail "the purge left containers"
[[ -z $(ip -o link show type bridge)$(nft list tables) ]] || fail "the purge left a bridge or rules"
! grep berth /proc/self/mounts || fail "the purge left mounts"

step "install after the purge"
page install
systemctl start berth-server
until_true berth status
equal "services after the purge" "$(berth status -o json | grep -c '"program"' || true)" 0

step "join a server by its certificate"
ip address add 10.0.0.1/32 dev lo # the machine is both of those on the page
page certificate
until_true berth status
page token
page join
until_true berth wait "node/$(hostname)" --timeout 60s

step "unpack the archive"
page archive
equal "version of the archive" "$(/usr/local/bin/berth version)" "$(/usr/bin/berth version)"
echo "release: passed after $SECONDS s"

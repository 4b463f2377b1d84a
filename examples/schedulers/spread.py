#!/usr/bin/env python3
"""A scheduler for Berth, which spreads the tasks of each group over the nodes of a domain: docs/guide/schedulers.md."""
import argparse, collections, contextlib, http.client, itertools, json, os, pathlib, queue, socket, ssl, sys
import threading, time
from urllib import error, parse, request

RETRY, BATCH = 1, 1000  # seconds after a fault, commands of a proposal
ROOM = ("cpu_milli", "memory_bytes", "disk_bytes")


class Fenced(Exception): """The domain does not take the proposals of this claim any more."""


class Scheduler:
    def __init__(self, options):
        self.options, self.servers = options, options.server.split(",")
        self.instance = options.instance or f"{socket.gethostname()}-{os.getpid()}"
        self.lines, self.nodes, self.groups, self.refused = queue.Queue(), {}, {}, {}
        self.revision, self.base, self.claimed = None, "", False  # revisions of the domain's record and of the state
        tls = ssl.create_default_context(cafile=options.ca_file)
        self.http = request.build_opener(request.ProxyHandler({}), request.HTTPSHandler(context=tls))
        self.http.addheaders = [("Authorization", "Bearer " + pathlib.Path(options.token_file).read_text().strip())]

    def call(self, path, message=None):
        """Sends a request to the first server, which passes it on to the leader of the domain."""
        body = None if message is None else json.dumps(message).encode()
        try:
            return self.http.open(f"{self.servers[0]}/v1/domains/{self.options.domain}{path}", body, timeout=30)
        except error.HTTPError as answer:
            why = json.load(answer).get("detail", "")
            if answer.code == 409:
                raise Fenced(why)
            raise OSError(why)

    def claim(self):
        """Claims the domain, unless a later instance did. Earlier instances are fenced off from now on."""
        with self.call("") as answer:
            now = json.load(answer).get("claim", {})
        if self.claimed and now.get("holder") == self.options.name and now.get("instance") != self.instance:
            sys.exit(f"fenced off: {now['instance']} holds the domain since {now['since']}")
        with self.call("/claim", {"name": self.options.name, "instance": self.instance}) as answer:
            self.revision, self.claimed = json.load(answer)["revision"], True
        print(f"claimed the domain {self.options.domain} at revision {self.revision}", flush=True)

    def follow(self):
        """Reads the state of the domain and its changes, for ever. Lines up to a revision belong together."""
        since = ""
        while True:
            try:
                with self.call("/state?" + parse.urlencode({"follow": "true", "since": since})) as lines:
                    batch = []
                    for line in map(json.loads, lines):
                        batch.append(line)
                        if "revision" in line:
                            since = line["revision"]
                            self.lines.put(batch)
                            batch = []
            except (OSError, ValueError, http.client.HTTPException) as fault:
                print("the state broke off:", fault, flush=True)
                self.servers.append(self.servers.pop(0))
            time.sleep(RETRY)

    def learn(self, batch):
        for line in batch:
            if line.get("reset"):
                self.nodes, self.groups = {}, {}
            self.nodes.update({node["name"]: node for node in [line.get("node")] if node})
            self.groups.update({group["id"]: group for group in [line.get("group")] if group})
            self.nodes.pop(line.get("removed_node"), None)
            self.groups.pop(line.get("removed_group"), None)
            self.base = line.get("revision", self.base)

    def pending(self):
        """Yields the groups and tasks without a place, the most urgent first."""
        for group in sorted(self.groups.values(), key=lambda g: (-g["priority"], g["id"])):
            for entry in group.get("pending", []):
                if entry.get("held") or entry.get("only_node"):  # Berth places tasks with one possible node itself
                    continue
                name, _, first = entry["task"].rpartition(".")
                for i in range(1 + entry.get("further", 0)):
                    yield group, entry, f"{name}.{int(first) + i}"

    def choose(self, group, entry, task, free, load):
        """Returns the node with room that runs the fewest tasks of the group. Berth checks all that this leaves out."""
        fit = [name for name, node in self.nodes.items() if node["accepts"] and (task, name) not in self.refused
               and name not in entry.get("excluded_nodes", [])
               and all(free[name][r] >= group["demand"][r] for r in ROOM)]
        return min(fit, default=None, key=lambda n: (load[n, group["id"]], -free[n]["memory_bytes"], n))

    def decide(self):
        """Returns commands for the tasks that wait."""
        now, commands, free, load = time.monotonic(), [], {}, collections.Counter()
        self.refused = {pair: until for pair, until in self.refused.items() if until > now}
        for name, node in self.nodes.items():
            free[name] = dict(node["free"])
            load.update((name, t["group"]) for t in node.get("tasks", []))
        for group, entry, task in itertools.islice(self.pending(), BATCH):
            if node := self.choose(group, entry, task, free, load):
                commands.append({"action": "place", "task": task, "node": node, "attempt": entry["attempt"]})
                load[node, group["id"]] += 1
                for r in ROOM:
                    free[node][r] -= group["demand"][r]
            else:
                commands.append({"action": "wait", "task": task, "reason": "no node has room for it"})
        return commands

    def propose(self, commands):
        message = {"domain_revision": self.revision, "base": self.base, "commands": commands}
        with self.call("/proposals", message) as answer:
            results = json.load(answer).get("results", [])
        for command, result in zip(commands, results):
            if not result["accepted"]:
                print(f"{result['task']} on {command.get('node')}: {result['message']}", flush=True)
                if result["code"] != "stale":
                    self.refused[result["task"], command.get("node")] = time.monotonic() + 10

    def run(self):
        threading.Thread(target=self.follow, daemon=True).start()
        sent, due = None, 0  # the last commands, and when they are repeated as a sign of life
        while True:
            try:
                if self.revision is None:
                    self.claim()
                with contextlib.suppress(queue.Empty):
                    self.learn(self.lines.get(timeout=self.options.beat))
                    while True:  # one decision covers all that came
                        self.learn(self.lines.get_nowait())
                commands = self.decide() if self.base else []
                if commands != sent or time.monotonic() >= due:
                    self.propose(commands)
                    sent, due = commands, time.monotonic() + self.options.beat
            except (Fenced, OSError, ValueError, http.client.HTTPException) as fault:
                print("trying again:", fault, flush=True)
                if isinstance(fault, Fenced):
                    self.revision = sent = None
                self.servers.append(self.servers.pop(0))
                time.sleep(RETRY)


if __name__ == "__main__":
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--server", required=True, help="addresses of servers, as https://HOST:7071,…")
    flags.add_argument("--domain", required=True, help="the domain to place")
    flags.add_argument("--name", default="spread", help="the name of the scheduler in the domain")
    flags.add_argument("--instance", help="the name of this process; default its host and number")
    flags.add_argument("--token-file", required=True, help="a file with the access token that the domain names")
    flags.add_argument("--ca-file", help="the authority of the servers; default the system's")
    flags.add_argument("--beat", type=float, default=5, help="seconds between signs of life; default 5")
    Scheduler(flags.parse_args()).run()

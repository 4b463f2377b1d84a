#!/usr/bin/env python3
"""A worker for Berth: it runs tasks of jobs as plain programs, and speaks the protocol of docs/reference/worker.md."""
import argparse, contextlib, fcntl, http.client, json, os, pathlib, queue, random, re, shutil, signal, sqlite3, ssl
import subprocess, threading, time
from urllib import error, request

WIRE, TICK, BARRIER_AGE = 4, 0.1, 30  # the version of the protocol, and seconds
CAN = {"name", "image", "pull", "digest", "command", "args", "dir", "env", "resources", "isolation"}  # of a container
UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
# The shell outlives the worker and keeps the exit code. timeout(1) ends the program at its time limit or after TERM.
SHELL = 'timeout -k "$@" <&0 & echo $! >pid; wait $!; echo $? >new; mv new exit'


def boot(): return time.clock_gettime(time.CLOCK_BOOTTIME)  # unlike the wall clock, nobody can set it
def wall(): return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
def seconds(text): return sum(float(n) * UNITS[unit] for n, unit in re.findall("([0-9.]+)([a-zµ]+)", text))  # "1m30s"
def age(assignment): return [*(assignment["token"][part] for part in "gie"), assignment["rev"]]  # P1.6, P6.6


class Worker:
    """One thread owns all state. What the next run must know is on disk before this run reports it or acts on it."""
    def __init__(self, options):
        self.options, self.servers, self.answered, self.definitions = options, options.server.split(","), boot(), {}
        self.db = sqlite3.connect(options.state, timeout=0)  # its lock keeps a second worker from the same tasks
        self.db.executescript("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=EXTRA;"
                              "CREATE TABLE IF NOT EXISTS kept (id INTEGER PRIMARY KEY, value TEXT)")
        self.saved = self.db.execute("SELECT max(value) FROM kept").fetchone()[0]
        self.kept = json.loads(self.saved or '{"session": 0, "seen": [0, 0, 0, 0], "attempts": {}}')
        self.attempts = self.kept["attempts"]
        tls = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            tls.load_cert_chain(options.cert_file)
        self.http = request.build_opener(request.ProxyHandler({}), request.HTTPSHandler(context=tls))
        if options.token_file:
            self.http.addheaders = [("Authorization", "Bearer " + pathlib.Path(options.token_file).read_text().strip())]

    def save(self):
        if (text := json.dumps(self.kept)) != self.saved:
            with self.db:
                self.db.execute("REPLACE INTO kept VALUES (1, ?)", [text])
            self.saved = text

    def call(self, path, message, timeout=10):
        try:
            return self.http.open(self.servers[0] + "/agent/v1/" + path, json.dumps(message).encode(), timeout)
        except error.HTTPError as answer:
            why = json.load(answer)  # with status 409 a newer session was begun: no task ends by this
            self.kept["session"] = max(self.kept["session"], why.get("session", 0))
            raise OSError(why.get("detail"))

    def run(self):
        """Has one session after the other. Tasks run on between them."""
        failures = 0
        while True:
            began = boot()
            try:
                self.serve(self.register())
            except (OSError, ValueError, http.client.HTTPException) as fault:
                print("no session:", fault, flush=True)
            self.servers.append(self.servers.pop(0))  # the next one may answer
            failures = 0 if boot() - began > 60 else failures + 1
            for _ in range(int(min(300, 2**failures) * random.uniform(0.5, 1))):
                self.tend()
                time.sleep(TICK)

    def register(self):
        """Begins a session with the whole state of the node (P6.1, P6.4), and returns the queue of its messages."""
        o, machine, messages = self.options, os.uname(), queue.Queue()
        facts = {"hostname": machine.nodename, "os": "linux", "kernel": machine.release, "version": "worker.py",
                 "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.machine, machine.machine), "cpu": o.cpu,
                 "memory": int(o.memory), "disk": shutil.disk_usage(".").total, "address": o.address,
                 "executors": [{"name": "process"}], "labels": {"worker": "python"}}
        welcome = json.load(self.call("register", {
            "node": o.node, "previous": self.kept["session"], "token": dict(zip("gie", self.kept["seen"])),
            "facts": facts, "tasks": [t["report"] for t in self.attempts.values()], "wire": WIRE, "wire_min": WIRE}))
        self.kept["session"], self.answered = welcome["session"], boot()
        have = {uuid: t["assignment"]["rev"] for uuid, t in self.attempts.items()}
        stream = self.call("assignments", {"node": o.node, "session": welcome["session"], "have": have}, timeout=1200)

        def listen():  # the server sends a ping every ten minutes
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                for line in stream:
                    messages.put(json.loads(line))
            messages.put({"elsewhere": "the stream of assignments ended"})
        threading.Thread(target=listen, daemon=True).start()
        return messages

    def serve(self, messages):
        """Takes assignments and reports, until the session is over or the server does not answer."""
        seq, due, held, acked = 0, 0, 0, {}  # acked holds the reports that the server has
        while True:
            with contextlib.suppress(queue.Empty):
                self.take(messages.get(timeout=TICK))
            self.tend()
            new = {uuid: dict(t["report"]) for uuid, t in self.attempts.items() if t["report"] != acked.get(uuid)}
            if boot() < (held if new else due):
                continue
            seq, asked = seq + 1, boot()
            reply = json.load(self.call("report", {"node": self.options.node, "session": self.kept["session"],
                                                   "seq": seq, "tasks": list(new.values())}))
            self.answered, due = asked, asked + 0.8 * seconds(reply["heartbeat"])
            for uuid, report in new.items():
                t, refused = self.attempts[uuid], reply.get("refused", {}).get(uuid)
                if refused and refused.get("retry") or boot() > asked + BARRIER_AGE:
                    held = boot() + 1  # after so late an answer the leader may have given the attempt up (P4.3)
                    continue
                acked[uuid] = report
                if report["state"] == "starting":
                    self.end(t, "rejected", refused["reason"], refused["message"]) if refused else self.start(t)

    def take(self, message):
        if "over" in message or "elsewhere" in message:
            raise OSError(message)
        if definition := message.get("definition"):
            self.definitions[f"{definition['name']}@{definition['version']}"] = definition
        t = self.attempts.get(message.get("forget", {}).get("uuid"))
        if t and t["report"]["state"] != "running":  # a server that lacks an attempt never stops its program (P6.6)
            shutil.rmtree(self.attempts.pop(t["report"]["uuid"])["folder"], ignore_errors=True)
        a = message.get("assignment")
        if a and (t := self.attempts.get(a["uuid"])):
            if age(a) > age(t["assignment"]):
                t["assignment"] = {"stop": t["assignment"].get("stop"), **a}  # a stop is never withdrawn
        elif a and (a.get("stop") or age(a)[:2] >= self.kept["seen"][:2]):
            self.attempts[a["uuid"]] = t = {
                "assignment": a, "definition": self.definitions.get(a["definition"], {"containers": []}), "cause": None,
                "folder": os.path.abspath(f"{self.options.state}.tasks/{a['uuid']}"), "report": {"state": "starting",
                **{name: a[name] for name in ("task", "attempt", "uuid", "node", "definition", "count", "plan")}}}
            os.makedirs(t["folder"], exist_ok=True)
            containers, others = t["definition"]["containers"], t["definition"].keys() & {"volumes", "checks"}
            if a["owner"]["kind"] != "Job" or len(containers) != 1 or containers[0].keys() - CAN or others:
                self.end(t, "rejected", "no-executor", "the worker runs only jobs of one plain program")
        self.kept["seen"] = max(self.kept["seen"], age(a) if a else [])

    def start(self, t):
        """Starts a program at most once: the intention is on disk before (P4.4)."""
        t.update(begun=boot(), report={**t["report"], "state": "running", "started": wall()})
        self.save()
        a, container = t["assignment"], t["definition"]["containers"][0]
        env = {**container.get("env", {}), **a.get("parameters", {}), "PATH": os.defpath, "BERTH_TASK": a["task"],
               "BERTH_NODE": a["node"], "BERTH_JOB": a["owner"]["name"], "BERTH_INDEX": a["task"].split(".")[-1],
               "BERTH_COUNT": str(a["count"]), "BERTH_ATTEMPT": str(a["attempt"]), "BERTH_ATTEMPT_ID": a["uuid"]}
        grace, limit = seconds(t["definition"].get("grace", "10s")), seconds(a.get("time_limit", ""))
        with open(t["folder"] + "/out", "ab") as out, open(t["folder"] + "/lock", "w+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the shell and the program hold it as long as they run
            subprocess.Popen(["/bin/sh", "-c", SHELL, "task", str(grace), str(limit), "env", "-C",
                              container.get("dir", "."), *container["command"], *container.get("args", [])], env=env,
                             cwd=t["folder"], start_new_session=True, stdin=lock, stdout=out, stderr=out)

    def tend(self):
        """Moves each attempt on by one step, and saves what has changed."""
        fenced = boot() > self.answered + seconds(self.options.fence) and ["failed", "node-down", "no server answered"]
        for t in self.attempts.values():
            state, stop = t["report"]["state"], t["assignment"].get("stop") or {}
            cause = stop and ["cancelled", stop["reason"], stop.get("message", "")] or fenced
            if state == "starting" and stop:
                self.end(t, *cause)
            elif state == "running" and not self.alive(t):
                self.conclude(t, self.read(t, "exit"))
            elif state == "running" and cause and not t["cause"] and (pid := self.read(t, "pid")):
                t["cause"] = cause
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGTERM)
            elif state != "running" and stop.get("ended"):  # the outcome is durable: nobody needs the rest
                shutil.rmtree(t["folder"], ignore_errors=True)
                t["report"]["gone"] = True
        self.save()

    def read(self, t, name):
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(pathlib.Path(t["folder"], name).read_text())

    def alive(self, t):
        with open(t["folder"] + "/lock", "a") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return self.read(t, "exit") is None

    def conclude(self, t, code):
        a, exit = t["assignment"], {"code": -1 if code is None else code, "unknown": code is None, "at": wall()}
        tail = subprocess.run(["tail", "-c", "4096", t["folder"] + "/out"], capture_output=True).stdout
        t["report"].update(log_tail=tail.decode(errors="replace"), containers=[{
            "name": t["definition"]["containers"][0]["name"], "state": "exited", "exit": exit}])
        late = "time_limit" in a and boot() > t["begun"] + seconds(a["time_limit"])
        self.end(t, *(t["cause"]
                      or code is None and ("failed", "unknown-exit", "the end of the program is unknown")  # P4.4
                      or code and late and ("failed", "time-limit", "exceeded its time_limit of " + a["time_limit"])
                      or code and ("failed", "exit", f"the program exited with code {code}")
                      or ("succeeded", "", "")))

    def end(self, t, state, reason, message):
        t["report"].update(state=state, reason=reason, message=message, finished=wall())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in {"server": None, "node": None, "state": None, "token-file": None, "ca-file": None, "memory":
                            1 << 30, "cpu": "1", "cert-file": None, "address": "127.0.0.1", "fence": "9999h"}.items():
        parser.add_argument("--" + option, default=default, required=option in ("server", "node", "state"))
    Worker(parser.parse_args()).run()

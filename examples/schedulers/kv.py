#!/usr/bin/env python3
"""A scheduler for Berth that knows only the KV store of Consul: docs/guide/kv-scheduler.md. It gives each task of the
services of a domain to the node with the fewest tasks."""
import argparse, base64, collections, http.client, json, pathlib, time
from urllib import error, parse, request


class Consul:
    def __init__(self, options):
        self.options = options
        self.token = pathlib.Path(options.token_file).read_text().strip() if options.token_file else ""

    def call(self, method, key, body=None, **query):
        url = f"{self.options.consul}/v1/kv/{self.options.prefix}{parse.quote(key)}?{parse.urlencode(query)}"
        headers = {"X-Consul-Token": self.token} if self.token else {}
        with request.urlopen(request.Request(url, body, headers, method=method), timeout=30) as answer:
            return json.load(answer)

    def read(self, folder):
        """Returns the records below a folder, by the rest of their keys. A folder without records is none for Consul."""
        try:
            records = self.call("GET", folder + "/", recurse="true")
        except error.HTTPError as answer:
            if answer.code != 404:
                raise
            records = []
        start = len(self.options.prefix) + len(folder) + 1
        return {r["Key"][start:]: decode(r["Value"]) for r in records}

    def create(self, key, record):
        """Writes a record, unless the key exists."""
        return self.call("PUT", key, json.dumps(record).encode(), cas=0)


def decode(value):
    """Returns the object of a value, or an empty one."""
    try:
        record = json.loads(base64.b64decode(value or "") or "{}")
    except ValueError:
        record = {}
    return record if isinstance(record, dict) else {}


def wanted(store, domain):
    """Yields the ids of the tasks that the services of the domain are to have."""
    clusters, scales = store.read("cluster"), store.read("scale")
    for key, service in sorted(store.read("service").items()):
        cluster = key.split("/")[0]
        if clusters.get(cluster, {}).get("domain", "default") != domain or service.get("deleted"):
            continue
        count = scales.get(key, service).get("count", 1)
        for index in range(0 if service.get("mode") == "daemon" else count):
            yield f"{cluster}.{service['name']}.{service['generation']}.{index}"


def place(store, options, refused):
    """Writes a record for each task that has no place. Returns the tasks with their nodes."""
    nodes = [name for name, node in store.read("node").items()
             if "/" not in name and node.get("state") == "ready" and node.get("domain") == options.domain]
    scheduled, used, tasks = set(), collections.Counter(), collections.defaultdict(set)
    for key, record in store.read("state").items():
        node, _, task = key.rpartition("/")
        if not node:
            scheduled.add(task)  # state/<task> is there while the task is scheduled
            continue
        tasks[task].add(node)
        used[node] += 1
        if "seal" not in record:
            scheduled.add(task)  # a command that waits
    written = {}
    for task in wanted(store, options.domain):
        if task in scheduled:
            refused.pop(task, None)
            continue
        if not set(nodes) - tasks[task] - refused[task]:
            refused.pop(task, None)  # all nodes were tried: begin again
        free = sorted(set(nodes) - tasks[task] - refused[task], key=lambda node: (used[node], node))
        if free and store.create(f"state/{free[0]}/{task}", {"reason": "it has the fewest tasks"}):
            written[task] = free[0]
            used[free[0]] += 1
            refused[task].add(free[0])  # unless it is scheduled when the store is read again
            print(task, "goes to", free[0], flush=True)
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--consul", default="http://127.0.0.1:8500", help="the URL of an agent of Consul")
    parser.add_argument("--token-file", help="the file with a token that may read the prefix, and write state/ in it")
    parser.add_argument("--prefix", default="berth/", help="the prefix of Berth's keys")
    parser.add_argument("--domain", default="default", help="the domain whose tasks to place")
    options = parser.parse_args()
    store, refused = Consul(options), collections.defaultdict(set)
    while True:
        try:
            place(store, options, refused)
        except (OSError, ValueError, http.client.HTTPException) as fault:
            print("Consul does not answer:", fault, flush=True)
        time.sleep(1)


if __name__ == "__main__":
    main()

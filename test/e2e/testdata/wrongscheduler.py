#!/usr/bin/env python3
"""A scheduler with a fault, which FAULT names: the suite of schedulers has to find it."""
import argparse, os, pathlib, sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "schedulers"))
import spread

FAULT = os.environ["FAULT"]


class Wrong(spread.Scheduler):
    def claim(self):
        if FAULT == "greedy":  # it takes the domain back from a later instance
            self.claimed = False
        super().claim()

    def choose(self, group, entry, task, free, load):
        if FAULT == "blind":  # it does not look whether nodes accept tasks
            self.nodes = {name: dict(node, accepts=True) for name, node in self.nodes.items()}
        if FAULT == "stubborn":  # it repeats what was refused
            self.refused = {}
        return super().choose(group, entry, task, free, load)

    def learn(self, batch):
        if FAULT == "nostalgic":  # it keeps what it knew when the whole state is sent again
            batch = [{key: value for key, value in line.items() if key != "reset"} for line in batch]
        super().learn(batch)
        if FAULT == "upside-down":  # the least urgent tasks come first
            self.groups = {name: dict(group, priority=-abs(group["priority"])) for name, group in self.groups.items()}

    def propose(self, commands):
        if FAULT == "mute" and not commands:  # it sends no signs of life
            return
        for _ in range(100 if FAULT == "busy" else 1):  # it repeats proposals without a pause
            super().propose(commands)


flags = argparse.ArgumentParser()
for name in ("server", "domain", "name", "instance", "token-file"):
    flags.add_argument("--" + name)
flags.set_defaults(ca_file=None, beat=1)
Wrong(flags.parse_args()).run()

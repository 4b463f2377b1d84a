#!/usr/bin/python
"""Ansible module: brings a Berth node or fleet to a directory of manifests."""

import json

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: berth_converge
short_description: Bring a Berth node or fleet to a directory of manifests
description:
  - Runs C(berth converge) and reports what it changed. Needs the program C(berth) on the host.
  - A broken manifest changes nothing and fails the task with the file, line and column of every fault.
options:
  directory:
    description: Directory of manifests on the host.
    type: path
    required: true
  name:
    description: Name of the directory, by which C(prune) finds what it brought. The default is its last part.
    type: str
  prune:
    description: Also delete what an earlier run brought and no manifest has any more.
    type: bool
    default: false
  detach:
    description: Do not wait until services are healthy and jobs have succeeded.
    type: bool
    default: false
  timeout:
    description: How long to wait, such as C(5m).
    type: str
  addr:
    description: Address of the server. The default is the socket of the host.
    type: str
  executable:
    description: Path of the program.
    type: str
    default: berth
"""

RETURN = r"""
objects:
  description: Every object of the manifests with its action (create, update, none or delete) and its diff.
  type: list
  returned: always
failure:
  description: Why the run failed, with the faults of the manifests and the unhealthy services and jobs.
  type: dict
  returned: on failure
"""


def describe(result):
    """Returns the differences as text."""
    lines = []
    for entry in result["objects"]:
        if entry["action"] == "none":
            continue
        lines.append("%s %s" % (entry["action"], entry["object"]))
        for field in entry.get("diff", []):
            lines.append("    %s: %s -> %s" % (field["path"], field.get("old", ""), field.get("new", "")))
    return "".join(line + "\n" for line in lines)


def explain(failure):
    """Returns a failure as text, with the place of each fault."""
    lines = [failure["message"]]
    for fault in failure.get("faults", []):
        place = [str(fault[part]) for part in ("file", "line", "column") if part in fault]
        lines.append(": ".join([":".join(place)] + [fault[part] for part in ("path", "message") if part in fault]))
    return "\n".join(lines)


def main():
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str"},
            "prune": {"type": "bool", "default": False},
            "detach": {"type": "bool", "default": False},
            "timeout": {"type": "str"},
            "addr": {"type": "str"},
            "executable": {"type": "str", "default": "berth"},
        },
        supports_check_mode=True,
    )
    options = module.params
    command = [module.get_bin_path(options["executable"], required=True), "converge", options["directory"], "-o", "json"]
    for flag in ("prune", "detach"):
        if options[flag]:
            command.append("--" + flag)
    for flag in ("name", "timeout", "addr"):
        if options[flag]:
            command.extend(["--" + flag, options[flag]])
    if module.check_mode:
        command.append("--check")
    code, stdout, stderr = module.run_command(command)
    try:
        result = json.loads(stdout)
    except ValueError:
        module.fail_json(msg=stderr.strip() or stdout.strip(), rc=code, cmd=command)
    changed, objects = result["changed"], result["objects"]
    if code not in (0, 2):
        failure = result.get("failure", {"message": stderr.strip()})
        module.fail_json(msg=explain(failure), rc=code, changed=changed, objects=objects, failure=failure)
    # Ansible takes every rc but 0 for a failure, so the result has none.
    module.exit_json(changed=changed, objects=objects, diff={"prepared": describe(result)})


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""The table of hostile actions in doc/security.md, out of what the probe says of itself.

    tests/e2e/hostile_table.py PROBE            prints it
    tests/e2e/hostile_table.py PROBE --write    puts it into doc/security.md

PROBE is tests/e2e/probes/hostile.c, compiled (gcc -O1 -static). suite_hostile.py fails where the table is another.
"""

import json
import os
import re
import subprocess
import sys

DOC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "doc", "security.md")
BEGIN, END = "<!-- The table: tests/e2e/hostile_table.py writes it. -->\n", "<!-- The table ends. -->\n"


def actions(probe):
    """Every action, in the order of the source."""
    said = subprocess.run([probe, "--list"], stdout=subprocess.PIPE, check=True, timeout=30, encoding="utf-8")
    return [json.loads(line) for line in said.stdout.splitlines()]


def cell(outcomes):
    if outcomes.startswith("none: "):
        return "no control: " + outcomes[len("none: "):]
    return ", ".join(word if " " in word else f"`{word}`" for word in outcomes.split("|"))


def table(listed):
    lines = []
    groups = list(dict.fromkeys(action["group"] for action in listed))
    lines.append(f"{len(listed)} actions, in {len(groups)} groups.\n")
    for group in groups:
        of_group = [action for action in listed if action["group"] == group]
        lines.append(f"\n### {group.capitalize()} ({len(of_group)})\n\n")
        lines.append("| action | what is tried | walls | answer in `nsbox run` | root on the host |\n")
        lines.append("| --- | --- | --- | --- | --- |\n")
        lines += [f"| `{action['id']}` | {action['what']} | {action['walls']} | {cell(action['inside'])} | "
                  f"{cell(action['control'])} |\n" for action in of_group]
    return "".join(lines) + "\n"


def in_document(text):
    """What stands between the two marks."""
    found = re.search(re.escape(BEGIN) + "(.*)" + re.escape(END), text, re.S)
    if not found:
        raise ValueError("doc/security.md has no place for the table")
    return found


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit(__doc__)
    made = table(actions(sys.argv[1]))
    if len(sys.argv) == 2:
        print(made, end="")
        return
    with open(DOC, encoding="utf-8") as file:
        text = file.read()
    place = in_document(text).span(1)
    with open(DOC, "w", encoding="utf-8") as file:
        file.write(text[:place[0]] + made + text[place[1]:])


if __name__ == "__main__":
    main()

"""Reads lines.txt (its format is described at its top) and the row ids of doc/differences.md."""

import fnmatch
import re
import shlex
import signal
import sys


class Line:
    """One command line with its surroundings and what is known about it."""

    def __init__(self, name, why, group, number):
        self.name, self.why, self.group, self.number = name, why, group, number
        self.run, self.setup, self.wrap = "", "", ""
        self.fds, self.outs, self.env, self.differs = [], [], [], []
        self.status = {"root": 0, "user": 0}
        self.only, self.cwd, self.umask, self.stdin = None, ".", 0o022, ""
        self.ignore, self.block, self.close, self.rlimit = [], [], [], []
        self.stderr, self.stdout, self.timeout = "exact", "exact", 20
        self.tty, self.holder = False, ""


class Excuse:
    """`ID KEY [OLD => NEW]`: the row that explains a difference in the keys that match."""

    def __init__(self, text, who):
        words = shlex.split(text)
        self.who, self.id, self.key = who, words[0], words[1] if len(words) > 1 else ""
        self.old = self.new = "*"
        if not self.key:
            raise ValueError(f"`differs: {text}` names no key")
        if len(words) > 2:
            if len(words) != 5 or words[3] != "=>":
                raise ValueError(f"`differs: {text}` is not ID KEY OLD => NEW")
            self.old, self.new = words[2], words[4]

    def matches(self, key, old, new):
        """Compares one difference with the excuse; `-` stands for a key that is missing.

        A lone `*` excuses a run that ends differently, but nothing that stays behind on the
        host: that is named.
        """
        if self.key == "*" and re.match(r"tree\.|left$|out\.", key):
            return False

        def fits(pattern, value):
            return fnmatch.fnmatchcase("-" if value is None else value, pattern)

        return fnmatch.fnmatchcase(key, self.key) and fits(self.old, old) and fits(self.new, new)


TEXTS = ("run", "setup", "wrap", "cwd", "only", "stdin", "stderr", "stdout", "holder")


def parse_status(text):
    """`1`, or `root=0 user=1`."""
    if "=" not in text:
        return {"root": int(text), "user": int(text)}
    pairs = dict(word.split("=") for word in text.split())
    return {who: int(pairs[who]) for who in ("root", "user") if who in pairs}


def set_field(line, key, value):
    key, _, who = key.partition("[")
    who = who.rstrip("]") or None
    if key in TEXTS:
        setattr(line, key, value)
    elif key == "fd":
        number, kind, *rest = value.split(" ", 2)
        line.fds.append((int(number), kind, rest[0] if rest else ""))
    elif key == "out":
        line.outs.append(int(value))
    elif key == "env":
        line.env += shlex.split(value)
    elif key == "differs":
        line.differs.append(Excuse(value, who))
    elif key == "status":
        line.status.update(parse_status(value))
    elif key == "umask":
        line.umask = int(value, 8)
    elif key == "timeout":
        line.timeout = float(value)
    elif key == "tty":
        line.tty = value == "yes"
    elif key in ("ignore", "block"):
        setattr(line, key, [getattr(signal, "SIG" + name) for name in value.split()])
    elif key == "close":
        line.close = [int(number) for number in value.split()]
    elif key == "rlimit":
        line.rlimit.append(tuple(value.split()))
    else:
        raise ValueError(f"unknown field {key!r}")


class Reader:
    """Collects the lines, the macros and the excuses that hold for all lines."""

    def __init__(self, path):
        self.path, self.lines, self.macros, self.everywhere = path, [], {}, []
        self.group, self.field = "", None

    def read(self):
        with open(self.path, encoding="utf-8") as file:
            for number, raw in enumerate(file, 1):
                text = raw.rstrip("\n")
                if text.strip() and not text.lstrip().startswith("#"):
                    self.take(text, number)
        self.finish()
        self.check()

    def fail(self, number, problem):
        sys.exit(f"{self.path}:{number}: {problem}")

    def take(self, text, number):
        if text.startswith("      ") and self.field:
            self.field[2] += " " + text.strip()
            return
        self.finish()
        if text.startswith("== "):
            self.group = text[3:].strip()
        elif text.startswith("define "):
            _, name, value = text.split(" ", 2)
            self.macros[name] = value
        elif match := re.match(r"everywhere(?:\[(root|user)\])? (.*)", text):
            self.everywhere.append(Excuse(match[2], match[1]))
        elif text.startswith("  "):
            key, colon, value = text.strip().partition(":")
            if not colon or not self.lines:
                self.fail(number, "expected `key: value`")
            self.field = [self.lines[-1], key, value.strip(), number]
        else:
            name, _, why = text.partition(" ")
            self.lines.append(Line(name, why.strip(), self.group, number))

    def finish(self):
        """Ends a field, which may have gone on over several rows."""
        if self.field:
            line, key, value, number = self.field
            self.field = None
            try:
                set_field(line, key, value)
            except (ValueError, KeyError, AttributeError) as error:
                self.fail(number, error)

    def check(self):
        seen = set()
        for line in self.lines:
            if line.name in seen:
                self.fail(line.number, f"the name {line.name} is used twice")
            if not line.why:
                self.fail(line.number, "a line needs a reason")
            seen.add(line.name)


def parse_lines(path):
    reader = Reader(path)
    reader.read()
    return reader.lines, reader.macros, reader.everywhere


def expand(text, macros):
    """Replaces `$NAME` where NAME is a macro; other dollars belong to shell scripts.

    Macros may use macros.
    """
    for _ in range(8):
        text, count = re.subn(r"\$([A-Z][A-Z0-9_]*)\b", lambda m: macros.get(m[1], m[0]), text)
        if not count:
            break
    return text


def table_ids(path):
    """The row ids of doc/differences.md: those that must show side by side, and all."""
    shown, every, part = set(), set(), ""
    with open(path, encoding="utf-8") as file:
        for text in file:
            if text.startswith("## "):
                part = text
            cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
            match = re.fullmatch(r"D-[A-Za-z0-9.-]+", cells[0])
            if text.startswith("|") and match:
                if match[0] in every:
                    sys.exit(f"{path}: the id {match[0]} is used twice")
                every.add(match[0])
                if part.startswith("## Shown"):
                    shown.add(match[0])
    return shown, every

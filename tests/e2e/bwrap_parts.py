"""What several suites about the bwrap command line share."""

import json
import os

# The set-up statements hold whatever is unshared on top.
EXTRA_SETS = ((), ("--unshare-user-try",), ("--unshare-pid",),
              ("--unshare-user-try", "--unshare-pid"))


def recursive(ctx):
    """A sandbox that is uid 0 with every capability of a user namespace, in which the program
    starts itself again. What follows are the options of the inner sandbox."""
    return (ctx.bwrap, "--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--bind",
            "/", "/", "--bind", "/proc", "/proc", "--", "/proc/self/exe")


class Report:
    """A file for --info-fd or --json-status-fd to write to."""

    def __init__(self, ctx, name):
        self.path = os.path.join(ctx.dir, name)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def text(self):
        with open(self.path, encoding="utf-8") as f:
            return f.read()

    def lines(self):
        """The status lines as one dictionary."""
        merged = {}
        for line in self.text().splitlines():
            merged.update(json.loads(line))
        return merged

    def info(self):
        return json.loads(self.text())

#!/usr/bin/python3
"""Checks who includes whom.

    tools/check-includes.py [TOP]

The sources are layers, and an include may only point downwards:

    tools -> include -> (nothing of src)
    src/runtime -> src/{ns,mount,net,pty,rootfs} -> src/sys

The table below is that picture; what it does not allow is an error. Tests may see everything.
"""

import os
import re
import sys

# What every layer may name: the error type is part of the public interface.
VOCABULARY = "nsbox/error.hpp"

# For each directory: how the project's headers that it may include begin. A directory may always
# include its own headers. The longest matching key counts.
ALLOWED = {
    "include": [],
    "tools": ["nsbox/"],
    "src/runtime": ["nsbox/", "ns/", "mount/", "net/", "pty/", "sys/"],
    # pid 1 is a program of its own without any library: what it shares with its supervisor are
    # the packet between the two, the last steps before a command and the end of a control group,
    # plain data and calls all of them.
    "src/runtime/init": ["sys/", "runtime/command.hpp", "runtime/group_files.hpp",
                         "runtime/packet.hpp"],
    # It holds the capability names that the public header offers.
    "src/ns": ["sys/", VOCABULARY, "nsbox/spec.hpp", "nsbox/seccomp.hpp"],
    "src/mount": ["sys/", VOCABULARY],
    # A published port is one of the description's.
    "src/net": ["sys/", VOCABULARY, "nsbox/spec.hpp"],
    "src/pty": ["sys/", VOCABULARY],
    # It makes what its public header describes.
    "src/rootfs": ["sys/", VOCABULARY, "nsbox/rootfs.hpp"],
    "src/sys": [VOCABULARY],
    "tests": ["nsbox/", "runtime/", "ns/", "mount/", "net/", "pty/", "rootfs/", "sys/", "tests/"],
}

# What an include path of the project can begin with, and the directory it means.
PREFIXES = {"nsbox/": "include/nsbox", "runtime/": "src/runtime", "ns/": "src/ns",
            "mount/": "src/mount", "net/": "src/net", "pty/": "src/pty", "rootfs/": "src/rootfs", "sys/": "src/sys",
            "tests/": "tests"}

# Public headers are read by other people's compilers with nothing of ours installed but them.
# <sys/types.h> is where pid_t and uid_t come from.
PUBLIC_EXTRA = {"tl/expected.hpp", "sys/types.h"}

# Headers that the build makes; each lies in the build directory of its user.
GENERATED = {"init_bytes.hpp", "default_policy.hpp", "strict_policy.hpp", "precompiled_policies.hpp"}

SUFFIXES = (".cpp", ".hpp", ".c", ".h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def sources(top):
    for root in ("include", "src", "tools", "tests"):
        for folder, _, files in os.walk(os.path.join(top, root)):
            for name in sorted(files):
                if name.endswith(SUFFIXES):
                    yield os.path.relpath(os.path.join(folder, name), top)


def rule_of(path):
    keys = [key for key in ALLOWED if path.startswith(key + "/")]
    return max(keys, key=len) if keys else None


def project_prefix(top, quote, target):
    """The project prefix of an include, or None when it names something of the system."""
    for prefix in PREFIXES:
        if target.startswith(prefix):
            # <net/if.h> and <sys/mount.h> are the C library's, "sys/fd.hpp" is ours.
            if quote == '"' or os.path.exists(os.path.join(top, PREFIXES[prefix],
                                                           target[len(prefix):])):
                return prefix
    return None


def check_public(path, quote, target):
    """A public header: the standard library, the C library's plain names, tl::expected."""
    if quote == '"':
        return None if target.startswith("nsbox/") else "a public header includes only public ones"
    if target in PUBLIC_EXTRA or target.startswith("nsbox/"):
        return None
    if "/" not in target and (not target.endswith(".h") or path.endswith(".h")):
        return None
    return "a public header includes only the standard library, tl::expected and public headers"


def check_line(top, path, quote, target):
    rule = rule_of(path)
    if rule == "include":
        return check_public(path, quote, target)
    if target.startswith(".") or "/../" in target:
        return "includes are written from the root of src, not relative"
    prefix = project_prefix(top, quote, target)
    if prefix is None:
        beside = os.path.join(top, os.path.dirname(path), target)
        if quote == '"' and target not in GENERATED and not os.path.exists(beside):
            return "no such header"
        return None
    own = f"{PREFIXES[prefix]}/{target[len(prefix):]}".startswith(rule + "/")
    if own or target.startswith(tuple(ALLOWED[rule])):
        return None
    return f"{rule} may include {', '.join(ALLOWED[rule]) or 'only itself'}"


def main():
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    seen = errors = 0
    for path in sources(top):
        with open(os.path.join(top, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                seen += 1
                error = check_line(top, path, *match.groups())
                if error:
                    errors += 1
                    print(f"{path}:{number}: {match[2]}: {error}")
    if not seen:
        print("check-includes: found no include to check")
        return 1
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

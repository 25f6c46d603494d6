"""The bwrap contract, part A: seccomp filters. A probe makes one system call with arguments that
the kernel refuses; the errno tells whether the kernel or a filter answered."""

import errno
import os

from bpf import TIOCSTI, USUAL, allow_list, deny_list
from harness import case

BAD_POINTER = ("chmod", "chroot", "prctl")
BAD_DESCRIPTOR = ("ioctl-tiocnotty", "ioctl-tiocsti", "ioctl-tiocsti-high", "listen")
# The way to change a file's mode that the probe uses depends on what the architecture has.
CHMOD = "chmod" if "chmod" in USUAL else "fchmodat"

UNFILTERED = dict({name: (errno.EFAULT,) for name in BAD_POINTER},
                  **{name: (errno.EBADF,) for name in BAD_DESCRIPTOR},
                  clone3=(errno.EFAULT, errno.ENOSYS))
ALLOWED = allow_list(USUAL, errno.ENOSYS)


def denied(*more):
    return deny_list((CHMOD, "chroot", *more), errno.ECONNREFUSED, ioctl_requests=(TIOCSTI,))


def check(ctx, options, fds, **expected):
    """Makes every call of the probe in a sandbox with these options. `expected` has the errnos
    that differ from those without a filter, with underscores for the dashes."""
    wanted = dict(UNFILTERED, **{name.replace("_", "-"): (number,)
                                 for name, number in expected.items()})
    probe = os.path.join(ctx.probe_dir, "try_syscall")
    for call, numbers in wanted.items():
        result = ctx.bw("--ro-bind", "/", "/", *options, probe, call, fds=fds)
        names = [errno.errorcode.get(n, n) for n in numbers]
        ctx.true(result.rc in numbers,
                 f"{call}: wanted {names}, got {errno.errorcode.get(result.rc)}\n{result}")


@case("A66", "without a filter every call reaches the kernel")
def no_filter(ctx):
    check(ctx, (), {})


@case("A67", "--seccomp loads an allow-list with the calls that programs usually need")
def allow(ctx):
    check(ctx, ("--seccomp", "9"), {9: ALLOWED}, chroot=errno.ENOSYS, listen=errno.ENOSYS,
          clone3=errno.ENOSYS)


@case("A68", "--seccomp loads a deny-list that also denies prctl")
def deny(ctx):
    check(ctx, ("--seccomp", "9"), {9: denied("prctl")}, chmod=errno.ECONNREFUSED,
          chroot=errno.ECONNREFUSED, prctl=errno.ECONNREFUSED, ioctl_tiocsti=errno.ECONNREFUSED,
          ioctl_tiocsti_high=errno.ECONNREFUSED)


@case("A69", "two --add-seccomp-fd are both loaded, a deny-list first and an allow-list last")
def deny_then_allow(ctx):
    check(ctx, ("--add-seccomp-fd", "9", "--add-seccomp-fd", "10"), {9: denied(), 10: ALLOWED},
          chmod=errno.ECONNREFUSED, ioctl_tiocsti=errno.ECONNREFUSED,
          ioctl_tiocsti_high=errno.ECONNREFUSED, chroot=errno.ENOSYS, clone3=errno.ENOSYS,
          listen=errno.ENOSYS)


@case("A70", "two --add-seccomp-fd are both loaded, an allow-list first and a deny-list last")
def allow_then_deny(ctx):
    check(ctx, ("--add-seccomp-fd", "9", "--add-seccomp-fd", "10"),
          {9: ALLOWED, 10: denied("prctl")}, chmod=errno.ECONNREFUSED,
          ioctl_tiocsti=errno.ECONNREFUSED, ioctl_tiocsti_high=errno.ECONNREFUSED,
          chroot=errno.ECONNREFUSED, prctl=errno.ECONNREFUSED, clone3=errno.ENOSYS,
          listen=errno.ENOSYS)


BASE = ("--ro-bind", "/", "/")


def refused(ctx, options, fds, line):
    """The program exits with 1 and prints exactly this line."""
    result = ctx.fails(ctx.bw(*BASE, *options, "true", fds=fds), rc=1)
    ctx.true(line in result.err.splitlines(), f"the line {line!r} is missing\n{result}")


@case("A71", "a descriptor number that is none is an error")
def bad_numbers(ctx):
    ctx.ok(ctx.bw(*BASE, "--add-seccomp-fd", "9", "true", fds={9: denied()}))
    refused(ctx, ("--add-seccomp-fd", "-1"), {}, "bwrap: Invalid fd: -1")
    refused(ctx, ("--seccomp", "0a"), {}, "bwrap: Invalid fd: 0a")


@case("A72", "--seccomp and --add-seccomp-fd exclude each other, even with an empty program")
def exclusive(ctx):
    for first, second in (("--add-seccomp-fd", "--seccomp"), ("--seccomp", "--add-seccomp-fd")):
        refused(ctx, (first, "9", second, "10"), {9: b"", 10: denied()},
                f"bwrap: {second} cannot be combined with {first}")


@case("A73", "the same descriptor cannot be read twice as a filter")
def twice(ctx):
    ctx.ok(ctx.bw(*BASE, "--add-seccomp-fd", "9", "--add-seccomp-fd", "10", "true",
                  fds={9: denied(), 10: denied()}))
    result = ctx.bw(*BASE, "--add-seccomp-fd", "9", "--add-seccomp-fd", "9", "true",
                    fds={9: denied()})
    ctx.fails(result, rc=1, err="^bwrap: Can't read seccomp data: Bad file descriptor")


@case("A74", "a filter whose length is no multiple of 8 is an error")
def odd_length(ctx):
    refused(ctx, ("--add-seccomp-fd", "9", "--add-seccomp-fd", "10"), {9: denied(), 10: b"x"},
            "bwrap: Invalid seccomp data, must be multiple of 8")

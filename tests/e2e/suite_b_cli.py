"""Part B of the checklist, the command line: B1 to B10."""

import os
import re
import struct
import subprocess

from b_util import finish, probe
from harness import case

HELP = r"\Ausage: "


@case("B1", "without a command the help goes to stderr and the status is 1")
def no_command(ctx):
    for options in ((), ("--unshare-pid",)):
        result = ctx.fails(ctx.bw(*options), rc=1, err=HELP)
        ctx.eq(result.out, "", "stdout")
        ctx.true("--unshare-pid" in result.err, f"the help lists the options\n{result}")
    # The control: asked for, the same text goes to stdout and is a success.
    asked = ctx.ok(ctx.bw("--help"))
    ctx.eq(asked.out, result.err, "the two help texts")
    ctx.eq(asked.err, "", "stderr of --help")


@case("B2", "the version is one line, wherever the option stands")
def version(ctx):
    for options in ((), ("--unshare-pid",)):
        result = ctx.ok(ctx.bw(*options, "--version"))
        ctx.eq(result.out, "bubblewrap 0.11.1\n", "stdout")
        ctx.eq(result.err, "", "stderr")


@case("B2", "a bad option before --version is an error")
def version_after_error(ctx):
    result = ctx.fails(ctx.bw("--bogus", "--version"), rc=1, err=r"^bwrap: Unknown option --bogus")
    ctx.eq(result.out, "", "stdout")
    # A bad option behind it is never seen.
    ctx.ok(ctx.bw("--version", "--bogus"))


@case("B3", "a word with a dash that is no option is refused")
def unknown_option(ctx):
    for word in ("-h", "-", "--bogus"):
        result = ctx.fails(ctx.bw(*ctx.RUN, word, "true"), rc=1,
                           err=rf"\Abwrap: Unknown option {word}(?![\w-])")
        ctx.eq(result.out, "", "stdout")
    ctx.ok(ctx.bw(*ctx.RUN, "true"))


@case("B3", "an empty command is looked up and not found")
def empty_command(ctx):
    ctx.fails(ctx.bw(*ctx.RUN, ""), rc=1, err=r"^bwrap: execvp : No such file or directory")


@case("B4", "the missing command is noticed before the conflict of --hostname")
def help_before_second_conflicts(ctx):
    ctx.fails(ctx.bw("--hostname", "x"), rc=1, err=HELP)
    ctx.fails(ctx.bw("--hostname", "x", "true"), rc=1,
              err=r"^bwrap: Specifying --hostname requires --unshare-uts")
    ctx.ok(ctx.bw(*ctx.RUN, "--unshare-uts", "--hostname", "x", "uname", "-n"), out="x")


@case("B4", "the conflict of --userns-block-fd is noticed before the missing command")
def first_conflicts_before_help(ctx):
    ctx.fails(ctx.bw("--userns-block-fd", "3"), rc=1,
              err=r"\Abwrap: --userns-block-fd requires --unshare-user")
    ctx.fails(ctx.bw("--unshare-user", "--userns-block-fd", "3"), rc=1,
              err=r"\Abwrap: --userns-block-fd requires --info-fd")


@case("B5", "the last piece of an --args stream needs no NUL, and an empty stream adds nothing")
def args_ends(ctx):
    ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "test", "-d", "/tmp/q", fds={9: "--dir\0/tmp/q"}))
    ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "test", "-d", "/tmp/q", fds={9: "--dir\0/tmp/q\0"}))
    ctx.fails(ctx.bw(*ctx.RUN, "--args", "9", "test", "-d", "/tmp/q", fds={9: ""}), rc=1)
    ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "true", fds={9: ""}))


STOPS = (("a --", "--"), ("a stray word", "stray"), ("an empty word", ""))


@case("B5", "what follows a stop word in an --args stream is ignored, and parsing goes on after it")
def args_stop(ctx):
    for what, word in STOPS:
        stream = f"--dir\0/tmp/q\0{word}\0--dir\0/tmp/r\0"
        result = ctx.bw(*ctx.RUN, "--args", "9", "--dir", "/tmp/s", "ls", "/tmp",
                        fds={9: stream})
        ctx.ok(result)
        ctx.eq(result.out.split(), ["q", "s"], f"directories with {what}")


@case("B5", "a warning names the words of an --args stream that are ignored")
def args_stop_warns(ctx):
    stream = "--dir\0/tmp/q\0stray\0--dir\0/tmp/r\0"
    result = ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "true", fds={9: stream}))
    ctx.true(re.search(r"^bwrap: .*(stray|ignored)", result.err, re.M), f"no warning\n{result}")
    quiet = ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "true", fds={9: "--dir\0/tmp/q"}))
    ctx.eq(quiet.err, "", "stderr when nothing is ignored")


@case("B5", "--args inside an --args stream is fatal")
def args_nested(ctx):
    ctx.fails(ctx.bw(*ctx.RUN, "--args", "9", "true", fds={9: "--args\0" "8", 8: ""}), rc=1,
              err=r"^bwrap: --args not supported in arguments file")


@case("B5", "an option in an --args stream never takes its argument from the command line")
def args_cut_off(ctx):
    ctx.fails(ctx.bw(*ctx.RUN, "--args", "9", "/tmp/q", "true", fds={9: "--dir"}), rc=1,
              err=r"^bwrap: --dir takes an argument")
    ctx.ok(ctx.bw(*ctx.RUN, "--args", "9", "true", fds={9: "--dir\0/tmp/q"}))


@case("B5", "an --args stream from a slow pipe is read to its end")
def args_slow_pipe(ctx):
    read, write = os.pipe()
    proc = ctx.bw_popen(*ctx.RUN, "--args", "9", "ls", "/tmp", fds={9: read})
    os.close(read)
    for piece in (b"--dir\0/tmp/on", b"e\0--d", b"ir\0/tmp/two"):
        os.write(write, piece)
        try:
            # A program that takes the first piece for all of it does not wait here.
            proc.wait(0.15)
        except subprocess.TimeoutExpired:
            pass
    os.close(write)
    ctx.eq(ctx.ok(finish(ctx, proc)).out.split(), ["one", "two"], "directories")


@case("B5", "the descriptor of --args is closed for the command and for a second use")
def args_closed(ctx):
    result = ctx.ok(ctx.bw("--bind", "/", "/", "--args", "9", probe(ctx), "fds",
                           fds={9: "--unshare-uts", 10: "kept"}))
    numbers = [int(line.split()[0]) for line in result.out.splitlines()]
    ctx.eq(numbers, [0, 1, 2, 10], "the command's descriptors")
    ctx.fails(ctx.bw(*ctx.RUN, "--args", "9", "--args", "9", "true", fds={9: "--unshare-uts"}),
              rc=1, err=r"^bwrap: Can't read --args data: Bad file descriptor")


@case("B6", "--perms before --args applies to the stream's first option")
def perms_across_args(ctx):
    ctx.ok(ctx.bw(*ctx.RUN, "--perms", "0711", "--args", "9", "stat", "-c", "%a", "/tmp/q",
                  fds={9: "--dir\0/tmp/q"}), out="711")


@case("B6", "--perms before an empty --args stream is fatal")
def perms_before_empty_args(ctx):
    message = r"^bwrap: --perms must be followed by an option that creates a file"
    ctx.fails(ctx.bw(*ctx.RUN, "--perms", "0711", "--args", "9", "--dir", "/tmp/q", "true",
                     fds={9: ""}), rc=1, err=message)
    ctx.fails(ctx.bw(*ctx.RUN, "--args", "9", "--dir", "/tmp/q", "true",
                     fds={9: "--perms\0" "0711"}), rc=1, err=message)


@case("B7", "the number of words is not limited: neither the command's nor those of --args")
def many_words(ctx):
    for count in (9000, 9001, 30000):
        words = ["x"] * (count - 6)
        result = ctx.bw("--ro-bind", "/", "/", "sh", "-c", "echo $#", *words)
        ctx.ok(result, out=str(len(words) - 1))
    pairs = 10000
    stream = "".join(f"--setenv\0V{n}\0{n}\0" for n in range(pairs))
    ctx.ok(ctx.bw("--ro-bind", "/", "/", "--args", "9", "printenv", "V0", f"V{pairs - 1}",
                  fds={9: stream}), out=f"0\n{pairs - 1}")


@case("B8", "--size takes C syntax")
def size_syntax(ctx):
    blocks = ("stat", "-f", "-c", "%b %S", "/tmp/q")
    for text, wanted in (("0x10000", 65536), ("0200000", 65536), ("65536", 65536),
                         ("0x10", 4096)):
        result = ctx.ok(ctx.bw(*ctx.RUN, "--size", text, "--tmpfs", "/tmp/q", *blocks))
        count, size = (int(n) for n in result.out.split())
        page = os.sysconf("SC_PAGESIZE")
        ctx.eq(count * size, max(wanted, page), f"--size {text}")


@case("B8", "--perms takes plain octal up to 07777 and nothing else, not even a blank before it")
def perms_syntax(ctx):
    for text in ("-1", "8", "10000", "", " 7", "+7", "7 ", "0x7", "7a"):
        ctx.fails(ctx.bw(*ctx.RUN, "--perms", text, "--dir", "/tmp/q", "true"), rc=1,
                  err=r"^bwrap: --perms takes an octal argument <= 07777")
    for text, mode in (("7", "7"), ("1777", "1777"), ("0751", "751"), ("0", "0")):
        ctx.ok(ctx.bw(*ctx.RUN, "--perms", text, "--dir", "/tmp/q", "stat", "-c", "%a", "/tmp/q"),
               out=mode)
    # The kernel's mkdir knows no set-id bits; a tmpfs takes all of them.
    ctx.ok(ctx.bw(*ctx.RUN, "--perms", "7777", "--tmpfs", "/tmp/q", "stat", "-c", "%a", "/tmp/q"),
           out="7777")


@case("B9", "--level-prefix marks the messages that come after it only")
def level_prefix_order(ctx):
    result = ctx.ok(ctx.bw(*ctx.RUN, "--chdir", "/", "--chdir", "/", "--level-prefix", "--chdir",
                           "/", "true"))
    text = "bwrap: Only the last --chdir option will take effect\n"
    ctx.eq(result.err, text + "<4>" + text, "stderr")


def fatal_runs(ctx):
    """Command lines that die, one for each stage of the work, with what their message names."""
    file = ctx.write("file")
    folder = ctx.mkdir("folder")
    run = ctx.RUN
    return (
        ("--bogus", run + ("--bogus", "true")),
        ("--dir takes an argument", run + ("--dir",)),
        ("--hostname requires", run + ("--hostname", "x", "true")),
        ("Invalid fd", run + ("--args", "x", "true")),
        ("Can't read --args data", run + ("--args", "99", "true")),
        ("Can't find source path", run + ("--bind", "/nonexistent", "/tmp/x", "true")),
        ("Can't mkdir", run + ("--bind", folder, file, "true")),
        ("Can't create file at", run + ("--bind", file, folder, "true")),
        ("Can't remount readonly", run + ("--remount-ro", folder, "true")),
        ("Can't chdir to", run + ("--chdir", "/nonexistent", "true")),
        ("Can't make symlink", run + ("--symlink", "x", file, "true")),
        ("Can't open|Unable to open lock file", run + ("--lock-file", "/nonexistent", "true")),
        ("execvp /nonexistent", run + ("/nonexistent",)),
        ("execvp /nonexistent", run + ("--unshare-pid", "/nonexistent")),
    )


@case("B9", "--level-prefix marks every kind of fatal error with <3>")
def level_prefix_fatal(ctx):
    for what, words in fatal_runs(ctx):
        plain = ctx.fails(ctx.bw(*words), rc=1, err="^bwrap: .*(" + what + ")")
        marked = ctx.fails(ctx.bw("--level-prefix", *words), rc=1)
        lines = marked.err.splitlines()
        ctx.eq(lines, ["<3>" + line for line in plain.err.splitlines()], f"stderr of {words}")


def message_catalogue(pairs):
    """The bytes of a compiled gettext catalogue."""
    pairs = sorted({b"": b"Content-Type: text/plain; charset=UTF-8\n", **pairs}.items())
    ids, texts = b"", b""
    start, count = 28, len(pairs)
    id_table, text_table = [], []
    first_id = start + 16 * count
    first_text = first_id + sum(len(key) + 1 for key, _ in pairs)
    for key, value in pairs:
        id_table.append((len(key), first_id + len(ids)))
        text_table.append((len(value), first_text + len(texts)))
        ids += key + b"\0"
        texts += value + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, count, start, start + 8 * count, 0, 0)
    tables = b"".join(struct.pack("<2I", *entry) for entry in id_table + text_table)
    return head + tables + ids + texts


@case("B10", "the messages are English in a German locale")
def english_only(ctx):
    # A machine need not have a German locale, so this makes one: the C.UTF-8 locale under
    # another name, and a catalogue with the one message, put in its place by an outer sandbox.
    source = next((p for p in ("/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8")
                   if os.path.isdir(p)), None)
    if source is None:
        ctx.skip("there is no C.UTF-8 locale in /usr/lib/locale to make another one from")
    locales = ctx.mkdir("locales")
    ctx.ok(ctx.run("cp", "-r", source, locales + "/de_DE.utf8"))
    text = {b"No such file or directory": b"Das gibt es nicht"}
    ctx.write("catalogues/de/LC_MESSAGES/libc.mo", message_catalogue(text))
    outer = (ctx.bwrap, "--bind", "/", "/", "--tmpfs", "/usr/share", "--bind",
             ctx.dir + "/catalogues", "/usr/share/locale")
    german = dict(os.environ, LOCPATH=locales, LC_ALL="de_DE.UTF-8", LANGUAGE="de")
    control = ctx.fails(ctx.run(*outer, "cat", "/nonexistent", env=german))
    ctx.true("Das gibt es nicht" in control.err, f"the locale works for other programs\n{control}")
    for words in (("--bogus",), ctx.RUN + ("--bind", "/nonexistent", "/x", "true"),
                  ctx.RUN + ("--chdir", "/nonexistent", "true"), ctx.RUN + ("/nonexistent",),
                  ctx.RUN + ("--args", "99", "true")):
        english = ctx.fails(ctx.run(*outer, ctx.bwrap, *words), rc=1, err=r"^bwrap: ")
        result = ctx.fails(ctx.run(*outer, ctx.bwrap, *words, env=german), rc=1)
        ctx.eq(result.err, english.err, f"stderr of {words}")

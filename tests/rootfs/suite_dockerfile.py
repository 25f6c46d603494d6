"""rootfs/build --dockerfile, with programs of the tests' own in the place of podman and the like.

Each takes down how it is called, and acts as the real one would: `build` makes an image, `create`
or `from` a container, `export` writes a small archive, `rm` and `rmi` remove what was made.
"""

import json
import os
import signal

from buildkit import build, content, end_build, ended, members, nothing_left, start_build
from harness import case, descendants

STAND_IN = r'''#!/usr/bin/python3
import io, json, os, sys, tarfile, time
home = os.environ["STAND_IN"]
words = sys.argv[1:]
with open(home + "/calls", "a") as file:
    file.write(json.dumps(words) + "\n")
verb = words[0]
fails = os.environ.get("STAND_IN_FAILS")

def thing(kind, name):
    return f"{home}/things/{kind}:{name}"

def make(kind, name):
    open(thing(kind, name), "x").close()

def archive():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        member = tarfile.TarInfo("./greeting")
        member.size = 6
        tar.addfile(member, io.BytesIO(b"hello\n"))
    return data.getvalue()

if verb == "build":
    print("STEP 1: what a build says")
    make("image", words[words.index("--tag") + 1])
    if os.environ.get("STAND_IN_WAITS"):
        os.rename(home + "/waits.new", home + "/waits")
        time.sleep(1000)
elif verb in ("create", "from"):
    image = words[words.index("--") + 1]
    if not os.path.exists(thing("image", image)):
        sys.exit("no such image: " + image)
    make("container", words[words.index("--name") + 1])
elif verb == "export":
    sys.stdout.buffer.write(archive()[:700 if fails == "export" else None])
elif verb == "unshare":
    os.execvp(words[1], words[1:])
elif verb == "mount":
    os.makedirs(home + "/tree", exist_ok=True)
    with open(home + "/tree/greeting", "w") as file:
        file.write("hello\n")
    print(home + "/tree")
elif verb == "umount":
    print(words[1])
elif verb in ("rm", "rmi"):
    os.unlink(thing("container" if verb == "rm" else "image", words[-1]))
if fails == verb:
    sys.exit("it cannot " + verb)
'''


def prepare(ctx, *engines):
    """Puts the stand-ins, and of the host's programs what no engine is, on a PATH of their own."""
    ctx.mkdir("out")
    ctx.mkdir("things")
    ctx.mkdir("a context")
    ctx.write("a context/Dockerfile", "FROM scratch\n")
    folder = ctx.mkdir("bin")
    for engine in engines:
        ctx.write(f"bin/{engine}", STAND_IN, 0o755)
    for name in os.listdir("/usr/bin"):
        if name not in ("podman", "docker", "buildah"):
            os.symlink(f"/usr/bin/{name}", f"{folder}/{name}")
    return {"PATH": folder, "STAND_IN": ctx.dir}


def calls(ctx):
    with open("calls", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    os.unlink("calls")
    return found


def nothing_made(ctx, *wanted):
    nothing_left(ctx, *wanted)
    ctx.eq(os.listdir("things"), [], "images and containers left")


FILE = ("--dockerfile", "a context/Dockerfile")


@case("dockerfile-engines", "each engine builds, hands over the tree and is left as it was",
      timeout=90)
def _(ctx):
    for engine in ("podman", "docker", "buildah"):
        os.makedirs(engine)
        os.chdir(engine)
        ctx.dir = os.getcwd()
        env = prepare(ctx, engine)
        ctx.mkdir("tmp", 0o1777)
        # Words with blanks and quotes stay words.
        out = "out/it's $(one) archive"
        names = set()
        for _ in range(2):
            ended(ctx, build(ctx, *FILE, "-o", out, **env), 0, "bytes")
            ctx.true("./greeting" in [one.name for one in members(out).values()], "the tree")
            ctx.eq(content(out, "greeting"), "hello\n", "the file")
            nothing_made(ctx, os.path.basename(out))
            made = calls(ctx)
            name = made[0][4]
            ctx.eq(made[0], ["build", "--file", "a context/Dockerfile", "--tag", name, "--",
                             "a context"], "how it builds")
            names.add(name)
            verbs = {words[0] for words in made}
            ctx.true({"build", "rm", "rmi"} <= verbs, f"calls: {verbs}")
        ctx.eq(len(names), 2, "names of the images of two builds")
        os.chdir("..")


@case("dockerfile-context", "CONTEXT may be another folder, --engine another program", only="user")
def _(ctx):
    env = prepare(ctx, "docker", "podman")
    ctx.mkdir("elsewhere")
    ended(ctx, build(ctx, *FILE, "elsewhere", "-o", "out/x", "--engine", "docker", **env), 0)
    ctx.eq(calls(ctx)[0][-1], "elsewhere", "the context")
    nothing_made(ctx, "x")


@case("dockerfile-fail", "where a step fails its words show, and nothing is left", timeout=90)
def _(ctx):
    env = prepare(ctx, "podman")
    ctx.write("out/x", "the older one")
    for verb in ("build", "create", "export"):
        ended(ctx, build(ctx, *FILE, "-o", "out/x", STAND_IN_FAILS=verb, **env), 1,
                f"it cannot {verb}", "failed with")
        nothing_made(ctx, "x")
        with open("out/x", encoding="ascii") as file:
            ctx.eq(file.read(), "the older one", f"the older archive, with {verb}")
    ended(ctx, build(ctx, *FILE, "-o", "out/x", **env), 0)
    ctx.eq(content("out/x", "greeting"), "hello\n", "without a failure")


@case("dockerfile-kill", "a build that is ended by a signal leaves no image", only="user")
def _(ctx):
    env = prepare(ctx, "podman")
    ctx.write("waits.new")
    proc = start_build(ctx, *FILE, "-o", "out/x", STAND_IN_WAITS="yes", **env)
    ctx.until(lambda: os.path.exists("waits"), 60, "the build waiting")
    ctx.true(os.listdir("things"), "no image is there to be removed")
    proc.send_signal(signal.SIGTERM)
    rc, err = end_build(ctx, proc)
    ctx.eq(rc, 143, err)
    ctx.eq(descendants(os.getpid()), [], "processes left")
    nothing_made(ctx)


@case("dockerfile-missing", "without an engine, a Dockerfile or a context, the build says so",
      only="user")
def _(ctx):
    env = prepare(ctx)
    ctx.mkdir("tmp", 0o1777)
    ended(ctx, build(ctx, *FILE, "-o", "out/x", **env), 1,
            "neither podman nor docker nor buildah is here")
    ended(ctx, build(ctx, *FILE, "-o", "out/x", "--engine", "podman", **env), 1,
            "there is no podman here")
    ended(ctx, build(ctx, "--dockerfile", "none", "-o", "out/x", **env), 1,
            "there is no file none")
    ended(ctx, build(ctx, *FILE, "none", "-o", "out/x", **env), 1, "there is no folder none")
    nothing_made(ctx)

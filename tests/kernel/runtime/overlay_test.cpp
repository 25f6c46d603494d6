// Overlays through the library: what is taken in place of an upper folder, and who may have one.

#include "nsbox/nsbox.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/kernel/support/trees.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;

namespace {

/// In a mount namespace of one's own: a tmpfs with folders, and an overlay, which cannot be the
/// upper layer of another.
bool make_stacked()
{
    if (::mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755") < 0 || ::chdir("/mnt") < 0)
        return false;
    for (const char* const folder :
         {"low", "low/sub", "up", "work", "merged", "good", "good/u", "good/w", "other"})
        make_folder(folder);
    make_file("low/a");
    if (::mount("overlay", "/mnt/merged", "overlay", 0,
                "lowerdir=low,upperdir=up,workdir=work,userxattr") < 0)
        return false;
    make_folder("merged/u");
    make_folder("merged/w");
    return ::mount("tmpfs", "/mnt/other", "tmpfs", 0, "mode=755") == 0;
}

Spec with_overlay(const std::string& folder, bool else_temporary, const std::string& script)
{
    Spec spec = full_spec({"/bin/sh", "-c", script});
    spec.operations.emplace_back(Tmpfs{"/tmp"});
    Overlay overlay;
    overlay.lower = {"/mnt/low"};
    overlay.upper_kind = Overlay::Upper::kept;
    overlay.upper = "/mnt/" + folder + "/u";
    overlay.work = "/mnt/" + folder + "/w";
    overlay.destination = "/tmp/x";
    overlay.else_temporary = else_temporary;
    spec.operations.emplace_back(overlay);
    return spec;
}

std::string notes_of(const Spec& spec, std::string& end)
{
    Result<Sandbox> sandbox = Sandbox::start(spec);
    if (!sandbox) {
        end = sandbox.error().message();
        return {};
    }
    std::string text;
    for (const std::string& note : sandbox->notes())
        text += note + "\n";
    end = outcome(sandbox->wait());
    return text;
}

}  // namespace

TEST_CASE(
    "overlay: where a file system cannot be an upper layer, memory is, if that is allowed, and "
    "a note says so")
{
    NEEDS("userns");
    const Ended ended = in_child(Where::own_namespaces, [](Say& say) {
        say("ready", make_stacked() ? "yes" : std::strerror(errno));
        const std::string script = "echo new >/tmp/x/b && cat /tmp/x/b >&2 && exit 7";
        std::string end;
        const auto tell = [&](const std::string& name, const Spec& spec) {
            say(name + " notes", notes_of(spec, end));
            say(name, end);
        };
        tell("allowed", with_overlay("merged", true, script));
        tell("not allowed", with_overlay("merged", false, script));
        say("written", ::access("/mnt/merged/u/b", F_OK));
        tell("good", with_overlay("good", true, script));
        say("good written", ::access("/mnt/good/u/b", F_OK));
        Spec apart = with_overlay("good", true, script);
        std::get<Overlay>(apart.operations.back()).work = "/mnt/other";
        tell("apart", apart);
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    REQUIRE(ended["ready"] == "yes");
    CHECK(ended["allowed"] == "exit 7");
    CHECK(ended["allowed notes"] ==
          "the upper folder /mnt/merged/u is on a file system (overlay) that cannot be an upper "
          "layer: use a folder on ext4, xfs, btrfs or tmpfs; what is written below /tmp/x is kept "
          "in memory and lost at the end\n");
    CHECK(ended["not allowed"].find("the upper folder /mnt/merged/u is on a file system (overlay) "
                                    "that cannot be an upper layer") != std::string::npos);
    CHECK(ended["written"] == "-1");
    CHECK(ended["good"] == "exit 7");
    CHECK(ended["good notes"].empty());
    CHECK(ended["good written"] == "0");
    // That is a mistake, which nothing makes up for.
    CHECK(ended["apart"].find("the work folder /mnt/other is on another file system") !=
          std::string::npos);
}

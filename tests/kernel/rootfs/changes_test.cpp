// What an overlay's upper folder says, on overlays that nsbox makes and the kernel fills.

#include "rootfs/changes.hpp"

#include "nsbox/nsbox.hpp"
#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/kernel/support/trees.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

using namespace nsbox;
using namespace nsbox::tests;
using rootfs::Change;

namespace {

/// Folders of an overlay, below a fresh one that is removed again.
class Layers {
public:
    Layers()
    {
        char name[] = "/var/tmp/nsbox-changes-XXXXXX";
        top_ = ::mkdtemp(name) != nullptr ? name : "";
        for (const char* const folder : {"/lower", "/upper", "/work"})
            make_folder(top_ + folder);
    }
    Layers(const Layers&) = delete;
    Layers& operator=(const Layers&) = delete;
    ~Layers()
    {
        const pid_t child = ::fork();
        if (child == 0) {
            // The kernel leaves a folder without a mode in the work folder.
            ::execl("/bin/sh", "sh", "-c", "chmod -R u+rwx \"$0\"; rm -rf \"$0\"", top_.c_str(),
                    nullptr);
            ::_exit(1);
        }
        ::waitpid(child, nullptr, 0);
    }

    std::string lower(const std::string& name) const { return top_ + "/lower/" + name; }
    std::string upper(const std::string& name) const { return top_ + "/upper/" + name; }

    /// Runs a shell script in a sandbox with the overlay as its working directory.
    std::string change(const std::string& script) const
    {
        Spec spec = full_spec({"/bin/sh", "-euc", script});
        spec.operations.emplace_back(Tmpfs{"/tmp"});
        Overlay overlay;
        overlay.lower = {top_ + "/lower"};
        overlay.upper_kind = Overlay::Upper::kept;
        overlay.upper = top_ + "/upper";
        overlay.work = top_ + "/work";
        overlay.destination = "/tmp/x";
        spec.operations.emplace_back(overlay);
        spec.directory = "/tmp/x";
        return run(spec);
    }

    /// "+added *changed -deleted", folders with a slash behind; or the error.
    std::string changes() const
    {
        const int one = ::open(upper("").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int other = ::open(lower("").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const Result<std::vector<Change>> changes = rootfs::list_changes(one, other);
        ::close(one);
        ::close(other);
        if (!changes)
            return changes.error().message();
        std::string text;
        for (const Change& change : *changes) {
            text += text.empty() ? "" : " ";
            text += change.kind == Change::Kind::added     ? "+"
                    : change.kind == Change::Kind::changed ? "*"
                                                           : "-";
            text += change.path + (change.is_directory ? "/" : "");
        }
        return text;
    }

private:
    std::string top_;
};

void write(const std::string& path, const std::string& text)
{
    std::ofstream{path} << text;
}

/// A lower tree with something of each kind.
void fill_lower(const Layers& layers)
{
    for (const char* const folder : {"deep", "deep/er", "gone", "again", "again/inner"})
        make_folder(layers.lower(folder));
    for (const char* const file :
         {"a", "b", "deep/c", "deep/er/d", "gone/e", "again/f", "again/inner/g", "again/kept"})
        write(layers.lower(file), std::string{"lower "} + file);
    make_link("a", layers.lower("link"));
}

}  // namespace

TEST_CASE("changes: nothing was done, so nothing is listed")
{
    NEEDS("userns");
    const Layers layers;
    fill_lower(layers);
    CHECK(layers.changes().empty());
    REQUIRE(layers.change("cat a; ls deep") == "exit 0");
    CHECK(layers.changes().empty());
}

TEST_CASE("changes: what is made, changed and removed is listed by its path, sorted")
{
    NEEDS("userns");
    const Layers layers;
    fill_lower(layers);
    REQUIRE(layers.change("echo x >new; mkdir -p made/in; echo y >made/in/z; echo more >>a; rm b; "
                          "rm -r gone; chmod 600 deep/c; rm deep/er/d; ln -sf b link; "
                          "ln -s a other; mkfifo fifo; chmod 700 deep/er") == "exit 0");
    CHECK(layers.changes() == "*a -b *deep/c *deep/er/ -deep/er/d +fifo -gone/ *link +made/ "
                              "+made/in/ +made/in/z +new +other");
}

TEST_CASE("changes: a folder that was removed and made again hides what was in it")
{
    NEEDS("userns");
    const Layers layers;
    fill_lower(layers);
    ::chmod(layers.lower("again").c_str(), 0755);
    const std::string kept = layers.lower("again/kept");
    REQUIRE(layers.change("umask 022; rm -r again; mkdir again again/inner; echo new >again/f; "
                          "echo other >again/made") == "exit 0");
    CHECK(layers.changes() == "*again/f -again/inner/g -again/kept +again/made");
}

TEST_CASE("changes: a file in place of a folder and the other way round")
{
    NEEDS("userns");
    const Layers layers;
    fill_lower(layers);
    REQUIRE(layers.change("rm -r gone; echo x >gone; rm b; mkdir b; echo y >b/in") == "exit 0");
    CHECK(layers.changes() == "*b/ +b/in *gone");
}

TEST_CASE("changes: what was only copied up is no change, and one with the same size and time is")
{
    NEEDS("userns");
    const Layers layers;
    fill_lower(layers);
    // Opening for writing copies a file up; a folder comes with what is in it.
    REQUIRE(layers.change("exec 3>>deep/er/d; exec 3>&-") == "exit 0");
    struct ::stat status;
    REQUIRE(::stat(layers.upper("deep/er/d").c_str(), &status) == 0);
    CHECK(layers.changes().empty());
    REQUIRE(layers.change("touch -r deep/er/d /tmp/t; printf 'LOWER deep/er/d' >deep/er/d; "
                          "touch -r /tmp/t deep/er/d") == "exit 0");
    CHECK(layers.changes() == "*deep/er/d");
}

TEST_CASE("changes: what was made and removed again leaves nothing")
{
    NEEDS("userns");
    const Layers layers;
    fill_lower(layers);
    REQUIRE(layers.change("echo x >new; rm new; mkdir d; rmdir d") == "exit 0");
    CHECK(layers.changes().empty());
}

TEST_CASE("changes: attributes count, overlayfs's own do not")
{
    NEEDS("userns");
    const Layers layers;
    fill_lower(layers);
    REQUIRE(layers.change("exec 3>>a; exec 3>>b; exec 3>&-") == "exit 0");
    REQUIRE(::setxattr(layers.upper("a").c_str(), "user.colour", "red", 3, 0) == 0);
    REQUIRE(::setxattr(layers.upper("b").c_str(), "user.overlay.origin", "x", 1, 0) == 0);
    CHECK(layers.changes() == "*a");
}

TEST_CASE("changes: a whiteout may be a file with an attribute")
{
    const Layers layers;
    fill_lower(layers);
    write(layers.upper("a"), "");
    write(layers.upper("b"), "");
    REQUIRE(::setxattr(layers.upper("a").c_str(), "user.overlay.whiteout", "y", 1, 0) == 0);
    CHECK(layers.changes() == "-a *b");
}

TEST_CASE("changes: what nsbox's overlays never make is refused by its path")
{
    const Layers layers;
    fill_lower(layers);
    make_folder(layers.upper("deep"));
    make_folder(layers.upper("deep/moved"));
    REQUIRE(::setxattr(layers.upper("deep/moved").c_str(), "user.overlay.redirect", "/er", 3, 0) ==
            0);
    CHECK(layers.changes().find("Can't compare deep/moved: it has the overlay attribute "
                                "\"redirect\"") == 0);
    REQUIRE(::removexattr(layers.upper("deep/moved").c_str(), "user.overlay.redirect") == 0);
    CHECK(layers.changes() == "+deep/moved/");
}

TEST_CASE("changes: links in the upper folder lead nowhere")
{
    const Layers layers;
    fill_lower(layers);
    make_link("/etc", layers.upper("deep"));
    make_link("/etc/passwd", layers.upper("a"));
    CHECK(layers.changes() == "*a *deep");
}

TEST_CASE("changes: folders nested without end are refused")
{
    const Layers layers;
    const int top = ::open(layers.upper("").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int at = top;
    for (int i = 0; i < 450; ++i) {
        REQUIRE(::mkdirat(at, "d", 0755) == 0);
        const int next = ::openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ::close(at);
        at = next;
    }
    ::close(at);
    CHECK(layers.changes().find("its folders are nested too deeply") != std::string::npos);
}

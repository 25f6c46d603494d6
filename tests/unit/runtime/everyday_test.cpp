#include "nsbox/everyday.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace nsbox;

namespace {

namespace fs = std::filesystem;

/// A folder that is gone at the end.
class Folder {
public:
    Folder()
    {
        char name[] = "/tmp/nsbox-everyday-XXXXXX";
        REQUIRE(::mkdtemp(name) != nullptr);
        path_ = name;
    }
    ~Folder() { fs::remove_all(path_); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    std::string operator/(const char* name) const { return path_ + "/" + name; }
    const std::string& path() const { return path_; }
    void write(const char* name, const std::string& text) const
    {
        fs::create_directories(fs::path(path_ + "/" + name).parent_path());
        std::ofstream(path_ + "/" + name) << text;
    }

private:
    std::string path_;
};

Spec completed(const Everyday& wish, Spec spec = {})
{
    spec.command = {"true"};
    const Result<> done = complete(spec, wish);
    REQUIRE(done.has_value());
    return spec;
}

template <class T>
std::vector<T> all(const Spec& spec)
{
    std::vector<T> found;
    for (const Operation& op : spec.operations)
        if (const T* it = std::get_if<T>(&op))
            found.push_back(*it);
    return found;
}

std::string text_of(const Spec& spec, const std::string& path)
{
    std::string found = "nothing";
    for (const Text& text : all<Text>(spec))
        if (text.destination == path)
            found = text.content;
    return found;
}

}  // namespace

TEST_CASE("everyday: nothing of the host is writable, and the root is made read-only last")
{
    const Spec spec = completed({});
    for (const Bind& bind : all<Bind>(spec)) {
        CAPTURE(bind.source);
        CHECK(bind.access == Access::read_only);
        const bool is_system = bind.source.starts_with("/usr") ||
                               bind.source.starts_with("/etc/") ||
                               bind.source.starts_with("/lib") || bind.source == "/bin" ||
                               bind.source == "/sbin" || bind.source.ends_with("/store");
        CHECK(is_system);
    }
    CHECK(std::get<RemountReadOnly>(spec.operations.back()).destination == "/");
}

TEST_CASE("everyday: no namespace of the caller's, no capability, no variable and no descriptor")
{
    const Spec spec = completed({});
    CHECK(spec.namespaces.user == Own::yes);
    CHECK(spec.namespaces.pid == Own::yes);
    CHECK(spec.namespaces.net == Own::yes);
    CHECK(spec.capabilities.front().kind == CapabilityEdit::Kind::drop_all);
    CHECK(spec.environment.front().kind == EnvironmentEdit::Kind::clear);
    REQUIRE(spec.kept.has_value());
    CHECK(spec.kept->empty());
    CHECK(spec.end_with_command);
    CHECK(spec.die_with_parent);
}

TEST_CASE("everyday: what the caller's description has comes on top")
{
    Spec spec;
    spec.operations.emplace_back(Directory{"/mine"});
    spec.environment.push_back({EnvironmentEdit::Kind::set, "LANG", "C"});
    spec.capabilities.push_back({CapabilityEdit::Kind::add, 3});
    spec.uid = 5;
    spec.kept = {7};
    spec = completed({}, spec);
    REQUIRE(spec.operations.size() > 2);
    CHECK(std::get<Directory>(spec.operations[spec.operations.size() - 2]).destination == "/mine");
    CHECK(spec.environment.back().value == "C");
    CHECK(spec.capabilities.back().number == 3);
    CHECK(spec.kept->front() == 7);
    CHECK(text_of(spec, "/etc/passwd").find("\nsandbox:x:5:1000:") != std::string::npos);
}

TEST_CASE("everyday: the caller's names are there with the caller's network alone")
{
    const auto shows = [](const Spec& spec, const char* path) {
        const auto binds = all<Bind>(spec);
        return std::any_of(binds.begin(), binds.end(),
                           [&](const Bind& bind) { return bind.destination == path; });
    };
    CHECK_FALSE(shows(completed({}), "/etc/resolv.conf"));
    CHECK(text_of(completed({}), "/etc/hosts").find("localhost") != std::string::npos);
    Spec shared;
    shared.namespaces.net = Own::no;
    shared = completed({}, shared);
    CHECK(shows(shared, "/etc/resolv.conf"));
    CHECK(shows(shared, "/etc/hosts"));
}

TEST_CASE("everyday: a root is the lower layer of an overlay, whose users stay")
{
    const Folder root;
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:1000:50::/app:/bin/sh\n");
    root.write("etc/group", "root:x:0:\n");
    const Spec spec = completed({root.path(), {}, {}, {}});
    const Overlay overlay = all<Overlay>(spec).at(0);
    CHECK(overlay.lower == std::vector<std::string>{root.path()});
    CHECK(overlay.upper_kind == Overlay::Upper::temporary);
    CHECK(text_of(spec, "/etc/passwd") == "nothing");
    CHECK(text_of(spec, "/etc/group") == "root:x:0:\nsandbox:x:1000:\n");
    CHECK(std::get<RemountReadOnly>(spec.operations.back()).destination == "/");
}

TEST_CASE("everyday: an image's working directory is made, and another one is not")
{
    const Folder root;
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    Everyday wish;
    wish.root = root.path();
    CHECK(all<Directory>(completed(wish)).empty());
    wish.image.working_directory = "/srv/work";
    const Spec spec = completed(wish);
    const std::vector<Directory> made = all<Directory>(spec);
    REQUIRE(made.size() == 1);
    CHECK(made[0].destination == "/srv/work");
    CHECK(spec.directory == "/srv/work");
    Spec own;
    own.directory = "/elsewhere";
    const Spec chosen = completed(wish, own);
    CHECK(all<Directory>(chosen).empty());
    CHECK(chosen.directory == "/elsewhere");
    for (const char* name : {"/", "relative"}) {
        wish.image.working_directory = name;
        CHECK(all<Directory>(completed(wish)).empty());
    }
}

TEST_CASE("everyday: links of a root mean what they mean inside")
{
    const Folder root;
    root.write("real/passwd", "app:x:1000:50::/app:/bin/sh\n");
    fs::create_directories(root / "etc");
    fs::create_symlink("/real/passwd", root / "etc/passwd");
    fs::create_symlink("/etc/hostname", root / "etc/group");  // Which is there on the host only.
    const Spec spec = completed({root.path(), {}, {}, {}});
    CHECK(text_of(spec, "/etc/passwd") == "nothing");
    CHECK(text_of(spec, "/etc/group") == "sandbox:x:1000:\n");
}

TEST_CASE("everyday: an overlay that is kept belongs to one root, and its users come first")
{
    const Folder root;
    const Folder changes;
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    const Everyday wish{root.path(), Everyday::Changes::kept, changes / "overlay", {}};
    const Spec first = completed(wish);
    CHECK(text_of(first, "/etc/passwd") ==
          "root:x:0:0::/root:/bin/sh\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n");
    CHECK(all<Overlay>(first).at(0).upper == changes / "overlay/upper");
    CHECK_FALSE(std::holds_alternative<RemountReadOnly>(first.operations.back()));
    changes.write("overlay/upper/etc/passwd", "new:x:1000:1000::/:/bin/sh\n");
    CHECK(text_of(completed(wish), "/etc/passwd") == "nothing");
    Everyday other = wish;
    const Folder another;
    other.root = another.path();
    Spec spec;
    const Result<> done = complete(spec, other);
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().message().find(root.path()) != std::string::npos);
}

TEST_CASE("everyday: an overlay needs a root, and a root has to be there")
{
    Spec spec;
    Everyday wish;
    wish.changes = Everyday::Changes::temporary;
    CHECK_FALSE(complete(spec, wish).has_value());
    const Result<> done = complete(spec, {"/nonexistent/root", {}, {}, {}});
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().err == ENOENT);
}

TEST_CASE("everyday: under Landlock only there are the host's files and a folder, and no namespace")
{
    const Folder folder;
    Everyday wish;
    wish.landlock = Landlock::only;
    Spec spec;
    CHECK_FALSE(complete(spec, wish).has_value());
    wish.work_directory = folder.path();
    spec.environment.push_back({EnvironmentEdit::Kind::set, "TMPDIR", "/mine"});
    spec = completed(wish, spec);
    CHECK(spec.landlock == Landlock::only);
    CHECK(spec.namespaces.user == Own::no);
    CHECK(spec.namespaces.pid == Own::no);
    CHECK(spec.namespaces.net == Own::yes);
    CHECK(all<Bind>(spec).size() == spec.operations.size());
    for (const Bind& bind : all<Bind>(spec)) {
        CAPTURE(bind.source);
        CHECK(bind.source == bind.destination);
        const bool is_writable = bind.source == folder.path() || bind.source.starts_with("/dev/");
        CHECK((bind.access == Access::read_write) == is_writable);
    }
    CHECK(spec.directory == folder.path());
    CHECK(spec.environment.at(1).name == "TMPDIR");
    CHECK(spec.environment.back().value == "/mine");
    CHECK_FALSE(spec.seccomp_programs.empty());
    for (const auto change : {+[](Everyday& it) { it.root = "/"; },
                              +[](Everyday& it) { it.changes = Everyday::Changes::temporary; },
                              +[](Everyday& it) { it.as_root = true; }}) {
        Everyday other = wish;
        change(other);
        Spec refused;
        CHECK_FALSE(complete(refused, other).has_value());
    }
}

TEST_CASE("everyday: Landlock is automatic, and off where the command may mount")
{
    CHECK(completed({}).landlock == Landlock::automatic);
    CHECK_FALSE(completed({}).mounts_inside);
    Everyday wish;
    wish.allow_user_namespaces = true;
    CHECK(completed(wish).mounts_inside);
}

TEST_CASE("everyday: an outline has a line for each thing, and no variable's value")
{
    Spec spec;
    spec.operations.emplace_back(Bind{"/a b", "/c'd", Access::read_write});
    spec.environment.push_back({EnvironmentEdit::Kind::set, "TOKEN", "secret"});
    spec = completed({}, spec);
    const Result<std::string> text = outline(spec);
    REQUIRE(text.has_value());
    CHECK(text->find("show       '/c'\\''d' from '/a b', writable\n") != std::string::npos);
    CHECK(text->find("TOKEN") != std::string::npos);
    CHECK(text->find("secret") == std::string::npos);
    CHECK(text->find("network    loopback only\n") != std::string::npos);
    CHECK(text->ends_with("command    true\n"));
    spec.command.clear();
    CHECK_FALSE(outline(spec).has_value());
}

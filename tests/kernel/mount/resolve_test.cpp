// Resolving destinations: openat2(2) and the walk that takes its place where it is missing have
// to agree with each other and with what a process inside the new root sees.

#include "mount/resolve.hpp"

#include "tests/kernel/support/child.hpp"
#include "tests/kernel/support/needs.hpp"
#include "tests/kernel/support/trees.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace nsbox;
using namespace nsbox::tests;
using mount::Leaf;
using sys::ChildState;
using sys::Fd;
using sys::Site;

namespace {

/// What a resolver answers: an errno, or which file.
struct Answer {
    int error = 0;
    dev_t device = 0;
    ino_t inode = 0;

    bool operator==(const Answer&) const = default;
    std::string text() const
    {
        return error != 0 ? std::string{::strerrorname_np(error)}
                          : "file " + std::to_string(inode) + " on " + std::to_string(device);
    }
};

Answer answer_of(const Fd& fd)
{
    if (!fd)
        return {-fd.error(), 0, 0};
    struct ::stat status {};
    ::fstat(fd.get(), &status);
    return {0, status.st_dev, status.st_ino};
}

/// The state of a set-up process whose new root is `root`. On the heap: it is large.
struct Inside {
    Inside(const std::string& root, bool has_openat2) : state(std::make_unique<ChildState>())
    {
        state->root = ::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
        state->proc = ::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        state->has_openat2 = has_openat2;
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside()
    {
        ::close(state->root);
        ::close(state->proc);
    }

    Fd resolve(const std::string& path, Leaf leaf = Leaf::follow) const
    {
        return mount::resolve(*state, path.c_str(), leaf);
    }
    std::string answer(const std::string& path, Leaf leaf = Leaf::follow) const
    {
        return answer_of(resolve(path, leaf)).text();
    }
    /// The path, below the new root, of what was found; or the errno's name.
    std::string place(const std::string& path, Leaf leaf = Leaf::follow) const
    {
        return place_of(resolve(path, leaf));
    }
    std::string place_of(const Fd& fd) const
    {
        return fd ? below_root(fd.get()) : ::strerrorname_np(-fd.error());
    }
    std::string below_root(int fd) const
    {
        const std::string all = path_of(fd);
        const std::string root = path_of(state->root);
        if (all == root)
            return "/";
        return all.compare(0, root.size() + 1, root + "/") == 0 ? all.substr(root.size())
                                                                : "outside: " + all;
    }
    static std::string path_of(int fd)
    {
        char text[PATH_MAX] = {};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        return ::readlink(link.c_str(), text, sizeof text - 1) < 0 ? "?" : text;
    }
    std::string detail() const { return state->detail.c_str(); }

    std::unique_ptr<ChildState> state;
};

/// Runs a body once for each of the two resolvers, in an arena of its own each time.
void with_both(const std::function<void(Say&, Inside&)>& prepare_and_look,
               const std::function<void(const Ended&)>& judge)
{
    for (const bool has_openat2 : {true, false}) {
        const Ended ended = in_child(Where::own_namespaces, [&](Say& say) {
            enter_arena();
            Inside inside{"root", has_openat2};
            prepare_and_look(say, inside);
        });
        CAPTURE(has_openat2);
        INFO(ended.all());
        REQUIRE(ended.well());
        judge(ended);
    }
}

bool begins_with(const std::string& text, const std::string& beginning)
{
    return text.compare(0, beginning.size(), beginning) == 0;
}

std::string error_name(const Fd& fd)
{
    return fd ? "none" : ::strerrorname_np(-fd.error());
}

/// Where it failed, as an enumerator's number; 0 is Site::step.
std::string number_of(Site site)
{
    return std::to_string(static_cast<int>(site));
}

/// What a process that has `root` for its root directory finds, path by path.
std::vector<Answer> as_seen_inside(const std::string& root, const std::vector<std::string>& paths,
                                   Leaf leaf)
{
    std::vector<Answer> answers(paths.size());
    int ends[2];
    if (::pipe(ends) < 0)
        throw std::runtime_error{"pipe"};
    const std::size_t size = answers.size() * sizeof answers[0];
    const pid_t child = ::fork();
    if (child == 0) {
        if (::chroot(root.c_str()) < 0 || ::chdir("/") < 0)
            ::_exit(1);
        const int nofollow = leaf == Leaf::keep ? O_NOFOLLOW : 0;
        for (std::size_t i = 0; i < paths.size(); ++i) {
            const int fd = ::open(paths[i].c_str(), O_PATH | O_CLOEXEC | nofollow);
            answers[i] = answer_of(Fd{fd < 0 ? -errno : fd});
        }
        const char* const data = reinterpret_cast<const char*>(answers.data());
        for (std::size_t done = 0; done < size;) {
            const ssize_t put = ::write(ends[1], data + done, size - done);
            if (put <= 0)
                ::_exit(1);
            done += static_cast<std::size_t>(put);
        }
        ::_exit(0);
    }
    ::close(ends[1]);
    char* const data = reinterpret_cast<char*>(answers.data());
    for (std::size_t done = 0; done < size;) {
        const ssize_t got = ::read(ends[0], data + done, size - done);
        if (got <= 0)
            throw std::runtime_error{"the process inside did not answer"};
        done += static_cast<std::size_t>(got);
    }
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    return answers;
}

}  // namespace

TEST_CASE("resolve: links, dots and slashes mean what they mean inside the new root")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_folder("root/etc");
            make_file("root/etc/file");
            make_folder("root/usr");
            make_folder("root/usr/lib");
            make_link("usr/lib", "root/lib");
            make_link("/etc", "root/absolute");
            make_link("../../../../etc", "root/usr/up");
            make_link("/usr/../absolute/file", "root/twice");
            for (const char* const path :
                 {"/", "", ".", "..", "../../..", "/etc/file", "etc/file", "//etc///file", "/lib",
                  "/lib/..", "/absolute", "/absolute/file", "/usr/up", "/usr/up/file", "/twice",
                  "/etc/../usr/./lib", "/../etc", "/etc/..", "/usr/lib/../../etc/file"})
                say(path, inside.place(path));
            say("kept", inside.place("/lib", Leaf::keep));
            say("kept below", inside.place("/absolute/file", Leaf::keep));
        },
        [](const Ended& said) {
            CHECK(said["/"] == "/");
            CHECK(said["."] == "/");
            CHECK(said[".."] == "/");
            CHECK(said["../../.."] == "/");
            CHECK(said["/etc/file"] == "/etc/file");
            CHECK(said["etc/file"] == "/etc/file");
            CHECK(said["//etc///file"] == "/etc/file");
            CHECK(said["/lib"] == "/usr/lib");
            CHECK(said["/lib/.."] == "/usr");
            CHECK(said["/absolute"] == "/etc");
            CHECK(said["/absolute/file"] == "/etc/file");
            CHECK(said["/usr/up"] == "/etc");
            CHECK(said["/usr/up/file"] == "/etc/file");
            CHECK(said["/twice"] == "/etc/file");
            CHECK(said["/etc/../usr/./lib"] == "/usr/lib");
            CHECK(said["/../etc"] == "/etc");
            CHECK(said["/etc/.."] == "/");
            CHECK(said["/usr/lib/../../etc/file"] == "/etc/file");
            CHECK(said["kept"] == "/lib");
            CHECK(said["kept below"] == "/etc/file");
        });
}

TEST_CASE("resolve: what is missing, in the way, or goes in circles has the kernel's errors")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_file("root/file");
            make_link("loop", "root/loop");
            make_link("pong", "root/ping");
            make_link("ping", "root/pong");
            make_link("missing", "root/dangling");
            make_link("/tmp/outside", "root/out");
            make_link("file/", "root/slash");
            for (const char* const path :
                 {"/missing", "/missing/a", "/missing/..", "/file/a", "/file/..", "/file/.",
                  "/loop", "/ping", "/loop/a", "/dangling", "/dangling/a", "/out", "/slash"})
                say(path, inside.answer(path));
            say("kept loop", inside.place("/loop", Leaf::keep));
            say("kept dangling", inside.place("/dangling", Leaf::keep));
        },
        [](const Ended& said) {
            CHECK(said["/missing"] == "ENOENT");
            CHECK(said["/missing/a"] == "ENOENT");
            CHECK(said["/missing/.."] == "ENOENT");
            CHECK(said["/file/a"] == "ENOTDIR");
            CHECK(said["/file/.."] == "ENOTDIR");
            CHECK(said["/file/."] == "ENOTDIR");
            CHECK(said["/loop"] == "ELOOP");
            CHECK(said["/ping"] == "ELOOP");
            CHECK(said["/loop/a"] == "ELOOP");
            CHECK(said["/dangling"] == "ENOENT");
            CHECK(said["/dangling/a"] == "ENOENT");
            CHECK(said["/out"] == "ENOENT");
            CHECK(said["/slash"] == "ENOTDIR");  // Only a folder may be named with a slash.
            CHECK(said["kept loop"] == "/loop");
            CHECK(said["kept dangling"] == "/dangling");
        });
}

TEST_CASE("resolve: forty links in a row are followed, forty-one are too many")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_file("root/link0");
            for (int i = 1; i <= 41; ++i)
                make_link("link" + std::to_string(i - 1), "root/link" + std::to_string(i));
            say("forty", inside.place("/link40"));
            say("forty-one", inside.place("/link41"));
        },
        [](const Ended& said) {
            CHECK(said["forty"] == "/link0");
            CHECK(said["forty-one"] == "ELOOP");
        });
}

TEST_CASE("resolve: names of 255 bytes and paths of 4095 bytes are the longest")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            const std::string longest(255, 'x');
            make_file("root/" + longest);
            say("255", inside.place("/" + longest) == "/" + longest ? "found" : "not found");
            say("256", inside.answer("/" + longest + "x"));
            // A deep tree, made from within since its path is longer than a path may be.
            std::string path;
            int depth = 0;
            if (::chdir("root") < 0)
                throw std::runtime_error{"chdir"};
            while (path.size() + 2 <= 4095) {
                path += "/d";
                ++depth;
                make_folder("d");
                if (::chdir("d") < 0)
                    throw std::runtime_error{"chdir"};
            }
            say("depth", depth);
            const Fd deepest{::open(".", O_PATH | O_CLOEXEC)};
            say("deep",
                answer_of(inside.resolve(path)) == answer_of(deepest) ? "found" : "not found");
            say("4095", answer_of(inside.resolve("/" + path)) == answer_of(deepest)
                            ? "found"
                            : inside.answer("/" + path));
            say("4096", inside.answer("//" + path));
            say("long", inside.answer(std::string(100000, 'x')));
        },
        [](const Ended& said) {
            CHECK(said["255"] == "found");
            CHECK(said["256"] == "ENAMETOOLONG");
            CHECK(said["depth"] == "2047");
            CHECK(said["deep"] == "found");
            CHECK(said["4095"] == "found");
            CHECK(said["4096"] == "ENAMETOOLONG");
            CHECK(said["long"] == "ENAMETOOLONG");
        });
}

TEST_CASE("resolve: magic links of /proc are refused, its ordinary ones are followed")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_folder("root/proc");
            if (::mount("/proc", "root/proc", nullptr, MS_BIND | MS_REC, nullptr) < 0)
                throw std::runtime_error{"binding /proc"};
            const Fd open_folder{::open("outside", O_PATH | O_CLOEXEC)};
            const std::string by_number = "/proc/self/fd/" + std::to_string(open_folder.get());
            // Where the magic is believed, this name leads outside.
            say("control", answer_of(Fd{::open(by_number.c_str(), O_PATH | O_CLOEXEC)}) ==
                                   answer_of(open_folder)
                               ? "leads outside"
                               : "does not");
            // A folder of the same name inside must not be taken for it either.
            make_folder("root/tmp");
            make_folder("root/tmp/outside");
            make_link(by_number, "root/to-fd");
            say("fd", inside.answer(by_number));
            say("below fd", inside.answer(by_number + "/x"));
            say("link to fd", inside.answer("/to-fd"));
            for (const char* const name : {"root", "cwd", "exe", "ns/mnt", "fd/0"})
                say(name, inside.answer(std::string{"/proc/self/"} + name));
            say("kept", inside.resolve(by_number, Leaf::keep) ? "found" : "not found");
            const std::string pid = std::to_string(::getpid());
            say("pid", pid);
            say("self", inside.place("/proc/self"));
            say("mounts", inside.place("/proc/mounts"));
        },
        [](const Ended& said) {
            CHECK(said["control"] == "leads outside");
            CHECK(said["fd"] == "ELOOP");
            CHECK(said["below fd"] == "ELOOP");
            CHECK(said["link to fd"] == "ELOOP");
            CHECK(said["root"] == "ELOOP");
            CHECK(said["cwd"] == "ELOOP");
            CHECK(said["exe"] == "ELOOP");
            CHECK(said["ns/mnt"] == "ELOOP");
            CHECK(said["fd/0"] == "ELOOP");
            CHECK(said["kept"] == "found");
            CHECK(said["self"] == "/proc/" + said["pid"]);
            CHECK(said["mounts"] == "/proc/" + said["pid"] + "/mounts");
        });
}

TEST_CASE("resolve: in random trees both resolvers and a process inside agree, and stay inside")
{
    NEEDS("userns");
    NEEDS("openat2");
    const Ended ended = in_child(Where::own_namespaces, [](Say& say) {
        enter_arena();
        long compared = 0;
        long found = 0;
        long followed = 0;
        long escaped = 0;
        long given_up = 0;
        std::string disagreement;
        for (unsigned long seed = 0; seed < 40; ++seed) {
            const std::string root = "root/" + std::to_string(seed);
            make_folder(root);
            grow_tree(root, seed);
            const std::vector<std::string> paths = random_paths(seed, 250);
            const Inside with{root, true};
            const Inside without{root, false};
            for (const Leaf leaf : {Leaf::follow, Leaf::keep}) {
                const std::vector<Answer> truth = as_seen_inside(root, paths, leaf);
                for (std::size_t i = 0; i < paths.size(); ++i) {
                    const Fd a = with.resolve(paths[i], leaf);
                    const Fd b = without.resolve(paths[i], leaf);
                    ++compared;
                    found += a ? 1 : 0;
                    followed += a && with.below_root(a.get()) != "/" + paths[i] ? 1 : 0;
                    escaped += a && begins_with(with.place_of(a), "outside") ? 1 : 0;
                    escaped += b && begins_with(with.place_of(b), "outside") ? 1 : 0;
                    // The walk writes out what it has before it, which may grow too long in a
                    // circle of links. It may give up there, which the kernel does later.
                    const bool gives_up = answer_of(b) != truth[i] && b.error() == -ENAMETOOLONG;
                    given_up += gives_up ? 1 : 0;
                    if ((answer_of(a) != truth[i] || (answer_of(b) != truth[i] && !gives_up)) &&
                        disagreement.empty())
                        disagreement = "tree " + std::to_string(seed) + ", path " + paths[i] +
                                       (leaf == Leaf::keep ? " (kept)" : "") + ": inside " +
                                       truth[i].text() + ", openat2 " + answer_of(a).text() +
                                       ", walk " + answer_of(b).text();
                }
            }
        }
        say("compared", compared);
        say("found", found > compared / 10 ? "many" : std::to_string(found));
        say("followed", followed > compared / 50 ? "many" : std::to_string(followed));
        say("escaped", escaped);
        say("given up", given_up < compared / 100 ? "few" : std::to_string(given_up));
        say("disagreement", disagreement.empty() ? "none" : disagreement);
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["compared"] == "20000");
    CHECK(ended["found"] == "many");
    CHECK(ended["followed"] == "many");
    CHECK(ended["escaped"] == "0");
    CHECK(ended["given up"] == "few");
    CHECK(ended["disagreement"] == "none");
}

TEST_CASE("ensure_directory: what is missing is made with its mode, and parents with theirs")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_folder("root/there");
            make_link("/there", "root/link");
            make_link("new-target", "root/dangling");
            const auto ensure = [&](const char* path, unsigned mode, unsigned parent_mode) {
                const Fd made = mount::ensure_directory(*inside.state, path, mode, parent_mode);
                return inside.place_of(made);
            };
            say("new", ensure("/new", 01777, 0755));
            say("deep", ensure("/p/q/r", 0750, 0711));
            say("through a link", ensure("/link/sub/leaf", 0755, 0700));
            say("already", ensure("/there", 0700, 0700));
            say("dots", ensure("/x/../y/./z", 0755, 0755));
            say("ends in dots", ensure("/e/f/..", 0755, 0755));
            say("above the root", ensure("/../../k", 0755, 0755));
            say("root", ensure("/", 0700, 0700));
            say("longest", ensure(("/" + std::string(255, 'x')).c_str(), 0755, 0755).size());
            say("tree", listing("root"));
        },
        [](const Ended& said) {
            CHECK(said["new"] == "/new");
            CHECK(said["deep"] == "/p/q/r");
            CHECK(said["through a link"] == "/there/sub/leaf");
            CHECK(said["already"] == "/there");
            CHECK(said["dots"] == "/y/z");
            CHECK(said["ends in dots"] == "/e");
            CHECK(said["above the root"] == "/k");
            CHECK(said["root"] == "/");
            CHECK(said["longest"] == "256");
            const std::string& tree = said["tree"];
            const auto has = [&](const std::string& line) {
                return ("\n" + tree).find("\n" + line + "\n") != std::string::npos;
            };
            CHECK(has("new 41777"));
            CHECK(has("p 40711"));
            CHECK(has("p/q 40711"));
            CHECK(has("p/q/r 40750"));
            CHECK(has("there 40755"));
            CHECK(has("there/sub 40700"));
            CHECK(has("there/sub/leaf 40755"));
            CHECK(has("x 40755"));
            CHECK(has("e/f 40755"));
            CHECK(has("dangling 120777 -> new-target"));
            CHECK_FALSE(has("new-target 40755"));
        });
}

TEST_CASE("ensure_directory: what is in the way is told, and nothing is made outside")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_file("root/file");
            make_link("gone", "root/dangling");
            make_link("/tmp/outside/new", "root/out");
            make_link("loop", "root/loop");
            const std::string before = listing("root") + listing("outside");
            const auto tell = [&](const char* path) {
                inside.state->detail.clear();
                inside.state->site = Site::step;
                const Fd made = mount::ensure_directory(*inside.state, path, 0755, 0755);
                say(path, error_name(made) + " at " + number_of(inside.state->site) + " " +
                              inside.detail());
            };
            tell("/file");
            tell("/file/a");
            tell("/file/a/b");
            tell("/dangling");
            tell("/dangling/a");
            tell("/out");
            tell("/out/a/b");
            tell("/loop");
            tell("/loop/a");
            say("long name",
                error_name(mount::ensure_directory(
                    *inside.state, ("/" + std::string(256, 'x')).c_str(), 0755, 0755)));
            say("long path",
                error_name(mount::ensure_directory(
                    *inside.state, std::string(5000, '/').append("x").c_str(), 0755, 0755)));
            say("unchanged", before == listing("root") + listing("outside") ? "yes" : "no");
        },
        [](const Ended& said) {
            CHECK(said["/file"] == "ENOTDIR at " + number_of(Site::make) + " ");
            CHECK(said["/file/a"] == "ENOTDIR at " + number_of(Site::parents) + " ");
            CHECK(said["/file/a/b"] == "ENOTDIR at " + number_of(Site::parents) + " ");
            const std::string dangling = "ENOENT at " + number_of(Site::dangling) + " ";
            CHECK(said["/dangling"] == dangling + "/dangling -> gone");
            CHECK(said["/dangling/a"] == dangling + "/dangling -> gone");
            CHECK(said["/out"] == dangling + "/out -> /tmp/outside/new");
            CHECK(said["/out/a/b"] == dangling + "/out -> /tmp/outside/new");
            CHECK(begins_with(said["/loop"], "ELOOP "));
            CHECK(begins_with(said["/loop/a"], "ELOOP "));
            CHECK(said["long name"] == "ENAMETOOLONG");
            CHECK(said["long path"] == "ENAMETOOLONG");
            CHECK(said["unchanged"] == "yes");
        });
}

TEST_CASE("ensure_file: a mount point for a file is what is there, or an empty file")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_file("root/file");
            make_folder("root/folder");
            make_link("/file", "root/link");
            make_link("folder/made", "root/to-new");
            make_link("/folder/made2", "root/to-new2");
            make_link("to-new3b", "root/to-new3");
            make_link("../../folder/made3", "root/to-new3b");
            const auto ensure = [&](const char* path) {
                return inside.place_of(mount::ensure_file(*inside.state, path, 0711));
            };
            say("there", ensure("/file"));
            say("through a link", ensure("/link"));
            say("new", ensure("/new"));
            say("deep", ensure("/p/q/new"));
            say("link to nothing", ensure("/to-new"));
            say("absolute link to nothing", ensure("/to-new2"));
            say("link to a link to nothing", ensure("/to-new3"));
            say("tree", listing("root"));
        },
        [](const Ended& said) {
            CHECK(said["there"] == "/file");
            CHECK(said["through a link"] == "/file");
            CHECK(said["new"] == "/new");
            CHECK(said["deep"] == "/p/q/new");
            CHECK(said["link to nothing"] == "/folder/made");
            CHECK(said["absolute link to nothing"] == "/folder/made2");
            CHECK(said["link to a link to nothing"] == "/folder/made3");
            const std::string tree = "\n" + said["tree"];
            CHECK(tree.find("\nnew 100444\n") != std::string::npos);
            CHECK(tree.find("\np 40711\n") != std::string::npos);
            CHECK(tree.find("\np/q 40711\n") != std::string::npos);
            CHECK(tree.find("\nfolder/made 100444\n") != std::string::npos);
            CHECK(tree.find("\nfile 100644\n") != std::string::npos);
            CHECK(tree.find("\nto-new 120777 -> folder/made\n") != std::string::npos);
        });
}

TEST_CASE("ensure_file: what is in the way is told, and nothing is made outside")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_folder("root/folder");
            make_file("root/file");
            make_link("/folder", "root/to-folder");
            make_link("nowhere/x", "root/dangling");
            make_link("/tmp/outside/new", "root/out");
            make_link("../outside/new", "root/out2");
            make_link("loop", "root/loop");
            make_link("folder/..", "root/dots");
            const std::string before = listing("root") + listing("outside");
            const auto tell = [&](const char* path) {
                inside.state->detail.clear();
                inside.state->site = Site::step;
                const Fd made = mount::ensure_file(*inside.state, path, 0755);
                say(path, error_name(made) + " at " + number_of(inside.state->site) + " " +
                              inside.detail());
            };
            for (const char* const path :
                 {"/folder", "/to-folder", "/", "/folder/.", "/folder/..", "/dots", "/file/a",
                  "/dangling", "/dangling/a", "/out", "/out2", "/loop", "/loop/a"})
                tell(path);
            say("unchanged", before == listing("root") + listing("outside") ? "yes" : "no");
        },
        [](const Ended& said) {
            const std::string is_folder = "EISDIR at " + number_of(Site::create) + " ";
            for (const char* const path :
                 {"/folder", "/to-folder", "/", "/folder/.", "/folder/..", "/dots"}) {
                CAPTURE(path);
                CHECK(said[path] == is_folder);
            }
            CHECK(said["/file/a"] == "ENOTDIR at " + number_of(Site::parents) + " ");
            const std::string dangling = "ENOENT at " + number_of(Site::dangling) + " ";
            CHECK(said["/dangling"] == dangling + "/dangling -> nowhere/x");
            CHECK(said["/dangling/a"] == dangling + "/dangling -> nowhere/x");
            CHECK(said["/out"] == dangling + "/out -> /tmp/outside/new");
            CHECK(said["/out2"] == dangling + "/out2 -> ../outside/new");
            CHECK(begins_with(said["/loop"], "ELOOP "));
            CHECK(begins_with(said["/loop/a"], "ELOOP "));
            CHECK(said["unchanged"] == "yes");
        });
}

TEST_CASE("ensure_parents: the last component is left to the caller")
{
    NEEDS("userns");
    NEEDS("openat2");
    with_both(
        [](Say& say, Inside& inside) {
            make_folder("root/there");
            make_link("/there", "root/link");
            const auto parents = [&](const char* path) {
                mount::Place place;
                const int rc = mount::ensure_parents(*inside.state, path, 0755, place);
                return rc < 0 ? std::string{::strerrorname_np(-rc)}
                              : inside.place_of(place.parent) + " + " + place.name;
            };
            say("top", parents("/name"));
            say("relative", parents("name"));
            say("deep", parents("/a/b/name"));
            say("link", parents("/link/name"));
            say("slashes", parents("/a//b///name"));
            say("long", parents(("/a/" + std::string(256, 'x')).c_str()));
            say("tree", listing("root"));
        },
        [](const Ended& said) {
            CHECK(said["top"] == "/ + name");
            CHECK(said["relative"] == "/ + name");
            CHECK(said["deep"] == "/a/b + name");
            CHECK(said["link"] == "/there + name");
            CHECK(said["slashes"] == "/a/b + name");
            CHECK(said["long"] == "ENAMETOOLONG");
            CHECK(said["tree"].find("name") == std::string::npos);
        });
}

TEST_CASE("ensure: random requests make the same trees with both resolvers, and nothing outside")
{
    NEEDS("userns");
    NEEDS("openat2");
    const Ended ended = in_child(Where::own_namespaces, [](Say& say) {
        enter_arena();
        grow_tree("outside", 99);
        const std::string outside = listing("outside");
        long made = 0;
        long asked = 0;
        long given_up = 0;
        std::string difference;
        for (unsigned long seed = 0; seed < 60 && difference.empty(); ++seed) {
            const std::string one = "root/one" + std::to_string(seed);
            const std::string two = "root/two" + std::to_string(seed);
            for (const std::string& root : {one, two}) {
                make_folder(root);
                grow_tree(root, seed);
            }
            const Inside with{one, true};
            const Inside without{two, false};
            const std::string before = listing(one);
            bool gave_up_here = false;
            for (const std::string& path : random_paths(seed, 40)) {
                const bool folder = asked++ % 2 == 0;
                std::string results[2];
                int side = 0;
                for (const Inside* const inside : {&with, &without}) {
                    inside->state->detail.clear();
                    inside->state->site = Site::step;
                    const Fd fd =
                        folder ? mount::ensure_directory(*inside->state, path.c_str(), 0755, 0750)
                               : mount::ensure_file(*inside->state, path.c_str(), 0750);
                    results[side++] =
                        inside->place_of(fd) +
                        (fd ? ""
                            : " at " + number_of(inside->state->site) + " " + inside->detail());
                }
                if (results[0] != results[1] && begins_with(results[1], "ENAMETOOLONG")) {
                    // See above; from here on the two trees may differ.
                    ++given_up;
                    gave_up_here = true;
                    break;
                }
                if (results[0] != results[1]) {
                    difference = "tree " + std::to_string(seed) + ", " +
                                 (folder ? "folder " : "file ") + path + ": openat2 " + results[0] +
                                 ", walk " + results[1];
                    break;
                }
            }
            made += listing(one) != before ? 1 : 0;
            if (difference.empty() && !gave_up_here && listing(one) != listing(two))
                difference = "tree " + std::to_string(seed) + " differs";
        }
        say("asked", asked > 2000 ? "many" : std::to_string(asked));
        say("given up", given_up < 5 ? "few" : std::to_string(given_up));
        say("made", made > 30 ? "many" : std::to_string(made));
        say("difference", difference.empty() ? "none" : difference);
        say("outside", listing("outside") == outside ? "unchanged" : "changed");
    });
    INFO(ended.all());
    REQUIRE(ended.well());
    CHECK(ended["difference"] == "none");
    CHECK(ended["asked"] == "many");
    CHECK(ended["given up"] == "few");
    CHECK(ended["made"] == "many");
    CHECK(ended["outside"] == "unchanged");
}

#include "rootfs/commands.hpp"

#include "rootfs/export.hpp"
#include "rootfs/import.hpp"
#include "rootfs/json.hpp"
#include "rootfs/names.hpp"
#include "rootfs/overlay_commands.hpp"
#include "rootfs/store.hpp"
#include "rootfs/verify.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <ctime>
#include <optional>
#include <set>
#include <string_view>
#include <unistd.h>

namespace nsbox::rootfs {

namespace {

using Words = std::vector<std::string>;

constexpr int failed = 1;
constexpr int misused = 2;

/// 0 or -errno.
int write_out(int fd, std::string_view text)
{
    while (!text.empty()) {
        const long put = sys::raw::write(fd, text.data(), text.size());
        if (put == -EINTR)
            continue;
        if (put < 0)
            return static_cast<int>(put);
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    return 0;
}

int complain(const std::string& text, int status = failed)
{
    (void)write_out(STDERR_FILENO, "nsbox rootfs: " + text + "\n");
    return status;
}

int complain(const Error& error)
{
    return complain(error.message());
}

/// On standard output; the status, which is another where that cannot be written.
int print(std::string_view text, int status = 0)
{
    const int rc = write_out(STDOUT_FILENO, text);
    return rc < 0 ? complain(Error{-rc, "Can't write", "standard output", {}, {}}) : status;
}

/// What is opened must not be in the place of a standard descriptor that the caller closed. Reading
/// and writing there still fail.
void fill_standard_descriptors()
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (sys::raw::fcntl(fd, F_GETFD, 0) == -EBADF)
            (void)sys::raw::openat(AT_FDCWD, "/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/// A command's words, taken apart: options with a value, options without, and the rest.
struct Arguments {
    std::vector<std::pair<std::string, std::string>> options;
    Words rest;

    std::optional<std::string> value(std::string_view name) const
    {
        std::optional<std::string> found;
        for (const auto& [option, value] : options)
            if (option == name)
                found = value;
        return found;
    }
    bool has(std::string_view name) const { return value(name).has_value(); }
};

struct Command {
    const char* name;
    const char* help;
    std::vector<std::string_view> with_value;
    std::vector<std::string_view> flags;
    std::size_t least;
    std::size_t most;
    int (*run)(const std::string& folder, const Arguments& arguments);
    bool is_for_another = false;  ///< The words are another program's: all of them are the rest.
};

/// What is wrong with the words, or an empty text.
std::string take_apart(const Command& command, const Words& words, Arguments& arguments)
{
    const auto is_in = [](const std::vector<std::string_view>& all, std::string_view word) {
        return std::find(all.begin(), all.end(), word) != all.end();
    };
    std::size_t at = 0;
    if (command.is_for_another)
        arguments.rest = words;
    for (; at < words.size() && !command.is_for_another; ++at) {
        const std::string& word = words[at];
        if (word == "--") {
            arguments.rest.insert(arguments.rest.end(),
                                  words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
            break;
        }
        if (word.size() < 2 || word[0] != '-') {
            arguments.rest.push_back(word);
            continue;
        }
        const std::size_t equals = word.find('=');
        std::string name = word.substr(0, equals);
        if (is_in(command.flags, name) && equals == std::string::npos) {
            arguments.options.emplace_back(name, "");
        } else if (is_in(command.with_value, name)) {
            if (equals == std::string::npos && at + 1 == words.size())
                return name + " takes an argument";
            std::string value = equals == std::string::npos ? words[++at] : word.substr(equals + 1);
            arguments.options.emplace_back(std::move(name), std::move(value));
        } else {
            return "unknown option " + word;
        }
    }
    if (arguments.rest.size() < command.least)
        return "an argument is missing";
    if (arguments.rest.size() > command.most)
        return "too many arguments: " + arguments.rest[command.most];
    return {};
}

std::string short_digest(const std::string& digest)
{
    constexpr std::size_t shown = 12;
    return digest.substr(0, shown);
}

std::string pad(const std::string& text, std::size_t width)
{
    return text + std::string(text.size() < width ? width - text.size() : 0, ' ') + "  ";
}

std::string date(std::int64_t seconds)
{
    const time_t time = seconds;
    struct tm parts;
    std::array<char, 32> text{};
    if (::gmtime_r(&time, &parts) == nullptr ||
        std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts) == 0)
        return "-";
    return text.data();
}

/// The root that a word names, kept in use; or an error.
Result<Use> use_of(const Store& store, const std::string& word)
{
    const std::optional<std::string> digest = TRY(store.find(word));
    if (digest)
        if (std::optional<Use> use = TRY(store.use(*digest)))
            return std::move(*use);
    return refuse("The store has no root filesystem", in_quotes(word), {},
                  "nsbox rootfs ls lists what there is");
}

// import, commit, build

int tell(const Imported& imported)
{
    for (const std::string& note : imported.notes)
        complain("note: " + note);
    return print(imported.digest + "\n");
}

int run_import(const std::string& folder, const Arguments& arguments)
{
    ImportRequest request;
    request.source = arguments.rest[0];
    request.name = arguments.value("--name");
    request.image = arguments.value("--image").value_or("");
    if (const std::optional<std::string> text = arguments.value("--max-size")) {
        const Result<std::uint64_t> size = parse_size(*text);
        if (!size)
            return complain(size.error().message(), misused);
        request.limits.size = *size;
    }
    if (const std::optional<std::string> text = arguments.value("--owners");
        text && text != "auto") {
        if (text != "recorded" && text != "subordinate")
            return complain("--owners takes auto, recorded or subordinate, not " + in_quotes(*text),
                            misused);
        request.owners = text == "recorded" ? Owners::recorded : Owners::subordinate;
    }
    const Result<Store> store = Store::open(folder, Store::IfMissing::make);
    if (!store)
        return complain(store.error());
    const Result<Imported> imported = import(*store, request);
    if (!imported)
        return complain(imported.error());
    return tell(*imported);
}

int run_commit(const std::string& folder, const Arguments& arguments)
{
    const std::optional<std::string> name = arguments.value("--name");
    if (!name)
        return complain("commit wants a name (hint: --name NAME)", misused);
    const Result<Imported> imported = commit_overlay(folder, arguments.rest[0], *name);
    return imported ? tell(*imported) : complain(imported.error());
}

int run_build(const std::string& folder, const Arguments& arguments)
{
    const Result<Built> built = build_recipe(folder, arguments.rest);
    if (!built)
        return complain(built.error());
    return built->imported ? tell(*built->imported) : built->status;
}

// diff

int run_diff(const std::string& folder, const Arguments& arguments)
{
    const Result<std::string> text =
        diff_overlay(folder, arguments.rest[0], arguments.has("--json"));
    if (!text)
        return complain(text.error());
    return print(*text);
}

// ls, show

Json to_object(const Store& store, const Info& info)
{
    Json json = parse_json(to_json(info));
    json["names"] = store.names_of(info.digest);
    json["tree"] = store.path() + "/roots/" + info.digest + "/tree";
    return json;
}

std::string dump(const Json& json)
{
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run_ls(const std::string& folder, const Arguments& arguments)
{
    const bool as_json = arguments.has("--json");
    std::string text =
        as_json ? "" : pad("DIGEST", 12) + pad("SIZE", 9) + pad("IMPORTED (UTC)", 16) + "NAMES\n";
    const Result<Store> store = Store::open(folder, Store::IfMissing::fail);
    if (!store && store.error().err != ENOENT)
        return complain(store.error());
    int status = 0;
    for (const std::string& digest : store ? store->roots() : std::vector<std::string>{}) {
        const Result<std::optional<Use>> use = store->use(digest);
        if (!use)
            status = complain(use.error());
        if (!use || !*use)
            continue;
        const Info& info = (*use)->info;
        if (as_json) {
            text += dump(to_object(*store, info));
            continue;
        }
        std::string names;
        for (const std::string& name : store->names_of(digest))
            names += (names.empty() ? "" : " ") + name;
        text += pad(short_digest(digest), 12) + pad(size_text(info.size), 9) +
                pad(date(info.imported), 16) + (names.empty() ? "-" : names) + "\n";
    }
    return print(text, status);
}

std::string joined(const std::vector<std::string>& words)
{
    std::string text;
    for (const std::string& word : words)
        text += (text.empty() ? "" : " ") + in_quotes(word);
    return text;
}

int run_show(const std::string& folder, const Arguments& arguments)
{
    const Result<Store> store = Store::open(folder, Store::IfMissing::make);
    if (!store)
        return complain(store.error());
    const Result<Use> use = use_of(*store, arguments.rest[0]);
    if (!use)
        return complain(use.error());
    const Info& info = use->info;
    if (arguments.has("--json"))
        return print(dump(to_object(*store, info)));
    std::string text;
    const auto line = [&](const char* label, const std::string& value) {
        constexpr std::size_t width = 18;
        if (!value.empty())
            text += pad(std::string{label} + ":", width) + value + "\n";
    };
    line("digest", info.digest + " (of the " + info.digest_of + ")");
    line("names", joined(store->names_of(info.digest)));
    line("source", in_quotes(info.source));
    line("imported (UTC)", date(info.imported));
    line("members", std::to_string(info.members));
    line("size", size_text(info.size));
    line("owners", name_of(info.owners));
    line("tree", use->path + "/tree");
    line("environment", joined(info.image.environment));
    line("entrypoint", joined(info.image.entrypoint));
    line("command", joined(info.image.command));
    line("user", info.image.user.empty() ? "" : in_quotes(info.image.user));
    line("working directory",
         info.image.working_directory.empty() ? "" : in_quotes(info.image.working_directory));
    for (const std::string& note : info.notes)
        line("note", note);
    return print(text);
}

// rm, gc

/// A name goes, and with the last one its root; a digest goes with all its names.
Result<> remove(const Store& store, const std::string& word)
{
    const std::optional<std::string> digest = TRY(store.find(word));
    const bool is_name = store.named(word).has_value();
    if (!digest || (!store.has(*digest) && !is_name))
        return refuse("The store has no root filesystem", in_quotes(word), {},
                      "nsbox rootfs ls lists what there is");
    const std::vector<std::string> names = store.names_of(*digest);
    if (is_name && (names.size() > 1 || !store.has(*digest))) {
        store.remove_name(word);
        return {};
    }
    const Staging removed = TRY(store.take_out(*digest, in_quotes(word)));
    for (const std::string& name : names)
        store.remove_name(name);
    store.forget_dead_files();
    return discard(store, removed);
}

int run_rm(const std::string& folder, const Arguments& arguments)
{
    const Result<Store> store = Store::open(folder, Store::IfMissing::make);
    if (!store)
        return complain(store.error());
    int status = 0;
    for (const std::string& word : arguments.rest)
        if (const Result<> done = remove(*store, word); !done)
            status = complain(done.error());
    return status;
}

int run_gc(const std::string& folder, const Arguments& arguments)
{
    std::int64_t days = 30;
    if (const std::optional<std::string> text = arguments.value("--keep")) {
        const char* const end = text->data() + text->size();
        const auto [rest, error] = std::from_chars(text->data(), end, days);
        if (error != std::errc{} || rest != end || days < 0 || days > 1000000)
            return complain("--keep takes a number of days, not " + in_quotes(*text), misused);
    }
    const Result<Store> store = Store::open(folder, Store::IfMissing::make);
    if (!store)
        return complain(store.error());
    int status = 0;
    std::set<std::string> named;
    for (const auto& [name, digest] : store->names())
        named.insert(digest);
    constexpr std::int64_t day = 86400;
    const std::int64_t oldest = ::time(nullptr) - days * day;
    for (const std::string& digest : store->roots()) {
        if (named.count(digest) != 0 || store->last_use(digest) > oldest ||
            store->is_in_use(digest))
            continue;
        const Result<Staging> removed = store->take_out(digest, digest);
        // Someone may have begun to use it.
        if (!removed)
            continue;
        if (const Result<> done = discard(*store, *removed); !done)
            status = complain(done.error());
        else
            status = print(digest + "\n", status);
    }
    for (const Staging& dead : store->dead_stagings())
        if (const Result<> done = discard(*store, dead); !done)
            status = complain(done.error());
    store->forget_dead_files();
    return status;
}

// export, verify

/// A file that appears under its name when all of it is there.
class OutputFile {
public:
    explicit OutputFile(std::string path)
        : path_(std::move(path)), made_(path_ + ".part-" + std::to_string(::getpid())),
          fd_(sys::raw::openat(AT_FDCWD, made_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                               0666))
    {}
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile()
    {
        if (fd_ && !is_done_)
            sys::raw::unlinkat(AT_FDCWD, made_.c_str(), 0);
    }

    const sys::Fd& fd() const { return fd_; }
    const std::string& path() const { return path_; }
    int finish()
    {
        const long rc =
            sys::raw::call(SYS_renameat2, AT_FDCWD, made_.c_str(), AT_FDCWD, path_.c_str(), 0);
        is_done_ = rc == 0;
        return static_cast<int>(rc);
    }

private:
    std::string path_;
    std::string made_;
    sys::Fd fd_;
    bool is_done_ = false;
};

int run_export(const std::string& folder, const Arguments& arguments)
{
    const std::string format = arguments.value("--format").value_or("tar");
    const std::array<std::pair<const char*, Compression>, 4> formats{
        {{"tar", Compression::none},
         {"tar.gz", Compression::gzip},
         {"tar.xz", Compression::xz},
         {"tar.zst", Compression::zstd}}};
    const auto chosen = std::find_if(formats.begin(), formats.end(),
                                     [&](const auto& one) { return format == one.first; });
    if (chosen == formats.end())
        return complain("--format takes tar, tar.gz, tar.xz or tar.zst, not " + in_quotes(format),
                        misused);
    const Result<Store> store = Store::open(folder, Store::IfMissing::make);
    if (!store)
        return complain(store.error());
    const Result<Use> use = use_of(*store, arguments.rest[0]);
    if (!use)
        return complain(use.error());
    std::optional<OutputFile> file;
    if (const std::optional<std::string> path = arguments.value("-o"); path && path != "-") {
        file.emplace(*path);
        if (!file->fd())
            return complain(Error{-file->fd().error(), "Can't make", *path, {}, {}});
    } else if (::isatty(STDOUT_FILENO) != 0) {
        return complain("an archive is nothing for a terminal (hint: -o FILE, or a pipe)", misused);
    }
    const Result<> done = export_tar(*use, file ? file->fd().get() : STDOUT_FILENO, chosen->second);
    // The process that writes was told by an error, so that it could say so.
    if (!done && done.error().err == EPIPE)
        ::raise(SIGPIPE);
    if (!done)
        return complain(done.error());
    if (file)
        if (const int rc = file->finish(); rc < 0)
            return complain(Error{-rc, "Can't make", file->path(), {}, {}});
    return 0;
}

int run_verify(const std::string& folder, const Arguments& arguments)
{
    const Result<Store> store = Store::open(folder, Store::IfMissing::make);
    if (!store)
        return complain(store.error());
    int status = 0;
    const bool is_all = arguments.rest.empty();
    for (const std::string& word : is_all ? store->roots() : arguments.rest) {
        const Result<Use> use = use_of(*store, word);
        // Where all are meant, one may go meanwhile.
        if (!use && is_all && !store->has(word))
            continue;
        std::string text;
        const Result<std::vector<std::string>> lines =
            use ? verify(*use) : tl::make_unexpected(use.error());
        if (!lines) {
            status = complain(lines.error());
            continue;
        }
        for (const std::string& line : *lines)
            text += word + ": " + line + "\n";
        status = lines->empty() ? status : failed;
        if (const int rc = print(text, status); rc != status)
            return rc;
    }
    return status;
}

// A command a block.
// NOLINTNEXTLINE(readability-function-size)
const std::vector<Command>& commands()
{
    static const std::vector<Command> all{
        {"import",
         "usage: nsbox rootfs import [OPTIONS] FILE|FOLDER|-\n"
         "\n"
         "Puts a root filesystem into the store and prints its digest. A FILE, or what comes from\n"
         "standard input, is a tar archive, plain or by gzip, bzip2, xz or zstd, what docker save\n"
         "or podman save wrote, or an OCI image layout; a FOLDER is a tree of files or a layout.\n"
         "\n"
         "    --name NAME        the name to find it by; another of that name loses it\n"
         "    --image REF        which image, where there are several\n"
         "    --max-size SIZE    refuse what is larger; default 64G\n"
         "    --owners HOW       subordinate: files belong to your subordinate ids;\n"
         "                       recorded: all belong to you; auto: the first if you have such "
         "ids\n",
         {"--name", "--image", "--max-size", "--owners"},
         {},
         1,
         1,
         run_import},
        {"ls",
         "usage: nsbox rootfs ls [--json]\n"
         "\n"
         "Lists the root filesystems of the store.\n"
         "\n"
         "    --json    one JSON object a line\n",
         {},
         {"--json"},
         0,
         0,
         run_ls},
        {"show",
         "usage: nsbox rootfs show [--json] NAME\n"
         "\n"
         "Tells what the store knows about a root filesystem. NAME is a name, or at least the "
         "first\n"
         "eight digits of a digest.\n"
         "\n"
         "    --json    as one JSON object\n",
         {},
         {"--json"},
         1,
         1,
         run_show},
        {"rm",
         "usage: nsbox rootfs rm NAME...\n"
         "\n"
         "Removes names, and the root filesystems that have no other. By its digest one goes with\n"
         "all its names. One that is in use stays.\n",
         {},
         {},
         1,
         100000,
         run_rm},
        {"gc",
         "usage: nsbox rootfs gc [--keep DAYS]\n"
         "\n"
         "Removes the root filesystems without a name that nobody uses, and what imports that "
         "were\n"
         "killed have left. Prints the digests.\n"
         "\n"
         "    --keep DAYS    keep those that were used in the last days; default 30\n",
         {"--keep"},
         {},
         0,
         0,
         run_gc},
        {"export",
         "usage: nsbox rootfs export [OPTIONS] NAME\n"
         "\n"
         "Writes a root filesystem as a tar archive to standard output, with the owners and modes\n"
         "that it was imported with.\n"
         "\n"
         "    -o FILE            into a file\n"
         "    --format FORMAT    tar, tar.gz, tar.xz or tar.zst; default tar\n",
         {"-o", "--format"},
         {},
         1,
         1,
         run_export},
        {"verify",
         "usage: nsbox rootfs verify [NAME...]\n"
         "\n"
         "Compares root filesystems, or all of the store, with what was imported, and names each\n"
         "difference. The status is 1 if there is one.\n",
         {},
         {},
         0,
         100000,
         run_verify},
        {"diff",
         "usage: nsbox rootfs diff [--json] FOLDER\n"
         "\n"
         "Lists what nsbox run --rootfs ROOT --overlay=FOLDER has changed of that root: A, C or D "
         "for\n"
         "added, changed and deleted, and the path, one a line. A folder's ends in a slash.\n"
         "\n"
         "    --json    one JSON object a line\n",
         {},
         {"--json"},
         1,
         1,
         run_diff},
        {"commit",
         "usage: nsbox rootfs commit --name NAME FOLDER\n"
         "\n"
         "Makes a new root filesystem of the one below the overlay in FOLDER and what has changed "
         "of\n"
         "it there, and prints its digest. Both stay as they are. No sandbox may use the FOLDER.\n"
         "\n"
         "    --name NAME    the name to find it by; another of that name loses it\n",
         {"--name"},
         {},
         1,
         1,
         run_commit},
        {"build",
         "usage: nsbox rootfs build [OPTIONS] RECIPE|FILE\n"
         "\n"
         "Builds a root filesystem archive as a recipe says, or with --dockerfile FILE [CONTEXT].\n"
         "With --name it is imported, and its digest is printed.\n"
         "\n"
         "    --name NAME    the name to find it by; without -o, the archive does not stay\n"
         "    -o FILE        where the archive goes; default RECIPE.tar.zst\n"
         "    --list         print the recipes\n"
         "    -h             what else the script takes that does it\n",
         {},
         {},
         1,
         100000,
         run_build,
         true},
    };
    return all;
}

constexpr const char* help_begin = "usage: nsbox rootfs [--store FOLDER] COMMAND [ARGUMENTS...]\n"
                                   "\n"
                                   "The store of root filesystems. The commands; each has --help:\n"
                                   "\n";
constexpr const char* help_end =
    "\n"
    "The store's folder is that of --store, or $NSBOX_STORE, or $XDG_DATA_HOME/nsbox, or\n"
    "~/.local/share/nsbox.\n";

std::string help()
{
    std::string text = help_begin;
    for (const Command& command : commands()) {
        const std::string_view its = command.help;
        const std::size_t begin = its.find(' ') + 1;
        text += "    " + std::string{its.substr(begin, its.find('\n') - begin)} + "\n";
    }
    return text + help_end;
}

}  // namespace

int run_command(const std::vector<std::string>& words)
{
    fill_standard_descriptors();
    Words rest = words;
    RootfsOptions options;
    while (!rest.empty() && rest[0].starts_with("--store")) {
        const bool has_value = rest[0].starts_with("--store=");
        if (!has_value && (rest[0] != "--store" || rest.size() < 2))
            return complain("--store takes a folder", misused);
        options.store = has_value ? rest[0].substr(8) : rest[1];
        rest.erase(rest.begin(), rest.begin() + (has_value ? 1 : 2));
    }
    if (rest.empty()) {
        (void)write_out(STDERR_FILENO, help());
        return misused;
    }
    if (rest[0] == "help" || rest[0] == "--help")
        return print(help());
    const auto command = std::find_if(commands().begin(), commands().end(),
                                      [&](const Command& one) { return rest[0] == one.name; });
    if (command == commands().end())
        return complain("unknown command " + in_quotes(rest[0]) + " (hint: see nsbox rootfs help)",
                        misused);
    rest.erase(rest.begin());
    const auto end = std::find(rest.begin(), rest.end(), "--");
    if (std::find(rest.begin(), end, "--help") != end)
        return print(command->help);
    Arguments arguments;
    if (const std::string wrong = take_apart(*command, rest, arguments); !wrong.empty())
        return complain(wrong + " (hint: see nsbox rootfs " + command->name + " --help)", misused);
    const Result<std::string> folder = store_folder(options);
    if (!folder)
        return complain(folder.error());
    return command->run(*folder, arguments);
}

}  // namespace nsbox::rootfs

#include "nsbox/document.hpp"

#include "runtime/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sys/resource.h>

namespace nsbox {

namespace {

using runtime::Json;
using Kind = Json::Kind;

constexpr Literal cannot{"Can't use the document"};

/// `place` is a JSON pointer.
tl::unexpected<Error> wrong(const std::string& place, const std::string& why, std::string hint = {})
{
    return refuse(cannot, place.empty() ? "/" : place, why, std::move(hint));
}

tl::unexpected<Error> wrong_kind(const std::string& place, const Json& value, const char* wanted)
{
    return wrong(place, std::string{"it is "} + name_of(value.kind) + ", and has to be " + wanted);
}

/// With "~" and "/" as RFC 6901 has them in names.
std::string below(const std::string& place, const std::string& name)
{
    std::string text = place + "/";
    for (const char c : name)
        text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return text;
}

Result<std::string> text_of(const Json& value, const std::string& place)
{
    if (value.kind != Kind::text)
        return wrong_kind(place, value, "a text");
    if (value.text.find('\0') != std::string::npos)
        return wrong(place, "a text must not have the character U+0000 in it");
    return value.text;
}

Result<std::string> filled_text_of(const Json& value, const std::string& place)
{
    std::string text = TRY(text_of(value, place));
    if (text.empty())
        return wrong(place, "it is empty");
    return text;
}

Result<std::string> path_of(const Json& value, const std::string& place)
{
    std::string text = TRY(text_of(value, place));
    if (text.empty() || text.front() != '/')
        return wrong(place, "it is no absolute path");
    return text;
}

Result<bool> boolean_of(const Json& value, const std::string& place)
{
    if (value.kind != Kind::boolean)
        return wrong_kind(place, value, "true or false");
    return value.boolean;
}

Result<std::int64_t> integer_of(const Json& value, const std::string& place, std::int64_t least,
                                std::int64_t most)
{
    if (value.kind != Kind::integer && value.kind != Kind::real)
        return wrong_kind(place, value, "a number");
    if (value.kind == Kind::real || value.integer < least || value.integer > most)
        return wrong(place, "it has to be a whole number from " + std::to_string(least) + " to " +
                                std::to_string(most));
    return value.integer;
}

constexpr std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max();

Result<double> real_of(const Json& value, const std::string& place, double least, double most,
                       const char* range)
{
    if (value.kind != Kind::integer && value.kind != Kind::real)
        return wrong_kind(place, value, "a number");
    if (!(value.real >= least && value.real <= most))
        return wrong(place, std::string{"it has to be "} + range);
    return value.real;
}

Result<std::chrono::milliseconds> seconds_of(const Json& value, const std::string& place)
{
    constexpr double least = 0.001;
    constexpr double most = 10 * 366 * 86400.0;
    const double seconds =
        TRY(real_of(value, place, least, most, "a number of seconds, 0.001 to ten years"));
    return std::chrono::milliseconds{static_cast<std::int64_t>(std::ceil(seconds * 1000))};
}

Result<std::vector<std::string>> texts_of(const Json& value, const std::string& place)
{
    if (value.kind != Kind::list)
        return wrong_kind(place, value, "a list of texts");
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < value.items.size(); ++i)
        texts.push_back(TRY(text_of(value.items[i], below(place, std::to_string(i)))));
    return texts;
}

template <class T>
struct Choice {
    const char* name;
    T value;
};

template <class T, std::size_t Count>
Result<T> choice_of(const Json& value, const std::string& place, const Choice<T> (&choices)[Count])
{
    const std::string text = TRY(text_of(value, place));
    std::string names;
    for (const Choice<T>& choice : choices) {
        if (text == choice.name)
            return choice.value;
        names += (names.empty() ? "" : ", ") + std::string{choice.name};
    }
    return wrong(place, "\"" + text + "\" is not one of " + names);
}

/// One member of an object: how it is read, and what a schema says of it.
template <class Target>
struct Field {
    const char* name;
    const char* schema;
    Result<> (*take)(const Json& value, const std::string& place, Target& target);
};

template <class Target, std::size_t Count>
Result<> take_fields(const Json& object, const std::string& place,
                     const Field<Target> (&fields)[Count], Target& target)
{
    if (object.kind != Kind::object)
        return wrong_kind(place, object, "an object");
    for (const auto& [name, value] : object.members) {
        const auto* const field =
            std::find_if(std::begin(fields), std::end(fields),
                         [&name = name](const Field<Target>& one) { return name == one.name; });
        if (field == std::end(fields)) {
            std::string names;
            for (const Field<Target>& one : fields)
                names += (names.empty() ? "" : ", ") + std::string{one.name};
            return wrong(below(place, name), "there is no such member", "there are: " + names);
        }
        TRY(field->take(value, below(place, name), target));
    }
    return {};
}

template <class Target, std::size_t Count>
std::string schema_of(const Field<Target> (&fields)[Count], const char* required)
{
    std::string text = R"({"type": "object", "additionalProperties": false, "required": )";
    text += required;
    text += ", \"properties\": {";
    for (const Field<Target>& field : fields)
        text +=
            std::string{&field == fields ? "" : ", "} + "\"" + field.name + "\": " + field.schema;
    return text + "}}";
}

constexpr const char* boolean = R"({"type": "boolean"})";
constexpr const char* text = R"({"type": "string"})";
constexpr const char* path = R"({"type": "string", "pattern": "^/"})";
constexpr const char* texts = R"({"type": "array", "items": {"type": "string"}})";
constexpr const char* bytes = R"({"type": "integer", "minimum": 1})";
constexpr const char* seconds = R"({"type": "number", "minimum": 0.001})";
constexpr const char* id = R"({"type": "integer", "minimum": 0, "maximum": 4294967294})";
constexpr const char* port = R"({"type": "integer", "minimum": 0, "maximum": 65535})";
constexpr const char* mode = R"({"type": "integer", "minimum": 0, "maximum": 4095})";
constexpr const char* ports =
    R"({"type": "array", "items": {"anyOf": [{"type": "integer", "minimum": 0, )"
    R"("maximum": 65535}, {"type": "array", "minItems": 2, "maxItems": 2, "items": )"
    R"({"type": "integer", "minimum": 0, "maximum": 65535}}]}})";

/// For fields that are one member of their target.
template <class Target, class Value>
Result<> put(Result<Value> value, Target& place)
{
    if (!value)
        return tl::make_unexpected(std::move(value.error()));
    place = std::move(*value);
    return {};
}

template <class Number>
Result<Number> number_of(const Json& value, const std::string& place, std::int64_t least,
                         std::int64_t most)
{
    return static_cast<Number>(TRY(integer_of(value, place, least, most)));
}

Result<std::uint16_t> port_of(const Json& value, const std::string& place)
{
    return number_of<std::uint16_t>(value, place, 0, 65535);
}

Result<std::vector<Ports>> ports_of(const Json& value, const std::string& place)
{
    if (value.kind != Kind::list)
        return wrong_kind(place, value, "a list of ports");
    std::vector<Ports> list;
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        const Json& item = value.items[i];
        const std::string here = below(place, std::to_string(i));
        if (item.kind == Kind::list && item.items.size() == 2) {
            const std::uint16_t first = TRY(port_of(item.items[0], below(here, "0")));
            const std::uint16_t last = TRY(port_of(item.items[1], below(here, "1")));
            if (first > last)
                return wrong(here, "its first port is above its last one");
            list.push_back({first, last});
        } else {
            const std::uint16_t one = TRY(port_of(item, here));
            list.push_back({one, one});
        }
    }
    return list;
}

Result<unsigned> mode_of(const Json& value, const std::string& place)
{
    return number_of<unsigned>(value, place, 0, 07777);
}

// Mounts.

constexpr Choice<Access> accesses[] = {{"read-only", Access::read_only},
                                       {"read-write", Access::read_write}};

constexpr Field<Bind> bind_fields[] = {
    {"type", text, [](const Json&, const std::string&, Bind&) { return Result<>{}; }},
    {"source", path,
     [](const Json& v, const std::string& p, Bind& t) { return put(path_of(v, p), t.source); }},
    {"destination", path,
     [](const Json& v, const std::string& p, Bind& t) {
         return put(path_of(v, p), t.destination);
     }},
    {"access", R"({"enum": ["read-only", "read-write"]})",
     [](const Json& v, const std::string& p, Bind& t) {
         return put(choice_of(v, p, accesses), t.access);
     }},
    {"devices", boolean,
     [](const Json& v, const std::string& p, Bind& t) -> Result<> {
         t.devices = TRY(boolean_of(v, p)) ? Devices::allowed : Devices::refused;
         return {};
     }},
    {"if-missing", R"({"enum": ["fail", "skip"]})",
     [](const Json& v, const std::string& p, Bind& t) {
         constexpr Choice<IfMissing> choices[] = {{"fail", IfMissing::fail},
                                                  {"skip", IfMissing::skip}};
         return put(choice_of(v, p, choices), t.if_missing);
     }},
};

constexpr Field<Tmpfs> tmpfs_fields[] = {
    {"type", text, [](const Json&, const std::string&, Tmpfs&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, Tmpfs& t) {
         return put(path_of(v, p), t.destination);
     }},
    {"mode", mode,
     [](const Json& v, const std::string& p, Tmpfs& t) { return put(mode_of(v, p), t.mode); }},
    {"size", bytes,
     [](const Json& v, const std::string& p, Tmpfs& t) {
         return put(number_of<std::uint64_t>(v, p, 1, most_bytes), t.size);
     }},
};

constexpr Field<Directory> directory_fields[] = {
    {"type", text, [](const Json&, const std::string&, Directory&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, Directory& t) {
         return put(path_of(v, p), t.destination);
     }},
    {"mode", mode,
     [](const Json& v, const std::string& p, Directory& t) { return put(mode_of(v, p), t.mode); }},
};

constexpr Field<Text> text_fields[] = {
    {"type", text, [](const Json&, const std::string&, Text&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, Text& t) {
         return put(path_of(v, p), t.destination);
     }},
    {"content", text,
     [](const Json& v, const std::string& p, Text& t) { return put(text_of(v, p), t.content); }},
    {"mode", mode,
     [](const Json& v, const std::string& p, Text& t) { return put(mode_of(v, p), t.mode); }},
};

constexpr Field<Symlink> symlink_fields[] = {
    {"type", text, [](const Json&, const std::string&, Symlink&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, Symlink& t) {
         return put(path_of(v, p), t.destination);
     }},
    {"target", text,
     [](const Json& v, const std::string& p, Symlink& t) {
         return put(filled_text_of(v, p), t.target);
     }},
};

constexpr Field<RemountReadOnly> read_only_fields[] = {
    {"type", text, [](const Json&, const std::string&, RemountReadOnly&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, RemountReadOnly& t) {
         return put(path_of(v, p), t.destination);
     }},
};

template <class Mount, std::size_t Count>
Result<Operation> mount_of(const Json& value, const std::string& place,
                           const Field<Mount> (&fields)[Count])
{
    Mount mount;
    TRY(take_fields(value, place, fields, mount));
    if (mount.destination.empty())
        return wrong(place, "it has no \"destination\"");
    return Operation{std::move(mount)};
}

Result<Operation> operation_of(const Json& value, const std::string& place)
{
    enum class Type { bind, tmpfs, directory, file, symlink, read_only };
    constexpr Choice<Type> types[] = {
        {"bind", Type::bind}, {"tmpfs", Type::tmpfs},     {"directory", Type::directory},
        {"text", Type::file}, {"symlink", Type::symlink}, {"read-only", Type::read_only}};
    if (value.kind != Kind::object)
        return wrong_kind(place, value, "an object");
    for (const auto& [name, member] : value.members) {
        if (name != "type")
            continue;
        switch (TRY(choice_of(member, below(place, name), types))) {
        case Type::bind: {
            Operation bind = TRY(mount_of(value, place, bind_fields));
            if (std::get<Bind>(bind).source.empty())
                return wrong(place, "it has no \"source\"");
            return bind;
        }
        case Type::tmpfs:
            return mount_of(value, place, tmpfs_fields);
        case Type::directory:
            return mount_of(value, place, directory_fields);
        case Type::file:
            return mount_of(value, place, text_fields);
        case Type::symlink:
            return mount_of(value, place, symlink_fields);
        case Type::read_only:
            return mount_of(value, place, read_only_fields);
        }
    }
    return wrong(place, "it has no \"type\"");
}

Result<> take_mounts(const Json& value, const std::string& place, Document& document)
{
    if (value.kind != Kind::list)
        return wrong_kind(place, value, "a list of objects");
    for (std::size_t i = 0; i < value.items.size(); ++i)
        document.spec.operations.push_back(
            TRY(operation_of(value.items[i], below(place, std::to_string(i)))));
    return {};
}

/// The schema of one kind of mount: its type is no free text.
template <class Mount, std::size_t Count>
std::string mount_schema(const char* type, const Field<Mount> (&fields)[Count],
                         const char* required)
{
    std::string schema = schema_of(fields, required);
    const std::string free = std::string{"\"type\": "} + text;
    const std::string own = std::string{R"("type": {"const": ")"} + type + "\"}";
    return schema.replace(schema.find(free), free.size(), own);
}

std::string mounts_schema()
{
    constexpr const char* only = R"(["type", "destination"])";
    return R"({"type": "array", "items": {"oneOf": [)" +
           mount_schema("bind", bind_fields, R"(["type", "source", "destination"])") + ", " +
           mount_schema("tmpfs", tmpfs_fields, only) + ", " +
           mount_schema("directory", directory_fields, only) + ", " +
           mount_schema("text", text_fields, only) + ", " +
           mount_schema("symlink", symlink_fields, R"(["type", "destination", "target"])") + ", " +
           mount_schema("read-only", read_only_fields, only) + "]}}";
}

// The network.

constexpr Field<UserNetwork> network_fields[] = {
    {"mode", R"({"const": "user"})",
     [](const Json& v, const std::string& p, UserNetwork&) -> Result<> {
         constexpr Choice<int> user[] = {{"user", 0}};
         TRY(choice_of(v, p, user));
         return {};
     }},
    {"outbound", boolean,
     [](const Json& v, const std::string& p, UserNetwork& t) {
         return put(boolean_of(v, p), t.outbound);
     }},
    {"ipv6", boolean,
     [](const Json& v, const std::string& p, UserNetwork& t) {
         return put(boolean_of(v, p), t.ipv6);
     }},
    {"names", boolean,
     [](const Json& v, const std::string& p, UserNetwork& t) {
         return put(boolean_of(v, p), t.names);
     }},
    {"mtu", R"({"type": "integer", "minimum": 1500, "maximum": 65520})",
     [](const Json& v, const std::string& p, UserNetwork& t) {
         return put(number_of<unsigned>(v, p, 1500, 65520), t.mtu);
     }},
    {"tcp", R"({"enum": ["slirp", "relay"]})",
     [](const Json& v, const std::string& p, UserNetwork& t) {
         constexpr Choice<UserNetwork::Tcp> choices[] = {{"slirp", UserNetwork::Tcp::slirp},
                                                         {"relay", UserNetwork::Tcp::relay}};
         return put(choice_of(v, p, choices), t.tcp);
     }},
    {"host-loopback", ports,
     [](const Json& v, const std::string& p, UserNetwork& t) {
         return put(ports_of(v, p), t.host_loopback);
     }},
};

Result<> take_network(const Json& value, const std::string& place, Document& document)
{
    if (value.kind == Kind::object) {
        UserNetwork& network = document.spec.user_network ? *document.spec.user_network
                                                          : document.spec.user_network.emplace();
        return take_fields(value, place, network_fields, network);
    }
    enum class Mode { none, host, user };
    constexpr Choice<Mode> modes[] = {
        {"none", Mode::none}, {"host", Mode::host}, {"user", Mode::user}};
    const Mode chosen = TRY(choice_of(value, place, modes));
    if (chosen == Mode::host)
        document.spec.namespaces.net = Own::no;
    else if (chosen == Mode::user && !document.spec.user_network)
        document.spec.user_network.emplace();
    return {};
}

constexpr Field<PublishedPort> port_fields[] = {
    {"protocol", R"({"enum": ["tcp", "udp"]})",
     [](const Json& v, const std::string& p, PublishedPort& t) {
         constexpr Choice<PublishedPort::Kind> choices[] = {{"tcp", PublishedPort::Kind::tcp},
                                                            {"udp", PublishedPort::Kind::udp}};
         return put(choice_of(v, p, choices), t.kind);
     }},
    {"address", text,
     [](const Json& v, const std::string& p, PublishedPort& t) {
         return put(text_of(v, p), t.address);
     }},
    {"host-port", port,
     [](const Json& v, const std::string& p, PublishedPort& t) {
         return put(port_of(v, p), t.outside);
     }},
    {"port", port,
     [](const Json& v, const std::string& p, PublishedPort& t) {
         return put(port_of(v, p), t.inside);
     }},
};

Result<> take_published(const Json& value, const std::string& place, Document& document)
{
    if (value.kind != Kind::list)
        return wrong_kind(place, value, "a list of objects");
    if (!document.spec.user_network)
        document.spec.user_network.emplace();
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        PublishedPort one;
        const std::string here = below(place, std::to_string(i));
        TRY(take_fields(value.items[i], here, port_fields, one));
        if (one.inside == 0)
            return wrong(here, "it has no \"port\"");
        document.spec.user_network->ports.push_back(std::move(one));
    }
    return {};
}

// Limits, capabilities, environment.

Result<std::uint64_t> limit_of(const Json& value, const std::string& place)
{
    if (value.kind == Kind::null)
        return static_cast<std::uint64_t>(RLIM_INFINITY);
    return number_of<std::uint64_t>(value, place, 0, most_bytes);
}

Result<> take_resource_limits(const Json& value, const std::string& place, Document& document)
{
    if (value.kind != Kind::object)
        return wrong_kind(place, value, "an object");
    for (const auto& [name, limit] : value.members) {
        const std::string here = below(place, name);
        const std::optional<unsigned> resource = resource_by_name(name);
        if (!resource)
            return wrong(here, "there is no such resource");
        ResourceLimit one{*resource, 0, 0};
        if (limit.kind == Kind::list && limit.items.size() == 2) {
            one.soft = TRY(limit_of(limit.items[0], below(here, "0")));
            one.hard = TRY(limit_of(limit.items[1], below(here, "1")));
            if (one.soft > one.hard)
                return wrong(here, "its soft limit is above the hard one");
        } else {
            one.soft = one.hard = TRY(limit_of(limit, here));
        }
        document.spec.resource_limits.push_back(one);
    }
    return {};
}

Result<> take_capabilities(const Json& value, const std::string& place, Document& document)
{
    const std::vector<std::string> names = TRY(texts_of(value, place));
    for (std::size_t i = 0; i < names.size(); ++i) {
        const std::optional<unsigned> number = capability_by_name(names[i]);
        if (!number)
            return wrong(below(place, std::to_string(i)), "there is no capability " + names[i]);
        document.spec.capabilities.push_back({CapabilityEdit::Kind::add, *number});
    }
    return {};
}

Result<> take_environment(const Json& value, const std::string& place, Document& document)
{
    using Edit = EnvironmentEdit::Kind;
    if (value.kind != Kind::object)
        return wrong_kind(place, value, "an object");
    for (const auto& [name, member] : value.members) {
        const std::string here = below(place, name);
        if (name.empty() || name.find('=') != std::string::npos ||
            name.find('\0') != std::string::npos)
            return wrong(here, "it is no name of a variable");
        if (member.kind == Kind::null)
            document.spec.environment.push_back({Edit::unset, name, {}});
        else
            document.spec.environment.push_back({Edit::set, name, TRY(text_of(member, here))});
    }
    return {};
}

Result<> take_overlay(const Json& value, const std::string& place, Document& document)
{
    Everyday& everyday = document.everyday;
    if (value.kind == Kind::boolean) {
        everyday.changes =
            value.boolean ? Everyday::Changes::temporary : Everyday::Changes::refused;
        return {};
    }
    if (value.kind != Kind::text)
        return wrong_kind(place, value, "true, or the path of a folder");
    everyday.overlay = TRY(path_of(value, place));
    everyday.changes = Everyday::Changes::kept;
    return {};
}

using D = Document;
using P = std::string;

// The whole: a member a line.
// clang-format off
constexpr Field<Document> fields[] = {
    {"version", R"({"const": 1})", [](const Json& v, const P& p, D&) -> Result<> { TRY(integer_of(v, p, 1, 1)); return {}; }},
    {"command", texts, [](const Json& v, const P& p, D& d) { return put(texts_of(v, p), d.spec.command); }},
    {"rootfs", text, [](const Json& v, const P& p, D& d) { return put(filled_text_of(v, p), d.rootfs); }},
    {"overlay", R"({"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^/"}]})", take_overlay},
    {"work-dir", path, [](const Json& v, const P& p, D& d) { return put(path_of(v, p), d.everyday.work_directory); }},
    {"mounts", nullptr, take_mounts},
    {"env", R"({"type": "object", "additionalProperties": {"type": ["string", "null"]}})", take_environment},
    {"cwd", path, [](const Json& v, const P& p, D& d) { return put(path_of(v, p), d.spec.directory); }},
    {"uid", id, [](const Json& v, const P& p, D& d) { return put(number_of<std::uint32_t>(v, p, 0, 4294967294), d.spec.uid); }},
    {"gid", id, [](const Json& v, const P& p, D& d) { return put(number_of<std::uint32_t>(v, p, 0, 4294967294), d.spec.gid); }},
    {"root", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.everyday.as_root); }},
    {"hostname", text, [](const Json& v, const P& p, D& d) -> Result<> { d.spec.operations.emplace_back(Hostname{TRY(filled_text_of(v, p))}); return {}; }},
    {"net", nullptr, take_network},
    {"publish", nullptr, take_published},
    {"memory", bytes, [](const Json& v, const P& p, D& d) { return put(number_of<std::uint64_t>(v, p, 1, most_bytes), d.spec.group_limits.memory); }},
    {"pids", R"({"type": "integer", "minimum": 1, "maximum": 4194304})", [](const Json& v, const P& p, D& d) { return put(number_of<std::uint64_t>(v, p, 1, 4194304), d.spec.group_limits.processes); }},
    {"cpus", R"({"type": "number", "minimum": 0.01})", [](const Json& v, const P& p, D& d) { return put(real_of(v, p, 0.01, 1e6, "a number of processors, 0.01 at least"), d.spec.group_limits.processors); }},
    {"cpuset", text, [](const Json& v, const P& p, D& d) { return put(filled_text_of(v, p), d.spec.group_limits.processor_set); }},
    {"best-effort", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.spec.group_limits.best_effort); }},
    {"tmpfs-size", bytes, [](const Json& v, const P& p, D& d) { return put(number_of<std::uint64_t>(v, p, 1, most_bytes), d.spec.tmpfs_size); }},
    {"nice", R"({"type": "integer", "minimum": -20, "maximum": 19})", [](const Json& v, const P& p, D& d) { return put(number_of<int>(v, p, -20, 19), d.spec.nice); }},
    {"rlimit", R"({"type": "object"})", take_resource_limits},
    {"timeout", seconds, [](const Json& v, const P& p, D& d) { return put(seconds_of(v, p), d.spec.limits.time); }},
    {"kill-after", seconds, [](const Json& v, const P& p, D& d) { return put(seconds_of(v, p), d.spec.limits.grace); }},
    {"cpu-time", seconds, [](const Json& v, const P& p, D& d) { return put(seconds_of(v, p), d.spec.limits.cpu); }},
    {"name", text, [](const Json& v, const P& p, D& d) { return put(filled_text_of(v, p), d.spec.name); }},
    {"seccomp-policy", texts, [](const Json& v, const P& p, D& d) { return put(texts_of(v, p), d.everyday.policies); }},
    {"allow-userns", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.everyday.allow_user_namespaces); }},
    {"allow-ptrace", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.everyday.allow_tracing); }},
    {"cap-add", texts, take_capabilities},
    {"landlock", R"({"enum": ["auto", "off"]})", [](const Json& v, const P& p, D& d) {
        constexpr Choice<Landlock> choices[] = {{"auto", Landlock::automatic}, {"off", Landlock::off}};
        return put(choice_of(v, p, choices), d.everyday.landlock); }},
    {"tcp-connect", ports, [](const Json& v, const P& p, D& d) { return put(ports_of(v, p), d.spec.tcp_connect); }},
    {"tcp-bind", ports, [](const Json& v, const P& p, D& d) { return put(ports_of(v, p), d.spec.tcp_bind); }},
    {"proc-fallback", R"({"enum": ["fail", "bind", "empty"]})", [](const Json& v, const P& p, D& d) {
        constexpr Choice<ProcFallback> choices[] = {{"fail", ProcFallback::fail}, {"bind", ProcFallback::bind}, {"empty", ProcFallback::empty}};
        return put(choice_of(v, p, choices), d.spec.proc_fallback); }},
};
// clang-format on

const Json* find(const Json& object, const char* name)
{
    for (const auto& [other, value] : object.members)
        if (other == name)
            return &value;
    return nullptr;
}

Result<> check(const Json& root, const Document& document)
{
    const Spec& spec = document.spec;
    const Json* const network = find(root, "net");
    const bool is_user =
        network != nullptr && (network->kind == Kind::object || network->text == "user");
    if (find(root, "publish") != nullptr && !is_user)
        return wrong("/publish", "it requires the network \"user\"");
    if (document.everyday.changes != Everyday::Changes::refused && !document.rootfs)
        return wrong("/overlay", "it requires \"rootfs\": the host's own files are never changed");
    if (document.everyday.as_root && (spec.uid.value_or(0) != 0 || spec.gid.value_or(0) != 0))
        return wrong("/root", "it means the user id 0 and the group id 0");
    return {};
}

}  // namespace

Result<Document> parse_document(std::string_view words)
{
    const Json root = TRY(runtime::parse_json(words, cannot));
    if (root.kind != Kind::object)
        return wrong_kind("", root, "an object");
    if (find(root, "version") == nullptr)
        return wrong("", "it has no \"version\"", "this nsbox reads \"version\": 1");
    Document document;
    // As `nsbox run`: no descriptor above 2 but those that a caller names.
    document.spec.kept.emplace();
    TRY(take_fields(root, "", fields, document));
    TRY(check(root, document));
    // What may make namespaces is to mount in them too.
    document.spec.mounts_inside = document.everyday.allow_user_namespaces;
    return document;
}

std::string document_schema()
{
    const std::string network = R"({"anyOf": [{"enum": ["none", "host", "user"]}, )" +
                                schema_of(network_fields, "[]") + "]}";
    const std::string published =
        R"({"type": "array", "items": )" + schema_of(port_fields, R"(["port"])") + "}";
    std::string schema = R"({"$schema": "https://json-schema.org/draft/2020-12/schema", )"
                         R"("title": "A sandbox, as nsbox makes them", )";
    schema +=
        R"("type": "object", "additionalProperties": false, "required": ["version"], "properties": {)";
    for (const Field<Document>& field : fields) {
        const std::string name = field.name;
        schema += (&field == fields ? "\n  \"" : ",\n  \"") + name + "\": ";
        schema += field.schema != nullptr ? field.schema
                  : name == "mounts"      ? mounts_schema()
                  : name == "net"         ? network
                                          : published;
    }
    return schema + "\n}}\n";
}

}  // namespace nsbox

#include "nsbox/document.hpp"

#include "runtime/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
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

Result<std::vector<std::string>> paths_of(const Json& value, const std::string& place)
{
    if (value.kind != Kind::list)
        return wrong_kind(place, value, "a list of paths");
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < value.items.size(); ++i)
        paths.push_back(TRY(path_of(value.items[i], below(place, std::to_string(i)))));
    return paths;
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
constexpr const char* paths = R"({"type": "array", "items": {"type": "string", "pattern": "^/"}})";
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

/// Those that have a place and nothing else.
template <class Mount>
constexpr Field<Mount> place_fields[] = {
    {"type", text, [](const Json&, const std::string&, Mount&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, Mount& t) {
         return put(path_of(v, p), t.destination);
     }},
};

constexpr Field<Chmod> chmod_fields[] = {
    {"type", text, [](const Json&, const std::string&, Chmod&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, Chmod& t) {
         return put(path_of(v, p), t.destination);
     }},
    {"mode", mode,
     [](const Json& v, const std::string& p, Chmod& t) { return put(mode_of(v, p), t.mode); }},
};

constexpr Field<Overlay> overlay_fields[] = {
    {"type", text, [](const Json&, const std::string&, Overlay&) { return Result<>{}; }},
    {"destination", path,
     [](const Json& v, const std::string& p, Overlay& t) {
         return put(path_of(v, p), t.destination);
     }},
    {"lower", paths,
     [](const Json& v, const std::string& p, Overlay& t) { return put(paths_of(v, p), t.lower); }},
    {"changes", R"({"enum": ["refused", "temporary"]})",
     [](const Json& v, const std::string& p, Overlay& t) {
         constexpr Choice<Overlay::Upper> choices[] = {{"refused", Overlay::Upper::none},
                                                       {"temporary", Overlay::Upper::temporary}};
         return put(choice_of(v, p, choices), t.upper_kind);
     }},
};

/// The kernel takes a single folder only where something may be written on top.
Result<Operation> overlay_of(Result<Operation> operation, const std::string& place)
{
    if (!operation)
        return operation;
    const auto& overlay = std::get<Overlay>(*operation);
    const std::size_t least = overlay.upper_kind == Overlay::Upper::none ? 2 : 1;
    if (overlay.lower.size() < least)
        return wrong(place, least == 2 ? "it takes at least two folders as \"lower\" where changes "
                                         "are refused"
                                       : "it has no \"lower\"");
    return operation;
}

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
    enum class Type {
        bind,
        tmpfs,
        directory,
        file,
        symlink,
        read_only,
        overlay,
        proc,
        dev,
        mqueue,
        chmod
    };
    constexpr Choice<Type> types[] = {
        {"bind", Type::bind},       {"tmpfs", Type::tmpfs},     {"directory", Type::directory},
        {"text", Type::file},       {"symlink", Type::symlink}, {"read-only", Type::read_only},
        {"overlay", Type::overlay}, {"proc", Type::proc},       {"dev", Type::dev},
        {"mqueue", Type::mqueue},   {"chmod", Type::chmod}};
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
            return mount_of(value, place, place_fields<RemountReadOnly>);
        case Type::overlay:
            return overlay_of(mount_of(value, place, overlay_fields), place);
        case Type::proc:
            return mount_of(value, place, place_fields<Proc>);
        case Type::dev:
            return mount_of(value, place, place_fields<Dev>);
        case Type::mqueue:
            return mount_of(value, place, place_fields<Mqueue>);
        case Type::chmod:
            return mount_of(value, place, chmod_fields);
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
           mount_schema("read-only", place_fields<RemountReadOnly>, only) + ", " +
           mount_schema("overlay", overlay_fields, R"(["type", "destination", "lower"])") + ", " +
           mount_schema("proc", place_fields<Proc>, only) + ", " +
           mount_schema("dev", place_fields<Dev>, only) + ", " +
           mount_schema("mqueue", place_fields<Mqueue>, only) + ", " +
           mount_schema("chmod", chmod_fields, R"(["type", "destination", "mode"])") + "]}}";
}

// The network.

/// What mode it is has been found out before.
template <class Network>
Result<> pass_over(const Json& /*value*/, const std::string& /*place*/, Network& /*network*/)
{
    return {};
}

constexpr Field<UserNetwork> user_fields[] = {
    {"mode", R"({"const": "user"})", pass_over<UserNetwork>},
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
    {"link", R"({"enum": ["auto", "tap", "veth"]})",
     [](const Json& v, const std::string& p, UserNetwork& t) {
         constexpr Choice<UserNetwork::Link> choices[] = {{"auto", UserNetwork::Link::automatic},
                                                          {"tap", UserNetwork::Link::tap},
                                                          {"veth", UserNetwork::Link::veth}};
         return put(choice_of(v, p, choices), t.link);
     }},
    {"required", boolean,
     [](const Json& v, const std::string& p, UserNetwork& t) {
         return put(boolean_of(v, p), t.end_with_helper);
     }},
    {"host-loopback", ports,
     [](const Json& v, const std::string& p, UserNetwork& t) {
         return put(ports_of(v, p), t.host_loopback);
     }},
};

constexpr Field<VethNetwork> veth_fields[] = {
    {"mode", R"({"const": "veth"})", pass_over<VethNetwork>},
    {"outbound", boolean,
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(boolean_of(v, p), t.outbound);
     }},
    {"ipv6", boolean,
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(boolean_of(v, p), t.ipv6);
     }},
    {"names", boolean,
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(boolean_of(v, p), t.names);
     }},
    {"mtu", R"({"type": "integer", "minimum": 1280, "maximum": 65520})",
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(number_of<unsigned>(v, p, 1280, 65520), t.mtu);
     }},
    {"bridge", text,
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(filled_text_of(v, p), t.bridge);
     }},
    {"address", text,
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(filled_text_of(v, p), t.address);
     }},
    {"gateway", text,
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(filled_text_of(v, p), t.gateway);
     }},
    {"host-loopback", ports,
     [](const Json& v, const std::string& p, VethNetwork& t) {
         return put(ports_of(v, p), t.host_loopback);
     }},
};

/// Another sandbox's, or one that has a file.
constexpr Field<JoinNetwork> join_fields[] = {
    {"mode", R"({"const": "join"})", pass_over<JoinNetwork>},
    {"sandbox", text,
     [](const Json& v, const std::string& p, JoinNetwork& t) -> Result<> {
         t.name = TRY(filled_text_of(v, p));
         t.by = JoinNetwork::By::sandbox;
         if (t.name.find('/') != std::string::npos)
             return wrong(p, "it is no name or id of a sandbox");
         return {};
     }},
    {"path", path,
     [](const Json& v, const std::string& p, JoinNetwork& t) {
         t.by = JoinNetwork::By::path;
         return put(path_of(v, p), t.name);
     }},
};

const Json* find(const Json& object, const char* name);

enum class Mode { none, host, user, veth, join };

Result<> take_network_object(const Json& value, const std::string& place, Spec& spec)
{
    constexpr Choice<Mode> modes[] = {
        {"user", Mode::user}, {"veth", Mode::veth}, {"join", Mode::join}};
    const Json* const named = find(value, "mode");
    const Mode chosen =
        named == nullptr ? Mode::user : TRY(choice_of(*named, below(place, "mode"), modes));
    if (chosen == Mode::veth)
        return take_fields(value, place, veth_fields, spec.veth_network.emplace());
    if (chosen == Mode::join) {
        TRY(take_fields(value, place, join_fields, spec.join_network.emplace()));
        if ((find(value, "sandbox") == nullptr) == (find(value, "path") == nullptr))
            return wrong(place, "it has to have \"sandbox\" or \"path\", and not both");
        return {};
    }
    return take_fields(value, place, user_fields,
                       spec.user_network ? *spec.user_network : spec.user_network.emplace());
}

Result<> take_network(const Json& value, const std::string& place, Document& document)
{
    Spec& spec = document.spec;
    if (value.kind == Kind::object)
        return take_network_object(value, place, spec);
    constexpr Choice<Mode> modes[] = {
        {"none", Mode::none}, {"host", Mode::host}, {"user", Mode::user}, {"veth", Mode::veth}};
    const Mode chosen = TRY(choice_of(value, place, modes));
    if (chosen == Mode::host)
        spec.namespaces.net = Own::no;
    else if (chosen == Mode::veth)
        spec.veth_network.emplace();
    else if (chosen == Mode::user && !spec.user_network)
        spec.user_network.emplace();
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
    {"unix", path,
     [](const Json& v, const std::string& p, PublishedPort& t) {
         t.kind = PublishedPort::Kind::unix_socket;
         return put(path_of(v, p), t.path);
     }},
    {"to-loopback", boolean,
     [](const Json& v, const std::string& p, PublishedPort& t) {
         return put(boolean_of(v, p), t.to_loopback);
     }},
};

constexpr Field<PublishedPort> socket_fields[] = {
    {"path", path,
     [](const Json& v, const std::string& p, PublishedPort& t) {
         return put(path_of(v, p), t.path);
     }},
    {"port", port,
     [](const Json& v, const std::string& p, PublishedPort& t) {
         return put(port_of(v, p), t.inside);
     }},
};

/// With what publishes them for now; check() knows which network there is.
template <std::size_t Count>
Result<> take_ports(const Json& value, const std::string& place, Document& document,
                    const Field<PublishedPort> (&fields)[Count], PublishedPort::Kind kind)
{
    if (value.kind != Kind::list)
        return wrong_kind(place, value, "a list of objects");
    if (!document.spec.user_network)
        document.spec.user_network.emplace();
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        PublishedPort one;
        one.kind = kind;
        const Json& item = value.items[i];
        const std::string here = below(place, std::to_string(i));
        TRY(take_fields(item, here, fields, one));
        if (one.inside == 0)
            return wrong(here, "it has no \"port\"");
        if (kind == PublishedPort::Kind::host_socket && one.path.empty())
            return wrong(here, "it has no \"path\"");
        if (find(item, "unix") != nullptr)
            for (const char* other : {"protocol", "address", "host-port"})
                if (find(item, other) != nullptr)
                    return wrong(below(here, other), "a unix socket has none");
        document.spec.user_network->ports.push_back(std::move(one));
    }
    return {};
}

Result<> take_published(const Json& value, const std::string& place, Document& document)
{
    return take_ports(value, place, document, port_fields, PublishedPort::Kind::tcp);
}

Result<> take_host_sockets(const Json& value, const std::string& place, Document& document)
{
    return take_ports(value, place, document, socket_fields, PublishedPort::Kind::host_socket);
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

template <std::uint64_t DiskLimit::*Limit>
Result<> put_limit(const Json& value, const std::string& place, DiskLimit& disk)
{
    return put(number_of<std::uint64_t>(value, place, 1, most_bytes), disk.*Limit);
}

constexpr Field<DiskLimit> disk_fields[] = {
    {"path", path,
     [](const Json& v, const std::string& p, DiskLimit& t) { return put(path_of(v, p), t.path); }},
    {"rbps", bytes, put_limit<&DiskLimit::read_bytes>},
    {"wbps", bytes, put_limit<&DiskLimit::write_bytes>},
    {"riops", bytes, put_limit<&DiskLimit::read_operations>},
    {"wiops", bytes, put_limit<&DiskLimit::write_operations>},
};

Result<> take_disks(const Json& value, const std::string& place, Document& document)
{
    if (value.kind != Kind::list)
        return wrong_kind(place, value, "a list of objects");
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        DiskLimit disk;
        const std::string here = below(place, std::to_string(i));
        TRY(take_fields(value.items[i], here, disk_fields, disk));
        if (disk.path.empty())
            return wrong(here, "it has no \"path\"");
        if (disk.read_bytes + disk.write_bytes + disk.read_operations + disk.write_operations == 0)
            return wrong(here, "it limits nothing", "with rbps, wbps, riops or wiops it does");
        document.spec.group_limits.disks.push_back(std::move(disk));
    }
    return {};
}

Result<> edit_capabilities(const Json& value, const std::string& place, CapabilityEdit::Kind kind,
                           Spec& spec)
{
    const std::vector<std::string> names = TRY(texts_of(value, place));
    for (std::size_t i = 0; i < names.size(); ++i) {
        const std::optional<unsigned> number = capability_by_name(names[i]);
        if (!number)
            return wrong(below(place, std::to_string(i)), "there is no capability " + names[i]);
        spec.capabilities.push_back({kind, *number});
    }
    return {};
}

Result<> take_denials(const Json& value, const std::string& place, Document& document)
{
    if (TRY(boolean_of(value, place)))
        document.spec.denials.emplace();
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
    {"argv0", text, [](const Json& v, const P& p, D& d) { return put(text_of(v, p), d.spec.argv0); }},
    {"as-pid-1", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.spec.command_is_pid_1); }},
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
    {"host-socket", nullptr, take_host_sockets},
    {"memory", bytes, [](const Json& v, const P& p, D& d) { return put(number_of<std::uint64_t>(v, p, 1, most_bytes), d.spec.group_limits.memory); }},
    {"pids", R"({"type": "integer", "minimum": 1, "maximum": 4194304})", [](const Json& v, const P& p, D& d) { return put(number_of<std::uint64_t>(v, p, 1, 4194304), d.spec.group_limits.processes); }},
    {"cpus", R"({"type": "number", "minimum": 0.01})", [](const Json& v, const P& p, D& d) { return put(real_of(v, p, 0.01, 1e6, "a number of processors, 0.01 at least"), d.spec.group_limits.processors); }},
    {"cpuset", text, [](const Json& v, const P& p, D& d) { return put(filled_text_of(v, p), d.spec.group_limits.processor_set); }},
    {"io", nullptr, take_disks},
    {"best-effort", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.spec.group_limits.best_effort); }},
    {"tmpfs-size", bytes, [](const Json& v, const P& p, D& d) { return put(number_of<std::uint64_t>(v, p, 1, most_bytes), d.spec.tmpfs_size); }},
    {"nice", R"({"type": "integer", "minimum": -20, "maximum": 19})", [](const Json& v, const P& p, D& d) { return put(number_of<int>(v, p, -20, 19), d.spec.nice); }},
    {"rlimit", R"({"type": "object"})", take_resource_limits},
    {"timeout", seconds, [](const Json& v, const P& p, D& d) { return put(seconds_of(v, p), d.spec.limits.time); }},
    {"kill-after", seconds, [](const Json& v, const P& p, D& d) { return put(seconds_of(v, p), d.spec.limits.grace); }},
    {"cpu-time", seconds, [](const Json& v, const P& p, D& d) { return put(seconds_of(v, p), d.spec.limits.cpu); }},
    {"lock-files", paths, [](const Json& v, const P& p, D& d) { return put(paths_of(v, p), d.spec.lock_files); }},
    {"log-denials", boolean, take_denials},
    {"name", text, [](const Json& v, const P& p, D& d) { return put(filled_text_of(v, p), d.spec.name); }},
    {"seccomp-policy", texts, [](const Json& v, const P& p, D& d) { return put(texts_of(v, p), d.everyday.policies); }},
    {"allow-userns", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.everyday.allow_user_namespaces); }},
    {"allow-ptrace", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.everyday.allow_tracing); }},
    {"disable-userns", boolean, [](const Json& v, const P& p, D& d) { return put(boolean_of(v, p), d.spec.disable_user_namespaces); }},
    {"cap-add", texts, [](const Json& v, const P& p, D& d) { return edit_capabilities(v, p, CapabilityEdit::Kind::add, d.spec); }},
    {"cap-drop", texts, [](const Json& v, const P& p, D& d) { return edit_capabilities(v, p, CapabilityEdit::Kind::drop, d.spec); }},
    {"exec-label", text, [](const Json& v, const P& p, D& d) { return put(filled_text_of(v, p), d.spec.exec_label); }},
    {"file-label", text, [](const Json& v, const P& p, D& d) { return put(filled_text_of(v, p), d.spec.file_label); }},
    {"landlock", R"({"enum": ["auto", "only", "off"]})", [](const Json& v, const P& p, D& d) {
        constexpr Choice<Landlock> choices[] = {{"auto", Landlock::automatic}, {"only", Landlock::only}, {"off", Landlock::off}};
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

/// Ports belong to the network that was asked for, wherever in the document that was.
Result<> settle_ports(const Json& root, Spec& spec)
{
    const Json* const network = find(root, "net");
    const Json* const word = network == nullptr              ? nullptr
                             : network->kind == Kind::object ? find(*network, "mode")
                                                             : network;
    const bool is_user = network != nullptr && (word == nullptr || word->text == "user");
    for (const char* member : {"publish", "host-socket"})
        if (find(root, member) != nullptr && !is_user && !spec.veth_network)
            return wrong(below("", member), R"(it requires the network "user" or "veth")");
    if (spec.veth_network && spec.user_network) {
        spec.veth_network->ports = std::move(spec.user_network->ports);
        spec.user_network.reset();
    }
    return {};
}

Result<> check(const Document& document)
{
    const Spec& spec = document.spec;
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
    TRY(settle_ports(root, document.spec));
    TRY(check(document));
    // What may make namespaces is to mount in them too.
    document.spec.mounts_inside = document.everyday.allow_user_namespaces;
    return document;
}

std::string document_schema()
{
    const auto list = [](const std::string& items) {
        return R"({"type": "array", "items": )" + items + "}";
    };
    const std::map<std::string_view, std::string> further = {
        {"mounts", mounts_schema()},
        {"net", R"({"anyOf": [{"enum": ["none", "host", "user", "veth"]}, )" +
                    schema_of(user_fields, "[]") + ", " + schema_of(veth_fields, R"(["mode"])") +
                    ", " + schema_of(join_fields, R"(["mode"])") + "]}"},
        {"publish", list(schema_of(port_fields, R"(["port"])"))},
        {"host-socket", list(schema_of(socket_fields, R"(["path", "port"])"))},
        {"io", list(schema_of(disk_fields, R"(["path"])"))},
    };
    std::string schema = R"({"$schema": "https://json-schema.org/draft/2020-12/schema", )"
                         R"("title": "A sandbox, as nsbox makes them", )";
    schema +=
        R"("type": "object", "additionalProperties": false, "required": ["version"], "properties": {)";
    for (const Field<Document>& field : fields) {
        schema += (&field == fields ? "\n  \"" : ",\n  \"") + std::string{field.name} + "\": ";
        schema += field.schema != nullptr ? field.schema : further.at(field.name);
    }
    return schema + "\n}}\n";
}

}  // namespace nsbox

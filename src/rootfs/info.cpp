#include "rootfs/info.hpp"

#include "rootfs/json.hpp"
#include "rootfs/names.hpp"

#include <optional>

namespace nsbox::rootfs {

namespace {

std::optional<Owners> owners_from(const std::string& text)
{
    for (const Owners owners : {Owners::as_they_are, Owners::subordinate, Owners::recorded})
        if (text == name_of(owners))
            return owners;
    return std::nullopt;
}

}  // namespace

const char* name_of(Owners owners)
{
    if (owners == Owners::subordinate)
        return "subordinate";
    return owners == Owners::recorded ? "recorded" : "as-they-are";
}

std::string to_json(const Info& info)
{
    Json json;
    json["version"] = 1;
    json["digest"] = info.digest;
    json["digest-of"] = info.digest_of;
    json["manifest"] = info.manifest;
    json["source"] = info.source;
    json["imported"] = info.imported;
    json["members"] = info.members;
    json["size"] = info.size;
    json["owners"] = name_of(info.owners);
    if (info.owners == Owners::subordinate)
        json["subordinate"] = {{"first-uid", info.subordinate.first_uid},
                               {"first-gid", info.subordinate.first_gid},
                               {"count", info.subordinate.count}};
    json["image"] = {{"env", info.image.environment},
                     {"entrypoint", info.image.entrypoint},
                     {"cmd", info.image.command},
                     {"user", info.image.user},
                     {"working-directory", info.image.working_directory}};
    json["notes"] = info.notes;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Info> parse_info(std::string_view text, const std::string& path)
{
    const Json json = parse_json(text);
    Info info;
    info.digest = text_of(member(json, "digest"));
    info.digest_of = text_of(member(json, "digest-of"));
    info.manifest = text_of(member(json, "manifest"));
    info.source = text_of(member(json, "source"));
    info.imported = static_cast<std::int64_t>(number_of(member(json, "imported")));
    info.members = number_of(member(json, "members"));
    info.size = number_of(member(json, "size"));
    info.notes = texts_of(member(json, "notes"));
    const std::optional<Owners> owners = owners_from(text_of(member(json, "owners")));
    if (number_of(member(json, "version")) != 1 || !is_digest(info.digest) || !owners)
        return refuse("Can't read", path, "it is damaged, or of another version of nsbox",
                      "nsbox rootfs rm removes the root filesystem; import it again");
    info.owners = *owners;
    const Json& ids = member(json, "subordinate");
    info.subordinate.first_uid = static_cast<std::uint32_t>(number_of(member(ids, "first-uid")));
    info.subordinate.first_gid = static_cast<std::uint32_t>(number_of(member(ids, "first-gid")));
    info.subordinate.count = static_cast<std::uint32_t>(number_of(member(ids, "count")));
    const Json& image = member(json, "image");
    info.image.environment = texts_of(member(image, "env"));
    info.image.entrypoint = texts_of(member(image, "entrypoint"));
    info.image.command = texts_of(member(image, "cmd"));
    info.image.user = text_of(member(image, "user"));
    info.image.working_directory = text_of(member(image, "working-directory"));
    return info;
}

}  // namespace nsbox::rootfs

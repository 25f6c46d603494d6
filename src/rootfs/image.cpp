#include "rootfs/image.hpp"

#include "rootfs/json.hpp"
#include "rootfs/names.hpp"

#include <algorithm>
#include <set>

namespace nsbox::rootfs {

namespace {

constexpr Literal cannot_unpack{"Can't unpack the image"};

tl::unexpected<Error> damaged(const char* what)
{
    return refuse(cannot_unpack, {}, std::string{what} + " is damaged");
}

/// In quotes, one behind the other.
std::string list(const std::set<std::string>& names)
{
    constexpr std::size_t most = 2000;
    std::string text;
    for (const std::string& name : names)
        text +=
            (text.empty() ? "" : ", ") + (name.empty() ? "one without a name" : in_quotes(name));
    return text.size() > most ? text.substr(0, most) + "..." : text;
}

tl::unexpected<Error> none_of(const std::string& wanted, const std::set<std::string>& names)
{
    return refuse(cannot_unpack, in_quotes(wanted), "the archive has " + list(names),
                  "--image takes one of these");
}

tl::unexpected<Error> several(const std::set<std::string>& names)
{
    return refuse(cannot_unpack, {}, "the archive has several: " + list(names),
                  "--image takes one of these");
}

/// A path of manifest.json: it is looked up among the members' names, never opened.
Blob docker_blob(const std::string& path)
{
    Blob blob;
    blob.path = path;
    std::string hex{last_of(path)};
    for (const char* const suffix : {".json", ".tar"})
        if (hex.ends_with(suffix))
            hex.resize(hex.size() - std::string_view{suffix}.size());
    if (is_digest(hex))
        blob.digest = "sha256:" + hex;
    return blob;
}

std::string name_of(const Json& descriptor)
{
    const Json& annotations = member(descriptor, "annotations");
    for (const char* const key : {"io.containerd.image.name", "org.opencontainers.image.ref.name"})
        if (std::string name = text_of(member(annotations, key)); !name.empty())
            return name;
    return {};
}

bool has_name(const Json& descriptor, const std::string& wanted)
{
    const Json& annotations = member(descriptor, "annotations");
    return wanted == text_of(member(descriptor, "digest")) ||
           wanted == text_of(member(annotations, "io.containerd.image.name")) ||
           wanted == text_of(member(annotations, "org.opencontainers.image.ref.name"));
}

std::string platform_of(const Json& descriptor)
{
    const Json& platform = member(descriptor, "platform");
    if (!platform.is_object())
        return {};
    return text_of(member(platform, "os")) + "/" + text_of(member(platform, "architecture"));
}

/// NAME=VALUE. Programs and shells trip over blanks and control characters in a name.
bool is_variable(const std::string& text)
{
    const std::size_t equals = text.find('=');
    return equals != std::string::npos && equals > 0 && text.find('\0') == std::string::npos &&
           std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(equals),
                       [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
}

/// For a message: without the value, which may be a secret.
std::string shortened(const std::string& variable)
{
    constexpr std::size_t most = 40;
    const std::string name = variable.substr(0, variable.find('='));
    return name.size() > most ? name.substr(0, most) + "..." : name;
}

}  // namespace

std::string_view own_architecture()
{
#if defined(__x86_64__)
    return "amd64";
#else
    return "arm64";
#endif
}

Result<std::string> blob_path(const std::string& digest)
{
    constexpr std::string_view prefix = "sha256:";
    if (!digest.starts_with(prefix) || !is_digest(digest.substr(prefix.size())))
        return refuse(cannot_unpack, in_quotes(digest), "this is no digest by SHA-256");
    return "blobs/sha256/" + digest.substr(prefix.size());
}

Result<ImageParts> choose_docker_image(std::string_view text, const std::string& wanted)
{
    const Json json = parse_json(text);
    if (!json.is_array() || json.empty())
        return damaged("manifest.json");
    std::set<std::string> names;
    const Json* chosen = nullptr;
    std::size_t count = 0;
    for (const Json& image : json) {
        std::vector<std::string> tags = texts_of(member(image, "RepoTags"));
        const std::string config = text_of(member(image, "Config"));
        if (tags.empty())
            tags.push_back(config);
        names.insert(tags.begin(), tags.end());
        if (wanted.empty() || wanted == config ||
            std::find(tags.begin(), tags.end(), wanted) != tags.end()) {
            chosen = &image;
            ++count;
        }
    }
    if (chosen == nullptr)
        return none_of(wanted, names);
    if (count > 1)
        return several(names);
    ImageParts parts;
    parts.config = docker_blob(text_of(member(*chosen, "Config")));
    for (const std::string& layer : texts_of(member(*chosen, "Layers")))
        parts.layers.push_back(docker_blob(layer));
    if (parts.config.path.empty() || parts.layers.empty())
        return damaged("manifest.json");
    return parts;
}

Result<OciChoice> choose_oci_image(std::string_view text, const std::string& wanted)
{
    const Json json = parse_json(text);
    const Json& manifests = member(json, "manifests");
    if (!manifests.is_array() || manifests.empty())
        return damaged("an index");
    std::set<std::string> names;
    std::set<std::string> chosen_names;
    std::set<std::string> platforms;
    std::vector<const Json*> fitting;
    const std::string own = "linux/" + std::string{own_architecture()};
    for (const Json& descriptor : manifests) {
        const std::string platform = platform_of(descriptor);
        // Signatures and the like have a platform of their own.
        if (platform == "unknown/unknown")
            continue;
        names.insert(name_of(descriptor));
        if (!wanted.empty() && !has_name(descriptor, wanted))
            continue;
        chosen_names.insert(name_of(descriptor));
        platforms.insert(platform);
        if (platform.empty() || platform == own)
            fitting.push_back(&descriptor);
    }
    if (chosen_names.empty())
        return none_of(wanted, names);
    if (wanted.empty() && chosen_names.size() > 1)
        return several(names);
    if (fitting.empty())
        return refuse(cannot_unpack, {},
                      "there is none for " + own + ", but for " + list(platforms));
    OciChoice choice;
    const Json& descriptor = *fitting.front();
    choice.blob.digest = text_of(member(descriptor, "digest"));
    choice.blob.path = TRY(blob_path(choice.blob.digest));
    const std::string type = text_of(member(descriptor, "mediaType"));
    choice.is_index = type == "application/vnd.oci.image.index.v1+json" ||
                      type == "application/vnd.docker.distribution.manifest.list.v2+json";
    return choice;
}

Result<ImageParts> parse_oci_manifest(std::string_view text)
{
    const Json json = parse_json(text);
    ImageParts parts;
    parts.config.digest = text_of(member(member(json, "config"), "digest"));
    parts.config.path = TRY(blob_path(parts.config.digest));
    const Json& layers = member(json, "layers");
    if (!layers.is_array() || layers.empty())
        return damaged("a manifest");
    for (const Json& layer : layers) {
        Blob blob;
        blob.digest = text_of(member(layer, "digest"));
        blob.path = TRY(blob_path(blob.digest));
        parts.layers.push_back(std::move(blob));
    }
    return parts;
}

Result<ImageConfig> parse_image_config(std::string_view text)
{
    const Json json = parse_json(text);
    if (!json.is_object())
        return damaged("the configuration");
    ImageConfig config;
    config.architecture = text_of(member(json, "architecture"));
    config.diffs = texts_of(member(member(json, "rootfs"), "diff_ids"));
    const Json& its = member(json, "config");
    for (std::string& variable : texts_of(member(its, "Env"))) {
        if (is_variable(variable))
            config.image.environment.push_back(std::move(variable));
        else
            config.notes.push_back("a variable of the image left out, for its name is none: " +
                                   in_quotes(shortened(variable)));
    }
    config.image.entrypoint = texts_of(member(its, "Entrypoint"));
    config.image.command = texts_of(member(its, "Cmd"));
    config.image.user = text_of(member(its, "User"));
    config.image.working_directory = text_of(member(its, "WorkingDir"));
    return config;
}

}  // namespace nsbox::rootfs

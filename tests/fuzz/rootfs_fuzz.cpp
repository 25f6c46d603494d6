// What the store and images have in files: the parsers, on any bytes.

#include "rootfs/image.hpp"
#include "rootfs/info.hpp"
#include "rootfs/manifest.hpp"
#include "rootfs/names.hpp"
#include "words.hpp"

using namespace nsbox;
using namespace nsbox::rootfs;

namespace {

void try_manifest(std::string_view text)
{
    const Result<Manifest> manifest = parse_manifest(text, "m");
    if (!manifest)
        return;
    fuzz::require(to_text(*manifest) == text, "a manifest has one text");
    for (const Entry& entry : *manifest)
        fuzz::require(entry.path.find("..") == std::string::npos || member_path(entry.path),
                      "a path stays below the root");
}

void try_images(std::string_view text)
{
    for (const char* const wanted : {"", "a"}) {
        if (const Result<ImageParts> parts = choose_docker_image(text, wanted))
            fuzz::require(!parts->layers.empty(), "an image has layers");
        if (const Result<OciChoice> choice = choose_oci_image(text, wanted))
            fuzz::require(choice->blob.path == blob_path(choice->blob.digest).value(),
                          "a blob is where its digest says");
    }
    if (const Result<ImageParts> parts = parse_oci_manifest(text))
        for (const Blob& layer : parts->layers)
            fuzz::require(layer.path.starts_with("blobs/sha256/"), "a layer is a blob");
    if (const Result<ImageConfig> config = parse_image_config(text))
        for (const std::string& variable : config->image.environment)
            fuzz::require(variable.find('=') > 0, "a variable has a name");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const std::string bytes{data, data + size};
    try_manifest(bytes);
    try_manifest("nsbox manifest 1\n" + bytes);
    try_images(bytes);
    if (const Result<Info> info = parse_info(bytes, "i")) {
        const std::string text = to_json(*info);
        fuzz::require(to_json(parse_info(text, "i").value()) == text,
                      "what is known is read again");
    }
    if (const Result<std::string> path = member_path(bytes))
        fuzz::require(member_path(*path).value() == *path, "a path is clean");
    (void)parse_size(bytes);
    (void)in_quotes(bytes);
    return 0;
}

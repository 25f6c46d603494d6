#pragma once

#include "nsbox/rootfs.hpp"
#include "sys/error.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace nsbox::rootfs {

// Pure: what the JSON files of images say.

/// Something that an image consists of.
struct Blob {
    std::string digest;  ///< "sha256:..."; may be empty in what docker save writes.
    std::string path;    ///< Inside the archive or layout.
};

/// An image, with its layers from the lowest up.
struct ImageParts {
    Blob config;
    std::vector<Blob> layers;
    std::vector<std::string> diffs;  ///< Digests of the uncompressed layers, if there are some.
};

/// The machine's name in images: "amd64".
std::string_view own_architecture();

/// The path of a blob in a layout. Refused: anything but sha256 and 64 digits.
Result<std::string> blob_path(const std::string& digest);

/// One image of manifest.json, as docker save writes it. `wanted` is a tag, or empty where there is
/// one only. Errors list what there is.
Result<ImageParts> choose_docker_image(std::string_view json, const std::string& wanted);

/// A step through indexes: the blob to be read next.
struct OciChoice {
    Blob blob;
    bool is_index = false;
};
/// The image of this machine's architecture in an index; `wanted` as above, on the top level.
Result<OciChoice> choose_oci_image(std::string_view json, const std::string& wanted);
Result<ImageParts> parse_oci_manifest(std::string_view json);

struct ImageConfig {
    Image image;
    std::string architecture;
    std::vector<std::string> diffs;
    std::vector<std::string> notes;  ///< What was left out, one line each.
};
/// The configuration of an image. Variables whose names are empty, or have blanks or control
/// characters, are left out.
Result<ImageConfig> parse_image_config(std::string_view json);

}  // namespace nsbox::rootfs

#pragma once

#include "nsbox/rootfs.hpp"
#include "rootfs/archive.hpp"
#include "rootfs/confine.hpp"
#include "rootfs/manifest.hpp"
#include "sys/error.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace nsbox::rootfs {

/// What the confined process is to make a tree of.
struct Job {
    enum class Kind { archive, folder, layout };
    Kind kind = Kind::archive;
    int input = -1;        ///< Open for reading.
    bool is_file = false;  ///< It can be read again from its beginning.
    std::string called;
    std::uint64_t total = 0;  ///< Bytes of input, for the progress; 0 where nobody knows.
    Limits limits;
    std::string image;
    Ownership ownership;
    int spool = -1;     ///< A folder for files without names.
    int manifest = -1;  ///< A file; its text is written there.
    /// Where the folder is an overlay: what is known of the tree below, and the upper folder, open.
    const Manifest* lower = nullptr;
    int upper = -1;
};

/// What became of it.
struct Outcome {
    std::uint64_t members = 0;
    std::uint64_t size = 0;
    std::string content;       ///< The SHA-256 of the manifest's text.
    std::string image_digest;  ///< Of an image layout: of the image's manifest.
    Image image;
    std::vector<std::string> notes;
};

std::string encode(const Result<Outcome>& outcome);
/// The other side's word is not taken on trust: refused where it is of another form.
Result<Outcome> decode(const std::string& bytes);

/// In the confined process.
Result<Outcome> unpack(const Job& job, const Site& site);

}  // namespace nsbox::rootfs

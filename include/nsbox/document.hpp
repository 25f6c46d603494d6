#pragma once

#include "nsbox/error.hpp"
#include "nsbox/everyday.hpp"
#include "nsbox/rootfs.hpp"
#include "nsbox/spec.hpp"

#include <optional>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace nsbox {

/// What a document (doc/document.md) says: a sandbox as `nsbox run` makes them, where its keys are that
/// program's options.
struct Document {
    Spec spec;
    Everyday everyday;                  ///< For complete().
    std::optional<std::string> rootfs;  ///< For Rootfs::open().
};

/// Reads one: JSON (RFC 8259) in UTF-8, an object with the member "version": 1. What is unknown, written twice,
/// of another type or out of range is an error, which names its place as a JSON pointer (RFC 6901). No file is
/// looked at. Any thread.
Result<Document> parse_document(std::string_view text);

/// A sandbox that a document describes, ready for Sandbox::start(), Sandbox::create(), run() and Pool.
struct Described {
    Spec spec;
    /// Of the document's root filesystem, which must live as long as the sandbox.
    std::optional<Rootfs> rootfs;
};

/// parse_document(), Rootfs::open() and complete(), one after the other. Fails as they do.
Result<Described> describe(std::string_view text);

/// A JSON Schema (draft 2020-12) of documents.
std::string document_schema();

}  // namespace nsbox

#pragma GCC visibility pop

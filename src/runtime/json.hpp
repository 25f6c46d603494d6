#pragma once

#include "sys/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nsbox::runtime {

/// A value of a JSON text, as it was written.
struct Json {
    enum class Kind { null, boolean, integer, real, text, list, object };
    Kind kind = Kind::null;
    bool boolean = false;
    std::int64_t integer = 0;  ///< Numbers without a fraction that fit.
    double real = 0;           ///< Of every number.
    std::string text;
    std::vector<Json> items;
    struct Member;
    std::vector<Member> members;  ///< Each name once.
};

struct Json::Member {
    std::string name;
    Json value;
};

/// Reads a text whole: RFC 8259, UTF-8, at most 32 lists and objects in each other. A name that is twice in an
/// object is an error. Errors name the line and the column (in bytes), or a JSON pointer.
Result<Json> parse_json(std::string_view text, Literal cannot);

/// What a value is, in an error's words: "a list".
const char* name_of(Json::Kind kind);

}  // namespace nsbox::runtime

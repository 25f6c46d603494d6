#include "runtime/json.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace nsbox::runtime {

namespace {

constexpr std::size_t most_levels = 32;

/// What nlohmann's reader calls, value by value.
class Builder {
public:
    explicit Builder(Json& root) : root_(root) {}

    // Their names and types are the reader's.
    bool null() { return add({}); }
    bool boolean(bool value)
    {
        Json json;
        json.kind = Json::Kind::boolean;
        json.boolean = value;
        return add(std::move(json));
    }
    bool number_integer(std::int64_t value)
    {
        Json json;
        json.kind = Json::Kind::integer;
        json.integer = value;
        json.real = static_cast<double>(value);
        return add(std::move(json));
    }
    bool number_unsigned(std::uint64_t value)
    {
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        return value <= most ? number_integer(static_cast<std::int64_t>(value))
                             : number_float(static_cast<double>(value), {});
    }
    bool number_float(double value, const std::string& /*text*/)
    {
        Json json;
        json.kind = Json::Kind::real;
        json.real = value;
        return add(std::move(json));
    }
    bool string(std::string& value)
    {
        Json json;
        json.kind = Json::Kind::text;
        json.text = std::move(value);
        return add(std::move(json));
    }
    static bool binary(nlohmann::json::binary_t& /*value*/) { return false; }
    bool start_object(std::size_t /*size*/) { return open(Json::Kind::object); }
    bool start_array(std::size_t /*size*/) { return open(Json::Kind::list); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(std::string& name)
    {
        for (const auto& [other, value] : open_.back()->members)
            if (other == name)
                return fail("the member \"" + name + "\" is there twice");
        open_.back()->members.push_back({std::move(name), {}});
        return true;
    }
    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const nlohmann::detail::exception& /*error*/)
    {
        position_ = position;
        return false;
    }

    const std::string& wrong() const { return wrong_; }
    std::size_t position() const { return position_; }

private:
    bool fail(std::string why)
    {
        wrong_ = std::move(why);
        return false;
    }

    Json* place()
    {
        if (open_.empty())
            return &root_;
        Json& last = *open_.back();
        if (last.kind == Json::Kind::object)
            return &last.members.back().value;
        last.items.emplace_back();
        return &last.items.back();
    }

    bool add(Json value)
    {
        *place() = std::move(value);
        return true;
    }

    bool open(Json::Kind kind)
    {
        if (open_.size() >= most_levels)
            return fail("there are more than 32 lists and objects in each other");
        Json* const here = place();
        here->kind = kind;
        open_.push_back(here);
        return true;
    }

    bool close()
    {
        open_.pop_back();
        return true;
    }

    Json& root_;
    std::vector<Json*> open_;  ///< What is in one does not move before it is closed.
    std::string wrong_;
    std::size_t position_ = 0;
};

/// As an editor counts them.
std::string place_in(std::string_view text, std::size_t position)
{
    const std::string_view before = text.substr(0, position == 0 ? 0 : position - 1);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t start = before.rfind('\n');
    const std::size_t column =
        start == std::string_view::npos ? before.size() : before.size() - start - 1;
    return "line " + std::to_string(line) + ", column " + std::to_string(column + 1);
}

}  // namespace

Result<Json> parse_json(std::string_view text, Literal cannot)
{
    Json root;
    Builder builder{root};
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder))
        return root;
    if (!builder.wrong().empty())
        return refuse(cannot, {}, builder.wrong());
    return refuse(cannot, place_in(text, builder.position()), "it is no JSON from there on");
}

const char* name_of(Json::Kind kind)
{
    switch (kind) {
    case Json::Kind::boolean:
        return "true or false";
    case Json::Kind::integer:
    case Json::Kind::real:
        return "a number";
    case Json::Kind::text:
        return "a text";
    case Json::Kind::list:
        return "a list";
    case Json::Kind::object:
        return "an object";
    case Json::Kind::null:
        break;
    }
    return "null";
}

}  // namespace nsbox::runtime

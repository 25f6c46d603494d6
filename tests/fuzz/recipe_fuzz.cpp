// What a supervisor says about its sandbox: a decoder that gets any bytes, and the way there and
// back for any words.

#include "runtime/recipe.hpp"
#include "words.hpp"

#include <cstring>

using namespace nsbox;
using runtime::Recipe;

namespace {

bool same(const Recipe& one, const Recipe& other)
{
    return one.environment == other.environment && one.directory == other.directory &&
           one.likely_directory == other.likely_directory && one.home == other.home &&
           one.filters == other.filters && one.bounding == other.bounding &&
           one.capabilities == other.capabilities && one.ambient == other.ambient &&
           one.refuse_user_namespaces == other.refuse_user_namespaces && one.group == other.group &&
           one.ids == other.ids && one.drop_groups == other.drop_groups &&
           one.umask == other.umask && one.own_keyring == other.own_keyring;
}

void require_round_trip(const Recipe& recipe)
{
    const std::string bytes = runtime::encode(recipe);
    const Result<Recipe> back = runtime::decode(bytes);
    fuzz::require(back.has_value(), "what was encoded can be decoded");
    fuzz::require(same(*back, recipe), "it is the same recipe");
    fuzz::require(!runtime::decode(bytes + '\0'), "nothing may follow");
    fuzz::require(!runtime::decode(bytes.substr(0, bytes.size() - 1)), "nothing may lack");
}

Recipe recipe_from(const std::uint8_t* data, std::size_t size)
{
    Recipe recipe;
    std::string* const texts[] = {&recipe.directory, &recipe.likely_directory, &recipe.home,
                                  &recipe.group};
    std::size_t next = 0;
    for (const std::string& word : fuzz::split(data, size)) {
        if (next < 4)
            *texts[next++] = word;
        else if (word.find('=') != std::string::npos)
            recipe.environment.push_back(word);
        else
            recipe.filters.emplace_back(word.begin(), word.end());
    }
    std::uint64_t number = 0;
    std::memcpy(&number, data, std::min(size, sizeof number));
    if ((number & 1) != 0)
        recipe.bounding = number;
    if ((number & 2) != 0)
        recipe.capabilities = ~number;
    recipe.ambient = (number & 4) != 0;
    recipe.refuse_user_namespaces = (number & 8) != 0;
    return recipe;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    if (size == 0)
        data = reinterpret_cast<const std::uint8_t*>("");
    const std::string bytes{data, data + size};
    const Result<Recipe> decoded = runtime::decode(bytes);
    if (decoded)
        require_round_trip(*decoded);
    // Few inputs begin with the number that a recipe begins with.
    const Result<Recipe> numbered = runtime::decode(runtime::encode(Recipe{}).substr(0, 8) + bytes);
    if (numbered)
        require_round_trip(*numbered);
    require_round_trip(recipe_from(data, size));
    return 0;
}

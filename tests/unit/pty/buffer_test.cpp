#include "pty/buffer.hpp"

#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <string>

using namespace nsbox;

TEST_CASE("pty buffer: what goes in comes out in order, whatever the portions")
{
    tests::Random random{7};
    pty::Buffer buffer{100};
    std::deque<char> model;
    std::size_t most = 0;
    for (int round = 0; round < 5000; ++round) {
        const std::span<char> room = buffer.room();
        REQUIRE(room.size() == buffer.free());
        REQUIRE(room.size() + model.size() == 100);
        const std::size_t in = random.below(room.size() + 1);
        for (std::size_t i = 0; i < in; ++i) {
            room[i] = static_cast<char>(random.next() >> 40);
            model.push_back(room[i]);
        }
        buffer.added(in);
        most = std::max(most, buffer.size());
        const std::span<const char> contents = buffer.contents();
        REQUIRE(std::equal(contents.begin(), contents.end(), model.begin(), model.end()));
        const std::size_t out = random.below(contents.size() + 1);
        buffer.removed(out);
        model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(out));
        REQUIRE(buffer.empty() == model.empty());
    }
    CHECK(most == 100);
    buffer.clear();
    CHECK(buffer.empty());
    CHECK(buffer.room().size() == 100);
}

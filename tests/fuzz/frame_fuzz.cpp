// The way of a frame from the sandbox, on any bytes: parser, judge, answers, and libslirp behind
// them. A namespace without any interface up takes whatever would be sent.

#include "net/user/judge.hpp"
#include "net/user/reassembly.hpp"
#include "net/user/stack.hpp"
#include "words.hpp"

#include <sched.h>

using namespace nsbox;
using namespace nsbox::net::user;

namespace {

// Before there are threads, which cannot enter a user namespace.
const bool is_alone = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;

void check_answer(const std::vector<std::uint8_t>& answer, const Packet& packet)
{
    if (answer.empty())
        return;
    const Packet back = parse(answer);
    fuzz::require(back.kind == Kind::ip, "an answer is a packet");
    fuzz::require(back.source == packet.destination, "it comes from where the packet went");
    fuzz::require(back.destination == packet.source, "it goes to where the packet came from");
    fuzz::require(back.end == answer.size(), "nothing is behind it");
}

void feed(Stack& stack, const Rules& rules, Bytes frame, Reassembly* reassembly)
{
    const Packet packet = parse(frame);
    if (packet.is_fragment) {
        fuzz::require(reassembly != nullptr, "what was put together is no part");
        if (const auto whole = reassembly->add(frame, packet))
            feed(stack, rules, *whole, nullptr);
        return;
    }
    if (packet.kind == Kind::ip) {
        fuzz::require(packet.transport <= packet.end, "a header ends in its packet");
        fuzz::require(packet.end <= frame.size(), "a packet ends in its frame");
    }
    switch (judge(rules, packet)) {
    case Verdict::pass:
        stack.input(frame);
        break;
    case Verdict::refuse:
        check_answer(refusal(frame, packet), packet);
        break;
    case Verdict::ask_dns:
        check_answer(udp_answer(frame, packet, frame), packet);
        break;
    case Verdict::drop:
        break;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    fuzz::require(is_alone, "nothing leaves the machine");
    constexpr std::size_t mtu = 16384;
    const auto stack = Stack::create({mtu, true, true}, [](Bytes) {});
    fuzz::require(stack.has_value(), "libslirp starts");
    Reassembly reassembly;
    Rules rules;
    rules.host_loopback.set(80);
    // Several frames, each behind its length in two bytes.
    for (std::size_t at = 0; at + 2 <= size;) {
        const std::size_t length =
            std::min<std::size_t>(data[at] * 256U + data[at + 1], size - at - 2);
        // Exactly as large as the frame: a sanitizer sees a step beyond it.
        const std::vector<std::uint8_t> frame(data + at + 2, data + at + 2 + length);
        if (length <= mtu + ethernet_size)
            feed(**stack, rules, frame, &reassembly);
        at += 2 + length;
    }
    return 0;
}

// The way of a frame from the sandbox, on any bytes: parser, judge, answers, and libslirp behind
// them. A namespace without any interface up takes whatever would be sent.

#include "net/user/judge.hpp"
#include "net/user/name_streams.hpp"
#include "net/user/reassembly.hpp"
#include "net/user/stack.hpp"
#include "words.hpp"

#include <netinet/in.h>
#include <sched.h>

using namespace nsbox;
using namespace nsbox::net::user;

namespace {

// Before there are threads, which cannot enter a user namespace.
const bool is_alone = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;

SocketAddress server_of(int family)
{
    SocketAddress server;
    server.storage.ss_family = static_cast<sa_family_t>(family);
    auto& v4 = reinterpret_cast<sockaddr_in&>(server.storage);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(server.storage);
    if (family == AF_INET) {
        v4.sin_port = htons(53);
        v4.sin_addr.s_addr = htonl(0x7f000035);
    } else {
        v6.sin6_port = htons(53);
        v6.sin6_addr = IN6ADDR_LOOPBACK_INIT;
    }
    return server;
}

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

struct Way {
    Stack& stack;
    const Rules& rules;
    NameStreams& names;
};

/// Addresses that libslirp passes to connect(2), where nobody answers.
void feed_name_stream(const Way& way, Bytes frame, const Packet& packet)
{
    const std::vector<std::uint8_t> out = way.names.outward(frame, packet);
    if (out.empty())
        return;
    const Packet sent = parse(out);
    fuzz::require(out.size() == frame.size(), "nothing is added");
    fuzz::require(sent.destination_port == packet.destination_port && sent.destination_port == 53,
                  "the port stays");
    fuzz::require(sent.destination == (sent.destination.v6 ? ipv6(0, 1) : ipv4(127, 0, 0, 53)),
                  "it goes to the host's server");
    way.stack.input(out);
}

void feed(const Way& way, Bytes frame, Reassembly* reassembly)
{
    const Packet packet = parse(frame);
    if (packet.is_fragment) {
        fuzz::require(reassembly != nullptr, "what was put together is no part");
        if (const auto whole = reassembly->add(frame, packet))
            feed(way, *whole, nullptr);
        return;
    }
    if (packet.kind == Kind::ip) {
        fuzz::require(packet.transport <= packet.end, "a header ends in its packet");
        fuzz::require(packet.end <= frame.size(), "a packet ends in its frame");
    }
    (void)way.names.inward(frame);
    switch (judge(way.rules, packet)) {
    case Verdict::pass:
        way.names.pass(frame, packet);
        way.stack.input(frame);
        break;
    case Verdict::name_stream:
        feed_name_stream(way, frame, packet);
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
    NameStreams names;
    names.set_servers({server_of(AF_INET), server_of(AF_INET6)});
    // Several frames, each behind its length in two bytes.
    for (std::size_t at = 0; at + 2 <= size;) {
        const std::size_t length =
            std::min<std::size_t>(data[at] * 256U + data[at + 1], size - at - 2);
        // Exactly as large as the frame: a sanitizer sees a step beyond it.
        const std::vector<std::uint8_t> frame(data + at + 2, data + at + 2 + length);
        if (length <= mtu + ethernet_size)
            feed({**stack, rules, names}, frame, &reassembly);
        at += 2 + length;
    }
    return 0;
}

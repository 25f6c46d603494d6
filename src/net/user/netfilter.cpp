#include "net/user/netfilter.hpp"

// Before the kernel's headers, which then leave out what is in it.
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <libmnl/libmnl.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/rule.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <memory>
#include <net/ethernet.h>
#include <net/if.h>
#include <span>
#include <sys/socket.h>

namespace nsbox::net::netfilter {

namespace {

using sys::Fd;

constexpr Literal failed{"Can't set up packet rules"};
constexpr std::uint32_t first_register = NFT_REG_1;
constexpr std::uint32_t second_register = NFT_REG_2;
/// More than any one message that is made here, and more than any one rule.
constexpr std::size_t room_of_message = std::size_t{16} * 1024;

/// The opposite of an allocation of libnftnl's.
template <class T, void (*free)(const T*)>
struct Free {
    void operator()(const T* object) const noexcept { free(object); }
};
using NftTable = std::unique_ptr<nftnl_table, Free<nftnl_table, nftnl_table_free>>;
using NftChain = std::unique_ptr<nftnl_chain, Free<nftnl_chain, nftnl_chain_free>>;
using NftRule = std::unique_ptr<nftnl_rule, Free<nftnl_rule, nftnl_rule_free>>;

/// One rule in the making: each part is turned into the instructions of the kernel's machine, which
/// loads bytes into registers, compares them and leaves the rule at the first difference.
class Writer {
public:
    Writer(nftnl_rule* rule, Family of) : rule_(rule), of_(of) {}

    void operator()(const InInterface& part)
    {
        meta(NFT_META_IIFNAME);
        if (part.is_beginning)
            compare({reinterpret_cast<const std::uint8_t*>(part.name.data()), part.name.size()},
                    part.is_not ? NFT_CMP_NEQ : NFT_CMP_EQ);
        else
            compare_name(part.name, part.is_not);
    }
    void operator()(const OutInterface& part)
    {
        meta(NFT_META_OIFNAME);
        compare_name(part.name, part.is_not);
    }
    void operator()(const InIndex& part)
    {
        meta(NFT_META_IIF);
        compare(bytes_of(part.index), NFT_CMP_EQ);
    }
    void operator()(const OutIndex& part)
    {
        meta(NFT_META_OIF);
        compare(bytes_of(part.index), part.is_not ? NFT_CMP_NEQ : NFT_CMP_EQ);
    }
    void operator()(const EtherType& part)
    {
        meta(NFT_META_PROTOCOL);
        compare(in_network_order(part.type), NFT_CMP_EQ);
    }
    void operator()(const FromHardware& part)
    {
        payload(NFT_PAYLOAD_LL_HEADER, 6, part.length);
        compare({part.address.data(), part.length}, NFT_CMP_EQ);
    }
    void operator()(const ArpSender& part)
    {
        (*this)(EtherType{ETH_P_ARP});
        payload(NFT_PAYLOAD_NETWORK_HEADER, 14, 4);
        compare({part.address.bytes.data(), 4}, NFT_CMP_EQ);
    }
    void operator()(const From& part)
    {
        // Where the source stands in the headers of IPv4 and IPv6.
        address(part.prefix, part.is_not, part.prefix.address.v6 ? 8 : 12);
    }
    void operator()(const To& part)
    {
        address(part.prefix, part.is_not, part.prefix.address.v6 ? 24 : 16);
    }
    void operator()(const Protocol& part)
    {
        meta(NFT_META_L4PROTO);
        compare(std::span{&part.number, 1}, NFT_CMP_EQ);
    }
    void operator()(const ToPort& part)
    {
        (*this)(Protocol{part.protocol});
        payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
        compare(in_network_order(part.port), NFT_CMP_EQ);
    }
    void operator()(const ToPorts& part)
    {
        (*this)(Protocol{part.protocol});
        payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
        compare(in_network_order(part.first), NFT_CMP_GTE);
        compare(in_network_order(part.last), NFT_CMP_LTE);
    }
    void operator()(const Icmp6Type& part)
    {
        (*this)(Protocol{user::protocol_icmp6});
        payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
        compare({&part.type, 1}, NFT_CMP_EQ);
    }
    void operator()(const Established&)
    {
        connection(NFT_CT_STATE,
                   NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED));
    }
    void operator()(const FromPort& part)
    {
        (*this)(Protocol{part.protocol});
        payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2);
        compare(in_network_order(part.port), NFT_CMP_EQ);
    }
    void operator()(const Invalid&) { connection(NFT_CT_STATE, NF_CT_STATE_INVALID_BIT); }
    void operator()(const Translated&) { connection(NFT_CT_STATUS, IPS_DST_NAT); }
    void operator()(const Accept&) { verdict(NF_ACCEPT); }
    void operator()(const Drop&) { verdict(NF_DROP); }
    void operator()(const Reject& part)
    {
        if (nftnl_expr* const reject = begin("reject")) {
            ::nftnl_expr_set_u32(reject, NFTNL_EXPR_REJECT_TYPE,
                                 part.with_reset ? NFT_REJECT_TCP_RST : NFT_REJECT_ICMPX_UNREACH);
            ::nftnl_expr_set_u8(reject, NFTNL_EXPR_REJECT_CODE,
                                part.with_reset ? 0 : NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
        }
    }
    void operator()(const Masquerade&) { begin("masq"); }
    void operator()(const Redirect& part)
    {
        if (part.port != 0)
            load(first_register, in_network_order(part.port));
        if (nftnl_expr* const redirect = begin("redir"); redirect != nullptr && part.port != 0)
            ::nftnl_expr_set_u32(redirect, NFTNL_EXPR_REDIR_REG_PROTO_MIN, first_register);
    }
    void operator()(const Translate& part)
    {
        family(part.address.v6);
        load(first_register, {part.address.bytes.data(), part.address.size()});
        if (part.port != 0)
            load(second_register, in_network_order(part.port));
        nftnl_expr* const nat = begin("nat");
        if (nat == nullptr)
            return;
        ::nftnl_expr_set_u32(nat, NFTNL_EXPR_NAT_TYPE, NFT_NAT_DNAT);
        ::nftnl_expr_set_u32(nat, NFTNL_EXPR_NAT_FAMILY,
                             part.address.v6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
        ::nftnl_expr_set_u32(nat, NFTNL_EXPR_NAT_REG_ADDR_MIN, first_register);
        if (part.port != 0)
            ::nftnl_expr_set_u32(nat, NFTNL_EXPR_NAT_REG_PROTO_MIN, second_register);
    }

    /// False when memory ran out.
    bool is_whole() const noexcept { return is_whole_; }

private:
    using Octets = std::span<const std::uint8_t>;

    static std::array<std::uint8_t, 2> in_network_order(std::uint16_t port)
    {
        return {static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port)};
    }
    static Octets bytes_of(const std::uint32_t& value)
    {
        return {reinterpret_cast<const std::uint8_t*>(&value), sizeof value};
    }

    /// The next instruction, which the rule owns.
    nftnl_expr* begin(const char* name)
    {
        nftnl_expr* const expression = ::nftnl_expr_alloc(name);
        if (expression == nullptr)
            is_whole_ = false;
        else
            ::nftnl_rule_add_expr(rule_, expression);
        return expression;
    }
    void set(nftnl_expr* expression, std::uint16_t what, Octets bytes)
    {
        if (::nftnl_expr_set(expression, what, bytes.data(),
                             static_cast<std::uint32_t>(bytes.size())) < 0)
            is_whole_ = false;
    }

    /// What the kernel knows of the packet's connection: one of those bits.
    void connection(std::uint32_t key, const std::uint32_t any)
    {
        constexpr std::uint32_t none = 0;
        if (nftnl_expr* const load = begin("ct")) {
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_CT_KEY, key);
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_CT_DREG, first_register);
        }
        mask(bytes_of(any));
        compare(bytes_of(none), NFT_CMP_NEQ);
    }
    void meta(std::uint32_t key)
    {
        if (nftnl_expr* const load = begin("meta")) {
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_META_KEY, key);
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_META_DREG, first_register);
        }
    }
    void payload(std::uint32_t base, std::uint32_t offset, std::uint32_t size)
    {
        if (nftnl_expr* const load = begin("payload")) {
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_BASE, base);
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_LEN, size);
            ::nftnl_expr_set_u32(load, NFTNL_EXPR_PAYLOAD_DREG, first_register);
        }
    }
    void mask(Octets bits)
    {
        constexpr std::array<std::uint8_t, 16> none{};
        if (nftnl_expr* const both = begin("bitwise")) {
            ::nftnl_expr_set_u32(both, NFTNL_EXPR_BITWISE_SREG, first_register);
            ::nftnl_expr_set_u32(both, NFTNL_EXPR_BITWISE_DREG, first_register);
            ::nftnl_expr_set_u32(both, NFTNL_EXPR_BITWISE_LEN,
                                 static_cast<std::uint32_t>(bits.size()));
            set(both, NFTNL_EXPR_BITWISE_MASK, bits);
            set(both, NFTNL_EXPR_BITWISE_XOR, {none.data(), bits.size()});
        }
    }
    void compare(Octets bytes, std::uint32_t how)
    {
        if (nftnl_expr* const comparison = begin("cmp")) {
            ::nftnl_expr_set_u32(comparison, NFTNL_EXPR_CMP_SREG, first_register);
            ::nftnl_expr_set_u32(comparison, NFTNL_EXPR_CMP_OP, how);
            set(comparison, NFTNL_EXPR_CMP_DATA, bytes);
        }
    }
    void load(std::uint32_t into, Octets bytes)
    {
        if (nftnl_expr* const immediate = begin("immediate")) {
            ::nftnl_expr_set_u32(immediate, NFTNL_EXPR_IMM_DREG, into);
            set(immediate, NFTNL_EXPR_IMM_DATA, bytes);
        }
    }
    void verdict(std::uint32_t which)
    {
        if (nftnl_expr* const immediate = begin("immediate")) {
            ::nftnl_expr_set_u32(immediate, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
            ::nftnl_expr_set_u32(immediate, NFTNL_EXPR_IMM_VERDICT, which);
        }
    }

    void compare_name(const std::string& name, bool is_not)
    {
        std::array<std::uint8_t, IFNAMSIZ> padded{};
        std::memcpy(padded.data(), name.data(), std::min(name.size(), padded.size() - 1));
        compare(padded, is_not ? NFT_CMP_NEQ : NFT_CMP_EQ);
    }
    void family(bool v6)
    {
        // For a frame that is new in the host there is only what it says itself.
        if (of_ == Family::netdev) {
            (*this)(EtherType{v6 ? std::uint16_t{ETH_P_IPV6} : std::uint16_t{ETH_P_IP}});
            return;
        }
        const std::uint8_t which = v6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
        meta(NFT_META_NFPROTO);
        compare({&which, 1}, NFT_CMP_EQ);
    }
    void address(const Prefix& prefix, bool is_not, std::uint32_t offset)
    {
        family(prefix.address.v6);
        const std::size_t size = prefix.address.size();
        std::array<std::uint8_t, 16> bits{};
        std::array<std::uint8_t, 16> wanted{};
        for (unsigned i = 0; i < std::min<std::size_t>(prefix.length, size * 8); ++i)
            bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | 0x80U >> i % 8);
        for (std::size_t i = 0; i < size; ++i)
            wanted[i] = prefix.address.bytes[i] & bits[i];
        payload(NFT_PAYLOAD_NETWORK_HEADER, offset, static_cast<std::uint32_t>(size));
        mask({bits.data(), size});
        compare({wanted.data(), size}, is_not ? NFT_CMP_NEQ : NFT_CMP_EQ);
    }

    nftnl_rule* rule_;
    Family of_;
    bool is_whole_ = true;
};

std::uint32_t number_of(Hook hook)
{
    switch (hook) {
    case Hook::ingress:
        return NF_NETDEV_INGRESS;
    case Hook::prerouting:
        return NF_INET_PRE_ROUTING;
    case Hook::input:
        return NF_INET_LOCAL_IN;
    case Hook::forward:
        return NF_INET_FORWARD;
    case Hook::output:
        return NF_INET_LOCAL_OUT;
    case Hook::postrouting:
        break;
    }
    return NF_INET_POST_ROUTING;
}

std::string hint_of(int error)
{
    switch (error) {
    case EPERM:
        return "this takes CAP_NET_ADMIN over the network namespace, and the table must be nobody "
               "else's";
    case EPROTONOSUPPORT:
    case ENOENT:
    case EOPNOTSUPP:
    case EINVAL:
    case EAFNOSUPPORT:
        return "the kernel needs nf_tables with nat for the family inet, and Linux 5.12: load the "
               "modules nf_tables, nft_chain_nat, nft_nat, nft_redir, nft_masq, nft_ct and "
               "nft_reject_inet as root";
    default:
        return {};
    }
}

tl::unexpected<Error> refused(int error, std::string object)
{
    return fail(failed, error, std::move(object), hint_of(error));
}

/// Messages that the kernel carries out as a whole or not at all.
class Transaction {
public:
    Transaction(std::uint32_t& sequence, Family family) : sequence_(sequence), family_(family)
    {
        ::nftnl_batch_begin(room(), sequence_);
        note("the transaction");
    }

    Result<> table(std::uint16_t type, const std::string& name)
    {
        const NftTable table{::nftnl_table_alloc()};
        if (!table || ::nftnl_table_set_str(table.get(), NFTNL_TABLE_NAME, name.c_str()) < 0)
            return refused(ENOMEM, name);
        if (type == NFT_MSG_NEWTABLE)
            ::nftnl_table_set_u32(table.get(), NFTNL_TABLE_FLAGS, NFT_TABLE_F_OWNER);
        ::nftnl_table_nlmsg_build_payload(begin(type, type == NFT_MSG_NEWTABLE ? NLM_F_CREATE : 0),
                                          table.get());
        note("table " + name);
        return {};
    }

    Result<> chain(const std::string& table, const Chain& wish)
    {
        const NftChain chain{::nftnl_chain_alloc()};
        if (!chain || ::nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_TABLE, table.c_str()) < 0 ||
            ::nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_NAME, wish.name.c_str()) < 0 ||
            ::nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_TYPE,
                                  wish.type == Type::nat ? "nat" : "filter") < 0)
            return refused(ENOMEM, wish.name);
        if (!wish.device.empty() &&
            ::nftnl_chain_set_str(chain.get(), NFTNL_CHAIN_DEV, wish.device.c_str()) < 0)
            return refused(ENOMEM, wish.name);
        ::nftnl_chain_set_u32(chain.get(), NFTNL_CHAIN_HOOKNUM, number_of(wish.hook));
        ::nftnl_chain_set_s32(chain.get(), NFTNL_CHAIN_PRIO, wish.priority);
        ::nftnl_chain_set_u32(chain.get(), NFTNL_CHAIN_POLICY, wish.accepts ? NF_ACCEPT : NF_DROP);
        ::nftnl_chain_nlmsg_build_payload(begin(NFT_MSG_NEWCHAIN, NLM_F_CREATE), chain.get());
        note("chain " + table + " " + wish.name);
        for (std::size_t i = 0; i < wish.rules.size(); ++i)
            TRY(add_rule(table, wish, i));
        return {};
    }

    /// Sends everything. What the kernel has to say is there when it returns.
    Result<> commit(int socket)
    {
        // Only the last one is answered when all is well; a failure is always told.
        last_->nlmsg_flags |= NLM_F_ACK;
        const std::uint32_t last = last_->nlmsg_seq;
        ::nftnl_batch_end(room(), sequence_);
        note("the transaction");
        sockaddr_nl kernel{};
        kernel.nl_family = AF_NETLINK;
        // It goes as one message, of whatever size.
        const int size = static_cast<int>(used_ + 4096);
        if (::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) < 0)
            ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        if (::sendto(socket, bytes_.data(), used_, MSG_NOSIGNAL,
                     reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) < 0)
            return refused(errno, {});
        return take_answers(socket, last);
    }

private:
    Result<> add_rule(const std::string& table, const Chain& chain, std::size_t number)
    {
        const std::string name =
            "rule " + std::to_string(number + 1) + " of chain " + table + " " + chain.name;
        const NftRule rule{::nftnl_rule_alloc()};
        if (!rule || ::nftnl_rule_set_str(rule.get(), NFTNL_RULE_TABLE, table.c_str()) < 0 ||
            ::nftnl_rule_set_str(rule.get(), NFTNL_RULE_CHAIN, chain.name.c_str()) < 0)
            return refused(ENOMEM, name);
        Writer writer{rule.get(), family_};
        for (const Part& part : chain.rules[number])
            std::visit(writer, part);
        if (!writer.is_whole())
            return refused(ENOMEM, name);
        ::nftnl_rule_nlmsg_build_payload(begin(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND),
                                         rule.get());
        note(name);
        return {};
    }

    char* room()
    {
        bytes_.resize(used_ + room_of_message);
        last_ = reinterpret_cast<nlmsghdr*>(bytes_.data() + used_);
        return bytes_.data() + used_;
    }
    nlmsghdr* begin(std::uint16_t type, int flags)
    {
        return ::nftnl_nlmsg_build_hdr(room(), type,
                                       family_ == Family::inet ? NFPROTO_INET : NFPROTO_NETDEV,
                                       static_cast<std::uint16_t>(flags), sequence_);
    }
    /// The message that was just made is whole.
    void note(std::string object)
    {
        used_ += NLMSG_ALIGN(last_->nlmsg_len);
        objects_.push_back(std::move(object));
        ++sequence_;
    }

    Result<> take_answers(int socket, std::uint32_t last)
    {
        std::array<char, 8192> answer;
        bool is_done = false;
        for (;;) {
            const ssize_t got = ::recv(socket, answer.data(), answer.size(), MSG_DONTWAIT);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                break;
            int left = static_cast<int>(got);
            const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
            for (; ::mnl_nlmsg_ok(header, left); header = ::mnl_nlmsg_next(header, &left)) {
                if (header->nlmsg_type != NLMSG_ERROR ||
                    ::mnl_nlmsg_get_payload_len(header) < sizeof(nlmsgerr))
                    continue;
                nlmsgerr error;
                std::memcpy(&error, ::mnl_nlmsg_get_payload(header), sizeof error);
                // Further errors follow from this one.
                if (error.error != 0)
                    return refused(-error.error, object_of(header->nlmsg_seq));
                is_done |= header->nlmsg_seq == last;
            }
        }
        if (!is_done)
            return refuse(failed, {}, "the kernel did not answer");
        return {};
    }
    std::string object_of(std::uint32_t sequence) const
    {
        const std::uint32_t first = sequence_ - static_cast<std::uint32_t>(objects_.size());
        const std::uint32_t index = sequence - first;
        return index < objects_.size() ? objects_[index] : std::string{};
    }

    std::uint32_t& sequence_;
    Family family_;
    std::vector<char> bytes_;
    std::size_t used_ = 0;
    nlmsghdr* last_ = nullptr;          ///< The message in the making.
    std::vector<std::string> objects_;  ///< What each message is about.
};

}  // namespace

Result<Owner> Owner::open()
{
    Fd socket{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER)};
    if (!socket)
        return refused(errno, "netlink");
    return Owner{std::move(socket)};
}

Result<> Owner::write(const Table& table)
{
    Transaction transaction{sequence_, table.family};
    // The first one only makes sure that there is something to remove.
    TRY(transaction.table(NFT_MSG_NEWTABLE, table.name));
    TRY(transaction.table(NFT_MSG_DELTABLE, table.name));
    TRY(transaction.table(NFT_MSG_NEWTABLE, table.name));
    for (const Chain& chain : table.chains)
        TRY(transaction.chain(table.name, chain));
    return transaction.commit(socket_.get());
}

Result<> Owner::remove(const std::string& name, Family family)
{
    Transaction transaction{sequence_, family};
    TRY(transaction.table(NFT_MSG_DELTABLE, name));
    return transaction.commit(socket_.get());
}

}  // namespace nsbox::net::netfilter

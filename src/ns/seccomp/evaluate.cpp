#include "ns/seccomp/evaluate.hpp"

#include <array>
#include <cstddef>
#include <cstring>

namespace nsbox::ns::seccomp {

namespace {

constexpr std::uint32_t kill = SECCOMP_RET_KILL_PROCESS;

/// The machine of classic BPF: an accumulator, an index, and words of memory.
class Machine {
public:
    explicit Machine(const seccomp_data& call) : call_(call) {}

    std::uint32_t run(std::span<const sock_filter> program)
    {
        for (std::size_t at = 0; at < program.size(); ++at) {
            const sock_filter& it = program[at];
            switch (BPF_CLASS(it.code)) {
            case BPF_RET:
                return BPF_RVAL(it.code) == BPF_A ? a_ : it.k;
            case BPF_JMP:
                at += jump(it);
                break;
            case BPF_MISC:
                (BPF_MISCOP(it.code) == BPF_TAX ? x_ : a_) =
                    BPF_MISCOP(it.code) == BPF_TAX ? a_ : x_;
                break;
            default:
                if (!step(it))
                    return kill;
            }
        }
        return kill;
    }

private:
    std::size_t jump(const sock_filter& it) const
    {
        const std::uint32_t other = BPF_SRC(it.code) == BPF_X ? x_ : it.k;
        switch (BPF_OP(it.code)) {
        case BPF_JA:
            return it.k;
        case BPF_JEQ:
            return a_ == other ? it.jt : it.jf;
        case BPF_JGT:
            return a_ > other ? it.jt : it.jf;
        case BPF_JGE:
            return a_ >= other ? it.jt : it.jf;
        default:
            return (a_ & other) != 0 ? it.jt : it.jf;
        }
    }

    bool step(const sock_filter& it)
    {
        const std::uint16_t kind = BPF_CLASS(it.code);
        if (kind == BPF_ALU)
            return calculate(it);
        const bool in_memory = kind == BPF_ST || kind == BPF_STX || BPF_MODE(it.code) == BPF_MEM;
        if (in_memory && it.k >= memory_.size())
            return false;
        if (kind == BPF_ST || kind == BPF_STX) {
            memory_[it.k] = kind == BPF_ST ? a_ : x_;
            return true;
        }
        std::uint32_t& to = kind == BPF_LD ? a_ : x_;
        switch (BPF_MODE(it.code)) {
        case BPF_IMM:
            to = it.k;
            return true;
        case BPF_MEM:
            to = memory_[it.k];
            return true;
        case BPF_LEN:
            to = sizeof call_;
            return true;
        case BPF_ABS:
            if (it.k % 4 != 0 || it.k > sizeof call_ - 4)
                return false;
            std::memcpy(&to, reinterpret_cast<const char*>(&call_) + it.k, 4);
            return true;
        default:
            return false;
        }
    }

    bool calculate(const sock_filter& it)
    {
        const std::uint32_t other = BPF_SRC(it.code) == BPF_X ? x_ : it.k;
        const std::uint16_t op = BPF_OP(it.code);
        if ((op == BPF_DIV && other == 0) || ((op == BPF_LSH || op == BPF_RSH) && other > 31))
            return false;
        switch (op) {
        case BPF_ADD:
            a_ += other;
            break;
        case BPF_SUB:
            a_ -= other;
            break;
        case BPF_MUL:
            a_ *= other;
            break;
        case BPF_DIV:
            a_ /= other;
            break;
        case BPF_OR:
            a_ |= other;
            break;
        case BPF_AND:
            a_ &= other;
            break;
        case BPF_XOR:
            a_ ^= other;
            break;
        case BPF_LSH:
            a_ <<= other;
            break;
        case BPF_RSH:
            a_ >>= other;
            break;
        case BPF_NEG:
            a_ = 0U - a_;
            break;
        default:
            return false;
        }
        return true;
    }

    const seccomp_data& call_;
    std::uint32_t a_ = 0;
    std::uint32_t x_ = 0;
    std::array<std::uint32_t, BPF_MEMWORDS> memory_{};
};

}  // namespace

std::uint32_t evaluate(std::span<const sock_filter> program, const seccomp_data& call)
{
    return Machine{call}.run(program);
}

// The kernel compares them as signed numbers: that of SECCOMP_RET_KILL_PROCESS is negative.
bool is_stricter(std::uint32_t a, std::uint32_t b)
{
    return static_cast<std::int32_t>(a & SECCOMP_RET_ACTION_FULL) <
           static_cast<std::int32_t>(b & SECCOMP_RET_ACTION_FULL);
}

std::vector<sock_filter> instructions_of(std::span<const std::uint8_t> bytes)
{
    std::vector<sock_filter> program(bytes.size() / sizeof(sock_filter));
    if (!program.empty())
        std::memcpy(program.data(), bytes.data(), program.size() * sizeof(sock_filter));
    return program;
}

}  // namespace nsbox::ns::seccomp

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nsbox::ns::seccomp {

/// A calling convention of system calls: see seccomp(2), on `arch`.
enum class Abi : std::uint8_t { x86_64, i386, x32, aarch64, arm };

inline constexpr Abi all_abis[] = {Abi::x86_64, Abi::i386, Abi::x32, Abi::aarch64, Abi::arm};

/// As seccomp_data has it, AUDIT_ARCH_*; x86_64 and x32 share one, and differ by the call's number.
std::uint32_t audit_architecture(Abi abi);

const char* name_of(Abi abi);
std::optional<Abi> abi_by_name(std::string_view name);

/// Those that a kernel for this program's architecture may have.
std::vector<Abi> abis_of_this_machine();

/// A system call's number by its name; nothing where the calling convention has no such call of its own.
std::optional<std::uint32_t> number_of(Abi abi, const std::string& call);

/// Whether any calling convention has it.
bool is_system_call(const std::string& call);

/// The name behind a number, or an empty text.
std::string call_by_number(Abi abi, std::uint32_t number);

}  // namespace nsbox::ns::seccomp

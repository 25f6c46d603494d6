#pragma once

#include <cstdint>
#include <string>

namespace nsbox::runtime {

// Why a host refuses sandboxes: probes that are made after a failure, from the parent's side.
// Each answers with a sentence for the user, or with an empty text where it is not the cause.
// Files below /proc and /sys are read and nothing is written. Thread-safe.

/// The caller's root directory is no mount: it was made by chroot(2).
std::string diagnose_chroot();

/// AppArmor lets unprivileged programs make user namespaces but nothing in them.
std::string diagnose_apparmor();

/// Debian's switch, kernel.unprivileged_userns_clone.
std::string diagnose_userns_switch();

/// One of the limits user.max_*_namespaces, or one of an outer sandbox; `flags` are CLONE_NEW*.
std::string diagnose_limits(std::uint64_t flags);

/// A seccomp filter around us, as container engines have it.
std::string diagnose_seccomp();

/// Parts of /proc are covered, for which the kernel refuses a new procfs.
std::string diagnose_covered_proc();

/// Why a folder cannot be the lower layer of an overlay: its file system, or the mounts below it.
std::string diagnose_lower(const std::string& path);

/// Why a folder cannot be an overlay's upper layer. Null is a folder that nothing is known against.
std::string diagnose_upper(const char* upper, const char* work, int err);

/// A security module's label on this process.
std::string diagnose_security_module();

/// The most probable reason why clone with these flags gave this errno.
std::string diagnose_clone(std::uint64_t flags, int err);

/// The most probable reason why a mount call gave this errno.
std::string diagnose_mount(int err);

/// What ran out, for errnos that say so wherever they come from.
std::string diagnose_resources(int err);

/// Why an id map could not be written.
std::string diagnose_id_map(int err);

}  // namespace nsbox::runtime

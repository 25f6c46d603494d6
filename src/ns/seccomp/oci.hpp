#pragma once

#include "ns/seccomp/policy.hpp"
#include "nsbox/error.hpp"

#include <string>

namespace nsbox::ns::seccomp {

/// Reads a profile in JSON: the object "seccomp" of the OCI runtime specification, or what Docker and
/// Podman take for --security-opt seccomp=FILE, with its includes and excludes. Names that no calling
/// convention knows are passed over, as there. A rule without arguments comes before those that have
/// some, as libseccomp has it.
Result<Policy> read_oci_profile(const std::string& text, const std::string& origin,
                                const Circumstances& circumstances);

}  // namespace nsbox::ns::seccomp

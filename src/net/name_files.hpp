#pragma once

#include "net/resolv_conf.hpp"

#include <string>

namespace nsbox::net {

// The files by which programs in a sandbox with a user-mode network find names.

/// /etc/resolv.conf: the sandbox's own name server, with the host's search list and options.
std::string resolv_conf_for(const ResolvConf& host);

/// /etc/hosts: this machine, under its names.
std::string hosts_for(const std::string& hostname);

}  // namespace nsbox::net

#pragma once

#include "net/resolv_conf.hpp"

#include <string>

namespace nsbox::net {

// The files by which programs in a sandbox with a network of nsbox's find names.

/// /etc/resolv.conf: the sandbox's own name server, with the host's search list and options. Without
/// one the host's own are named, but for those that only the host can reach.
std::string resolv_conf_for(const ResolvConf& host, const std::string& name_server);

/// /etc/hosts: this machine, under its names.
std::string hosts_for(const std::string& hostname);

}  // namespace nsbox::net

#pragma once

#include <span>
#include <string>
#include <vector>

namespace nsbox::tool {

/// Every option of bwrap's command line; the order is that of the help text.
enum class Opt {
    help,
    version,
    args,
    argv0,
    level_prefix,
    unshare_all,
    share_net,
    unshare_user,
    unshare_user_try,
    unshare_ipc,
    unshare_pid,
    unshare_net,
    unshare_uts,
    unshare_cgroup,
    unshare_cgroup_try,
    userns,
    userns2,
    disable_userns,
    assert_userns_disabled,
    pidns,
    uid,
    gid,
    hostname,
    chdir,
    clearenv,
    setenv,
    unsetenv,
    lock_file,
    sync_fd,
    bind,
    bind_try,
    dev_bind,
    dev_bind_try,
    ro_bind,
    ro_bind_try,
    bind_fd,
    ro_bind_fd,
    remount_ro,
    overlay_src,
    overlay,
    tmp_overlay,
    ro_overlay,
    exec_label,
    file_label,
    proc,
    dev,
    tmpfs,
    mqueue,
    dir,
    file,
    bind_data,
    ro_bind_data,
    symlink,
    seccomp,
    add_seccomp_fd,
    seccomp_policy,
    allow_userns,
    allow_ptrace,
    rlimit,
    memory,
    pids,
    cpus,
    cpuset,
    io,
    limits,
    nice,
    tmpfs_size,
    proc_fallback,
    landlock,
    tcp_connect,
    tcp_bind,
    block_fd,
    userns_block_fd,
    info_fd,
    json_status_fd,
    new_session,
    die_with_parent,
    as_pid_1,
    cap_add,
    cap_drop,
    perms,
    size,
    chmod,
    not_a_security_boundary,
    forward_signals,
    kill_all,
    map_uid,
    map_gid,
    subids,
    net,
    host_loopback,
    publish,
    host_socket,
    timeout,
    kill_after,
    cpu_time,
    distinct_status,
    events_fd,
    log_denials,
    name,
    pty,
    pty_size,
};

/// In place of a number of arguments: one behind an equals sign, or none.
inline constexpr int optional_argument = -1;

struct OptionInfo {
    Opt opt;
    const char* name;       ///< With its two dashes.
    const char* arguments;  ///< As the help shows them.
    int count;              ///< How many there are; see optional_argument.
    const char* text;       ///< One line a '\n'.
    const char* missing;    ///< What is said when arguments are missing.
};

/// All of them, in the order of the help text.
std::span<const OptionInfo> all_options();

/// Null for a word that is no option.
const OptionInfo* find_option(const std::string& name);

/// The known option that is most like `name`, or an empty text if none is near.
std::string nearest_option(const std::string& name);

/// The help text, for a program that was called as `program`.
std::string help_text(const std::string& program);

}  // namespace nsbox::tool

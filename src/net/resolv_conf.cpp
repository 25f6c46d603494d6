#include "net/resolv_conf.hpp"

#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <optional>
#include <sys/inotify.h>

namespace nsbox::net {

namespace {

constexpr const char* path = "/etc/resolv.conf";
constexpr in_port_t dns_port = 53;
constexpr std::size_t most_servers = 8;

std::vector<std::string> words_of(const std::string& line)
{
    std::vector<std::string> words;
    constexpr const char* blanks = " \t\r";
    for (std::size_t at = line.find_first_not_of(blanks); at != std::string::npos;) {
        const std::size_t end = line.find_first_of(blanks, at);
        words.push_back(line.substr(at, end - at));
        at = line.find_first_not_of(blanks, end);
    }
    return words;
}

std::optional<user::SocketAddress> to_server(const std::string& text)
{
    user::SocketAddress server;
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&server.storage);
    if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(dns_port);
        server.size = sizeof *v4;
        return server;
    }
    const std::size_t zone = text.find('%');
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&server.storage);
    if (::inet_pton(AF_INET6, text.substr(0, zone).c_str(), &v6->sin6_addr) != 1)
        return std::nullopt;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(dns_port);
    if (zone != std::string::npos)
        v6->sin6_scope_id = ::if_nametoindex(text.c_str() + zone + 1);
    server.size = sizeof *v6;
    return server;
}

/// "a/b/c" without its last part.
std::string folder_of(const std::string& file)
{
    const std::size_t slash = file.rfind('/');
    return slash == 0 || slash == std::string::npos ? "/" : file.substr(0, slash);
}

}  // namespace

ResolvConf parse_resolv_conf(const std::string& text)
{
    ResolvConf conf;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::vector<std::string> words = words_of(text.substr(at, end - at));
        at = end + 1;
        if (words.size() < 2)
            continue;
        const std::vector<std::string> rest(words.begin() + 1, words.end());
        if (words[0] == "nameserver") {
            const std::optional<user::SocketAddress> server = to_server(rest[0]);
            if (server && conf.servers.size() < most_servers)
                conf.servers.push_back(*server);
        } else if (words[0] == "search" || words[0] == "domain") {
            conf.search = rest;  // The last one holds.
        } else if (words[0] == "options") {
            conf.options.insert(conf.options.end(), rest.begin(), rest.end());
        }
    }
    return conf;
}

HostResolvConf::HostResolvConf()
    : watch_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)), text_(sys::read_file(path)),
      now_(parse_resolv_conf(text_))
{
    follow();
}

/// The folders that the file is in: of its name, and of what that leads to. A watch that exists
/// already stays one.
void HostResolvConf::follow()
{
    if (!watch_)
        return;
    constexpr std::uint32_t what = IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE;
    ::inotify_add_watch(watch_.get(), folder_of(path).c_str(), what);
    const std::unique_ptr<char, void (*)(void*)> real{::realpath(path, nullptr), std::free};
    if (real != nullptr)
        ::inotify_add_watch(watch_.get(), folder_of(real.get()).c_str(), what);
}

bool HostResolvConf::update()
{
    alignas(inotify_event) char events[4096];
    constexpr int most_reads = 64;
    for (int i = 0; i < most_reads && sys::raw::read(watch_.get(), events, sizeof events) > 0;
         ++i) {
    }
    follow();
    std::string text = sys::read_file(path);
    if (text == text_)
        return false;
    text_ = std::move(text);
    now_ = parse_resolv_conf(text_);
    return true;
}

}  // namespace nsbox::net

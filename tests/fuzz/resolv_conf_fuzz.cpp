// The parser of resolv.conf, on any bytes.

#include "net/resolv_conf.hpp"
#include "words.hpp"

#include <netinet/in.h>

using namespace nsbox;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const net::ResolvConf conf =
        net::parse_resolv_conf(std::string{reinterpret_cast<const char*>(data), size});
    for (const net::user::SocketAddress& server : conf.servers) {
        const bool v4 = server.storage.ss_family == AF_INET && server.size == sizeof(sockaddr_in);
        const bool v6 = server.storage.ss_family == AF_INET6 && server.size == sizeof(sockaddr_in6);
        fuzz::require(v4 || v6, "a server has an address");
    }
    for (const std::vector<std::string>* words : {&conf.search, &conf.options})
        for (const std::string& word : *words)
            fuzz::require(word.find_first_of(" \t\n") == std::string::npos, "words are words");
    return 0;
}

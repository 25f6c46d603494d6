#include "rootfs/sha256.hpp"

#include "rootfs/names.hpp"
#include "sys/raw.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <openssl/evp.h>
#include <vector>

namespace nsbox::rootfs {

namespace {

/// It is asked for once: every look-up takes a lock and time.
EVP_MD* algorithm()
{
    static EVP_MD* const md = ::EVP_MD_fetch(nullptr, "SHA256", nullptr);
    return md;
}

/// Only want of memory, or a library that has no SHA-256.
void require(bool is_done)
{
    if (is_done)
        return;
    std::fputs("nsbox-rootfs: libcrypto has no SHA-256\n", stderr);
    std::abort();
}

}  // namespace

struct Sha256::State {
    EVP_MD_CTX* context = ::EVP_MD_CTX_new();
};

Sha256::Sha256() : state_(std::make_unique<State>())
{
    require(state_->context != nullptr &&
            ::EVP_DigestInit_ex2(state_->context, algorithm(), nullptr) == 1);
}

Sha256::~Sha256()
{
    ::EVP_MD_CTX_free(state_->context);
}

void Sha256::add(const void* data, std::size_t size)
{
    require(::EVP_DigestUpdate(state_->context, data, size) == 1);
}

std::string Sha256::take()
{
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
    unsigned size = 0;
    require(::EVP_DigestFinal_ex(state_->context, bytes.data(), &size) == 1 &&
            ::EVP_DigestInit_ex2(state_->context, nullptr, nullptr) == 1);
    return {reinterpret_cast<const char*>(bytes.data()), size};
}

std::string sha256_of(std::string_view bytes)
{
    Sha256 sum;
    sum.add(bytes.data(), bytes.size());
    return to_hex(sum.take());
}

Result<std::string> sha256_of_file(int fd, const std::string& called)
{
    Sha256 sum;
    std::vector<char> part(std::size_t{1} << 18);
    for (long offset = 0;;) {
        const long got = sys::raw::call(SYS_pread64, fd, part.data(), part.size(), offset);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return fail("Can't read", static_cast<int>(-got), called);
        if (got == 0)
            return to_hex(sum.take());
        sum.add(part.data(), static_cast<std::size_t>(got));
        offset += got;
    }
}

}  // namespace nsbox::rootfs

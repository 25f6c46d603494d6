#include "nsbox/document.hpp"

#include "sys/error.hpp"

namespace nsbox {

Result<Described> describe(std::string_view text)
{
    Document document = TRY(parse_document(text));
    Described described;
    if (document.rootfs) {
        described.rootfs.emplace(TRY(Rootfs::open(*document.rootfs)));
        document.everyday.use(*described.rootfs);
    }
    TRY(complete(document.spec, document.everyday));
    described.spec = std::move(document.spec);
    return described;
}

}  // namespace nsbox

// The reader of documents that describe sandboxes, on any bytes.

#include "nsbox/document.hpp"
#include "words.hpp"

using namespace nsbox;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const std::string text{reinterpret_cast<const char*>(data), size};
    const Result<Document> document = parse_document(text);
    if (!document)
        fuzz::require(!document.error().message().empty(), "what is wrong is said");
    else
        fuzz::require(document->spec.kept && document->spec.kept->empty(), "no descriptor is kept");
    return 0;
}

#include "spec_main.hpp"

#include "control_main.hpp"
#include "files.hpp"
#include "messages.hpp"

#include "nsbox/document.hpp"

#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace nsbox::tool {

namespace {

constexpr const char* help =
    "usage: nsbox spec check FILE|-...    say whether documents describe sandboxes\n"
    "       nsbox spec schema             print a JSON Schema of documents\n"
    "\n"
    "A document describes a sandbox in JSON, for nsbox run --spec and for the library.\n";

int complain(const std::string& text)
{
    Messages messages{"nsbox"};
    messages.escape_controls();
    messages.error(text);
    return control_failed;
}

int check(const std::string& name)
{
    const std::optional<std::string> text =
        name == "-" ? read_descriptor(STDIN_FILENO) : read_file(name);
    if (!text)
        return complain("Can't read " + name + ": " + ::strerrordesc_np(errno));
    const Result<Document> document = parse_document(*text);
    return document ? 0 : complain(name + ": " + document.error().message());
}

}  // namespace

int spec_main(const std::vector<std::string>& words)
{
    const std::string verb = words.empty() ? "" : words[0];
    if (verb == "help" || verb == "--help") {
        write_out(STDOUT_FILENO, help);
        return 0;
    }
    if (verb == "schema" && words.size() == 1) {
        write_out(STDOUT_FILENO, document_schema());
        return 0;
    }
    if (verb != "check" || words.size() < 2)
        return complain("nsbox spec takes check FILE or schema (hint: see nsbox spec help)");
    int status = 0;
    for (std::size_t i = 1; i < words.size(); ++i)
        status = check(words[i]) != 0 ? control_failed : status;
    return status;
}

}  // namespace nsbox::tool

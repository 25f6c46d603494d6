#include "sys/error.hpp"

#include <cstring>

namespace nsbox {

std::string Error::message() const
{
    std::string text{op.view()};
    if (!object.empty()) {
        if (!text.empty())
            text += ' ';
        text += object;
    }
    if (!reason.empty())
        text += ": " + reason;
    else if (err != 0)
        text += std::string{": "} + ::strerrordesc_np(err);
    if (!hint.empty())
        text += " (hint: " + hint + ")";
    return text;
}

}  // namespace nsbox

// Values that Protobuf's text format takes and no field has a meaning for.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <string>

namespace poseidon {

// Throws ConfigError with the place of the first field, at any depth of `message`, that is
// infinite, NaN, or a text that is no UTF-8 or has a NUL, which can't be shown, logged or sent.
// `tree` is what the parser has recorded of `file`.
void CheckTextValues(const google::protobuf::Message& message,
                     const google::protobuf::TextFormat::ParseInfoTree& tree,
                     const std::string& file);

}  // namespace poseidon

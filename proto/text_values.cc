#include "proto/text_values.h"

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/text/utf8.h"

namespace poseidon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// What is wrong with the text; "" if nothing is.
std::string ErrorOf(const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    return "\"" + Printable(text) + "\", which has a NUL character; remove it";
  }
  if (FindNotUtf8(text)) {
    return "\"" + Printable(text) + "\", which is no UTF-8; write the file in UTF-8";
  }
  return "";
}

std::string ErrorOf(double number, int bits) {
  if (std::isfinite(number)) return "";
  if (std::isnan(number)) return "nan; it must be a number";
  return "infinite, or too large for its " + std::to_string(bits) + " bits; give a finite number";
}

// One value of a field: of a repeated one the value at `index`, which is else -1 as the tree wants
// it.
struct Value {
  const Message& message;
  const FieldDescriptor* field;
  int index;

  const Message& Nested() const {
    return index < 0 ? reflection().GetMessage(message, field)
                     : reflection().GetRepeatedMessage(message, field, index);
  }
  std::string Error() const {
    switch (field->type()) {
      case FieldDescriptor::TYPE_STRING:
        return ErrorOf(index < 0 ? reflection().GetString(message, field)
                                 : reflection().GetRepeatedString(message, field, index));
      case FieldDescriptor::TYPE_FLOAT:
        return ErrorOf(index < 0 ? reflection().GetFloat(message, field)
                                 : reflection().GetRepeatedFloat(message, field, index),
                       32);
      case FieldDescriptor::TYPE_DOUBLE:
        return ErrorOf(index < 0 ? reflection().GetDouble(message, field)
                                 : reflection().GetRepeatedDouble(message, field, index),
                       64);
      default:
        return "";
    }
  }

 private:
  const Reflection& reflection() const { return *message.GetReflection(); }
};

std::vector<Value> ValuesOf(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::vector<Value> values;
  for (const FieldDescriptor* field : fields) {
    if (!field->is_repeated()) {
      values.push_back({message, field, -1});
      continue;
    }
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int i = 0; i < size; ++i) values.push_back({message, field, i});
  }
  return values;
}

}  // namespace

void CheckTextValues(const Message& message, const TextFormat::ParseInfoTree& tree,
                     const std::string& file) {
  for (const Value& value : ValuesOf(message)) {
    if (value.field->message_type() != nullptr) {
      const auto* const nested = tree.GetTreeForNested(value.field, value.index);
      if (nested != nullptr) CheckTextValues(value.Nested(), *nested, file);
      continue;
    }
    const std::string error = value.Error();
    if (error.empty()) continue;
    const TextFormat::ParseLocation place = tree.GetLocation(value.field, value.index);
    throw ConfigError(Location{file, place.line + 1, place.column + 1},
                      value.field->name() + " is " + error);
  }
}

}  // namespace poseidon

#include "proto/text_format.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "core/files/regular_file.h"
#include "core/text/listed.h"
#include "core/text/nearest.h"
#include "core/text/utf8.h"
#include "proto/caffe_forks.h"
#include "proto/text_values.h"

namespace poseidon {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::Tokenizer;

// Keeps the first error; later ones are its consequences. Protobuf counts lines and columns from 0
// and gives a negative line where it knows none.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  struct Entry {
    int line;
    int column;
    std::string message;
  };
  void AddError(int line, int column, const std::string& message) override {
    if (!entry_) entry_ = Entry{line, column, message};
  }
  const std::optional<Entry>& entry() const { return entry_; }

 private:
  std::optional<Entry> entry_;
};

std::vector<std::string> FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  names.reserve(message.field_count());
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return names;
}

// "; did you mean "stepsize"?", or all fields where none is near.
std::string Suggestion(const Descriptor& message, const std::string& unknown) {
  const std::vector<std::string> names = FieldNames(message);
  if (const auto nearest = Nearest(unknown, names)) return "; did you mean \"" + *nearest + "\"?";
  return "; its fields are " + Listed(names);
}

std::string ValueNames(const EnumDescriptor& type) {
  std::string names;
  for (int i = 0; i < type.value_count(); ++i) {
    names += (i == 0 ? "" : ", ") + type.value(i)->name();
  }
  return names;
}

// A message that has begun and not ended.
struct OpenMessage {
  const Descriptor* type;  // null within a message of unknown type
  std::string begin;       // as in the text: "training {"
  int line = 0;            // of its name, from 0
};

// Where an error happened: the messages that the parser was in and the last name before the error.
struct Context {
  std::vector<OpenMessage> open;  // the root first
  std::string name;               // the last field name read
  int line = 0;                   // where it stands, from 0
  int column = 0;
  bool expects_name = true;  // else a value
  bool is_text_end = false;  // what comes before is whole tokens
};

// Follows the tokens up to (line, column) through the nested messages. Protobuf's own error
// position is the token after the culprit and its text does not say which message it was in.
Context FindContext(const std::string& text, const Descriptor& root, int line, int column) {
  FirstError of_tokens;
  ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  Tokenizer tokenizer(&stream, &of_tokens);
  tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  Context context;
  context.open.push_back({&root, "", 0});
  while (tokenizer.Next()) {
    const Tokenizer::Token& token = tokenizer.current();
    if (std::pair(token.line, token.column) >= std::pair(line, column)) return context;
    // A value may be an identifier, too.
    if (token.type == Tokenizer::TYPE_IDENTIFIER && context.expects_name) {
      context.name = token.text;
      context.line = token.line;
      context.column = token.column;
    } else if (token.text == "{" || token.text == "<") {
      const Descriptor* parent = context.open.back().type;
      const FieldDescriptor* field = parent ? parent->FindFieldByName(context.name) : nullptr;
      context.open.push_back(
          {field ? field->message_type() : nullptr, context.name + " " + token.text, context.line});
    } else if ((token.text == "}" || token.text == ">") && context.open.size() > 1) {
      context.open.pop_back();
    }
    context.expects_name = token.text != ":";
  }
  context.is_text_end = !of_tokens.entry();
  return context;
}

// Says more than Protobuf does where more is known; corrects the position.
FirstError::Entry Explain(FirstError::Entry error, const std::string& text,
                          const Descriptor& root) {
  if (error.line < 0) return error;
  const Context context = FindContext(text, root, error.line, error.column);
  const OpenMessage& inner = context.open.back();
  if (context.is_text_end && context.open.size() > 1) {
    error.message = "the file ends inside \"" + inner.begin + "\" of line " +
                    std::to_string(inner.line + 1) + "; a " +
                    (inner.begin.ends_with("<") ? ">" : "}") + " is missing";
    return error;
  }
  // Then the last name has nothing to do with it.
  if (context.expects_name && error.message.starts_with("Expected identifier")) return error;
  if (!inner.type) return error;
  const FieldDescriptor* field = inner.type->FindFieldByName(context.name);
  if (!field && error.message.find("has no field named") != std::string::npos) {
    const std::string fork = NoteOnForkField(inner.type->name(), context.name);
    return {context.line, context.column,
            inner.type->name() + " has no field \"" + context.name + "\"" +
                (fork.empty() ? Suggestion(*inner.type, context.name) : "; " + fork)};
  }
  if (field && field->enum_type()) {
    error.message += " Allowed: " + ValueNames(*field->enum_type()) + ".";
  } else if (field && field->type() == FieldDescriptor::TYPE_BOOL) {
    error.message += " Allowed: true, false.";
  } else if (field) {
    error.message += " (in field \"" + field->name() + "\", " + field->type_name() + ")";
  }
  return error;
}

}  // namespace

TextLocations ParseText(const std::string& content, const std::string& file, Message& message) {
  const std::string text(WithoutByteOrderMark(content));
  auto tree = std::make_shared<TextFormat::ParseInfoTree>();
  FirstError errors;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(tree.get());
  if (!parser.ParseFromString(text, &message)) {
    const FirstError::Entry error = errors.entry()
                                        ? Explain(*errors.entry(), text, *message.GetDescriptor())
                                        : FirstError::Entry{-1, -1, "is no valid Protobuf text"};
    throw ConfigError(Location{file, error.line + 1, error.column + 1}, error.message);
  }
  CheckTextValues(message, *tree, file);
  return TextLocations(file, std::move(tree));
}

TextLocations ReadTextFile(const std::string& path, Message& message) {
  return ParseText(ReadRegularFile(path, ExitCode::kConfigError), path, message);
}

namespace {

// One step of a path: a field and, if it is repeated, which of its values.
struct Step {
  const FieldDescriptor* field;
  int index;  // -1 for a field that is not repeated, as ParseInfoTree wants it
};

// The steps of `path` as far as `root` has such fields.
std::vector<Step> Steps(const Descriptor* root, const std::string& path) {
  std::vector<Step> steps;
  std::istringstream stream(path);
  std::string part;
  for (const Descriptor* message = root; message && std::getline(stream, part, '.');) {
    const FieldDescriptor* field = message->FindFieldByName(part);
    if (!field) break;
    int index = -1;
    if (field->is_repeated()) {
      index = std::getline(stream, part, '.') ? std::atoi(part.c_str()) : 0;
    }
    steps.push_back({field, index});
    message = field->message_type();
  }
  return steps;
}

}  // namespace

Location TextLocations::Find(const Message& root, const std::string& path) const {
  Location found{file_, 0, 0};
  const TextFormat::ParseInfoTree* tree = tree_.get();
  for (const Step& step : Steps(root.GetDescriptor(), path)) {
    if (!tree) break;
    const TextFormat::ParseLocation place = tree->GetLocation(step.field, step.index);
    if (place.line < 0) break;
    found = {file_, place.line + 1, place.column + 1};
    tree = step.field->message_type() ? tree->GetTreeForNested(step.field, step.index) : nullptr;
  }
  return found;
}

}  // namespace poseidon

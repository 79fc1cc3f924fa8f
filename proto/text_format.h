// Reads and writes Protobuf text format: job configs and Caffe's prototxt.
//
// Whatever is wrong with a file ends in a ConfigError that names file, line and column and says
// what was meant: an unknown field lists the nearest known one, a bad value the values allowed.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <memory>
#include <string>

#include "core/error.h"

namespace poseidon {

// Remembers where each field of a parsed file stood, for errors found later ("batch_size must be
// positive"). Copyable; no thread affinity.
class TextLocations {
 public:
  TextLocations() = default;
  TextLocations(std::string file,
                std::shared_ptr<const google::protobuf::TextFormat::ParseInfoTree> tree)
      : file_(std::move(file)), tree_(std::move(tree)) {}

  // Where the field at `path` stands, or the enclosing field that the file does contain, or just
  // the file. `path` is dotted, repeated fields indexed: "cluster.workers", "layer.3.top.0".
  Location Find(const google::protobuf::Message& root, const std::string& path) const;

 private:
  std::string file_;
  std::shared_ptr<const google::protobuf::TextFormat::ParseInfoTree> tree_;
};

// Parses `content` into `message` (cleared first). `file` is what errors call it. A byte order mark
// at its begin is skipped. Throws ConfigError, also for values that no
// field has a meaning for (proto/text_values.h).
TextLocations ParseText(const std::string& content, const std::string& file,
                        google::protobuf::Message& message);

// Reads a regular file of at most kMostTextBytes (core/files/regular_file.h); throws ConfigError if
// it can't be read (saying why) or parsed.
TextLocations ReadTextFile(const std::string& path, google::protobuf::Message& message);

}  // namespace poseidon

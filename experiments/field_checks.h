// FieldChecks: what several kinds of fields of an experiment file have in common. Every check
// throws ConfigError with the place of the field in the file.
//
// `field` is a path as TextLocations takes it: "net.0.batch".
//
// Immutable, so thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "experiments/experiment_file.h"

namespace poseidon {

class FieldChecks {
 public:
  // `file` outlives this.
  explicit FieldChecks(const ExperimentFile& file) : file_(file) {}

  [[noreturn]] void Fail(const std::string& field, const std::string& what) const;
  // The name can be a part of files' names.
  void CheckName(const std::string& field, const std::string& name) const;
  void CheckAtLeast(const std::string& field, double value, double least) const;
  void CheckAtMost(const std::string& field, int64_t value, double most) const;
  // `known` has the name of a `what`.
  void CheckKnown(const std::string& field, const std::string& what, const std::string& name,
                  const std::vector<std::string>& known) const;
  // Likewise all of a repeated field.
  template <typename List>
  void CheckAllKnown(const std::string& field, const std::string& what, const List& names,
                     const std::vector<std::string>& known) const {
    ForEach(field, names, [&](const std::string& at, const std::string& name) {
      CheckKnown(at, what, name, known);
    });
  }
  // What check(name, value) refuses, one of proto/cluster_rates.h, is said with its place.
  template <typename Check, typename Value>
  void CheckRate(Check check, const std::string& field, const Value& value) const {
    try {
      check(NameOf(field), value);
    } catch (const ConfigError& error) {
      Fail(field, error.what());
    }
  }

  // Calls check(field of the entry, entry) for the entries of a repeated field.
  template <typename List, typename Check>
  static void ForEach(const std::string& field, const List& list, Check check) {
    for (int i = 0; i < list.size(); ++i) check(field + "." + std::to_string(i), list.Get(i));
  }

 private:
  // The last name of the path; an entry of a list goes by the list's.
  static std::string NameOf(const std::string& field);

  const ExperimentFile& file_;
};

}  // namespace poseidon

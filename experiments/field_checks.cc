#include "experiments/field_checks.h"

#include <algorithm>
#include <cctype>

#include "core/text/listed.h"
#include "core/text/nearest.h"

namespace poseidon {

void FieldChecks::Fail(const std::string& field, const std::string& what) const {
  throw ConfigError(file_.Where(field), what);
}

std::string FieldChecks::NameOf(const std::string& field) {
  std::string name = field;
  while (std::isdigit(static_cast<unsigned char>(name.back())) || name.back() == '.') {
    name.pop_back();
  }
  return name.substr(name.rfind('.') + 1);
}

void FieldChecks::CheckName(const std::string& field, const std::string& name) const {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  if (!name.empty() && name.find_first_not_of(kLetters) == std::string::npos) return;
  if (name.empty()) Fail(field, "there is no name; write one of letters, digits, '_' and '-'");
  Fail(field, "the name \"" + name + "\" must be of letters, digits, '_' and '-'");
}

void FieldChecks::CheckAtLeast(const std::string& field, double value, double least) const {
  if (value >= least) return;
  Fail(field, NameOf(field) + " must be at least " + std::to_string(static_cast<int64_t>(least)));
}

void FieldChecks::CheckAtMost(const std::string& field, int64_t value, double most) const {
  if (static_cast<double>(value) <= most) return;
  Fail(field, NameOf(field) + " is " + std::to_string(value) + "; it must be at most " +
                  std::to_string(static_cast<int64_t>(most)));
}

void FieldChecks::CheckKnown(const std::string& field, const std::string& what,
                             const std::string& name, const std::vector<std::string>& known) const {
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const auto nearest = Nearest(name, known);
  Fail(field, "there is no " + what + " \"" + name + "\"; " +
                  (nearest ? "did you mean \"" + *nearest + "\"?" : "there are " + Listed(known)));
}

}  // namespace poseidon

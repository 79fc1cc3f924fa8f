#include "core/http/metrics_writer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace poseidon {
namespace {

// As the format wants a label's value.
std::string Escaped(const std::string& value) {
  std::string escaped;
  for (const char character : value) {
    if (character == '\n') {
      escaped += "\\n";
      continue;
    }
    if (character == '\\' || character == '"') escaped += '\\';
    escaped += character;
  }
  return escaped;
}

std::string NumberOf(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

}  // namespace

void MetricsWriter::Family(const std::string& name, const std::string& type,
                           const std::string& help) {
  name_ = name;
  head_ = "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void MetricsWriter::Sample(double value, const Labels& labels) {
  if (std::isnan(value)) return;
  text_ += std::exchange(head_, "") + name_;
  for (size_t i = 0; i < labels.size(); ++i) {
    text_ += (i == 0 ? "{" : ",") + labels[i].first + "=\"" + Escaped(labels[i].second) + "\"";
  }
  text_ += (labels.empty() ? " " : "} ") + NumberOf(value) + "\n";
}

std::string MetricsWriter::Take() { return std::exchange(text_, ""); }

}  // namespace poseidon

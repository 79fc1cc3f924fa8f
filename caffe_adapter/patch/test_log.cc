#include "caffe_adapter/patch/test_log.h"

#include <cstdlib>
#include <regex>
#include <utility>

namespace poseidon {

void CaffeTestLog::Read(const std::string& message) {
  // Most messages are no tests; regular expressions are slow.
  if (message.find("Test") == std::string::npos) return;
  static const std::regex begin(R"(Iteration (\d+), Testing net \(#(\d+)\))");
  static const std::regex output(
      R"( *Test net output #\d+: (.*) = (\S+)(?: \(\* \S+ = (\S+) loss\))?)");
  std::smatch match;
  if (std::regex_match(message, match, begin)) {
    net_ = std::atoi(match[2].str().c_str());
    if (net_ == 0) {
      result_ = {};
      result_.set_iteration(std::atoll(match[1].str().c_str()));
    }
    return;
  }
  if (net_ != 0 || !std::regex_match(message, match, output)) return;
  if (match[3].matched) {
    result_.set_test_loss(result_.test_loss() + std::strtof(match[3].str().c_str(), nullptr));
  } else if (match[1] == accuracy_blob_ && !result_.has_test_accuracy()) {
    result_.set_test_accuracy(std::strtof(match[2].str().c_str(), nullptr));
  }
}

std::optional<wire::Progress> CaffeTestLog::Take() {
  wire::Progress result = std::exchange(result_, {});
  if (!result.has_test_accuracy() && !result.has_test_loss()) return std::nullopt;
  return result;
}

}  // namespace poseidon

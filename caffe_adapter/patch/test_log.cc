#include "caffe_adapter/patch/test_log.h"

#include <charconv>
#include <cstdlib>
#include <regex>
#include <utility>

namespace poseidon {
namespace {

// As glog writes it, with a point. The process is the user's, and std::strtof would go by its
// locale, which may have a comma there. By way of a double, whose range has every loss.
float NumberOf(const std::string& text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return static_cast<float>(number);
}

}  // namespace

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
    result_.set_test_loss(result_.test_loss() + NumberOf(match[3].str()));
  } else if (match[1] == accuracy_blob_ && !result_.has_test_accuracy()) {
    result_.set_test_accuracy(NumberOf(match[2].str()));
  }
}

std::optional<wire::Progress> CaffeTestLog::Take() {
  wire::Progress result = std::exchange(result_, {});
  if (!result.has_test_accuracy() && !result.has_test_loss()) return std::nullopt;
  return result;
}

}  // namespace poseidon

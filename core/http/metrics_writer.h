// MetricsWriter: metrics for Prometheus, in its text format 0.0.4, one family of samples after the
// other.
//
//   MetricsWriter out;
//   out.Family("poseidon_job_phase", "gauge", "1 for the phase that the job is in.");
//   out.Sample(1, {{"phase", "training"}});
//   response = out.Take();
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace poseidon {

class MetricsWriter {
 public:
  // What an answer with metrics says that it is.
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // `type`: "gauge" or "counter", whose name ends with _total. A family without samples is left
  // out.
  void Family(const std::string& name, const std::string& type, const std::string& help);
  // Of the family that was begun last; nothing if `value` is no number. Labels' values are UTF-8.
  void Sample(double value, const Labels& labels = {});
  // What has been written; nothing is left.
  std::string Take();

 private:
  std::string text_;
  std::string name_;
  std::string head_;  // of a family without a sample yet
};

}  // namespace poseidon

#include "scheduler/agreement/config_difference.h"

#include <google/protobuf/util/message_differencer.h>

#include <sstream>
#include <vector>

namespace poseidon {
namespace {

using google::protobuf::util::MessageDifferencer;

// A value is shown up to here: a replay can have a thousand layers.
constexpr size_t kMostOfAValue = 80;

std::string Short(const std::string& value) {
  return value.size() <= kMostOfAValue ? value : value.substr(0, kMostOfAValue) + "...";
}

// A line of the differencer's report: 'modified: PATH: A -> B', 'added: PATH: B', 'deleted: PATH:
// A'. Values are in text format, so they have no line breaks.
std::string Describe(const std::string& line) {
  const size_t kind_end = line.find(": ");
  const size_t path_end = line.find(": ", kind_end + 1);
  if (path_end == std::string::npos) return line;
  const std::string kind = line.substr(0, kind_end);
  std::string path = line.substr(kind_end + 2, path_end - kind_end - 2);
  const std::string values = line.substr(path_end + 2);
  if (kind == "added") return path + " is " + Short(values) + ", the scheduler's is not set";
  if (kind == "deleted") return path + " is not set, the scheduler's is " + Short(values);
  const size_t arrow = values.find(" -> ");
  if (arrow == std::string::npos) return path;
  return path + " is " + Short(values.substr(arrow + 4)) + ", the scheduler's is " +
         Short(values.substr(0, arrow));
}

// 'name: "lenet"', whatever bytes are in it.
std::string NameOf(const Job& job) {
  Job named;
  named.set_name(job.name());
  return named.ShortDebugString();
}

}  // namespace

std::string DescribeFields(const Job& scheduler, const Job* node) {
  if (node == nullptr) return "";
  std::string report;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(scheduler, *node)) return "";
  std::istringstream lines(report);
  std::vector<std::string> differences;
  for (std::string line; std::getline(lines, line);) differences.push_back(line);
  if (differences.empty()) return "";
  if (differences.size() < 2) return Describe(differences.at(0));
  const size_t more = differences.size() - 1;
  return Describe(differences[0]) + "; and " + std::to_string(more) + " more field" +
         (more == 1 ? "" : "s");
}

std::string DescribeDifference(const Job& scheduler, const Job* node) {
  if (node != nullptr && scheduler.run() != node->run()) {
    if (node->run() == 0 && node->name() == scheduler.name()) {
      return "the job was started by `poseidon run` or submitted to Slurm; start this process with "
             "the job.prototxt in that job's output directory or, if it is of another job, give "
             "that a "
             "cluster.scheduler_port of its own";
    }
    return "it was started for another run (" + NameOf(*node) + ") than the scheduler (" +
           NameOf(scheduler) +
           "), which has the same cluster.scheduler_port; give each job a port of its own, or "
           "none, "
           "so that `poseidon run` finds a free one";
  }
  const std::string fields = DescribeFields(scheduler, node);
  return "its job config differs from the scheduler's" + (fields.empty() ? "" : ": " + fields) +
         "; every node of a job must be started from the same file";
}

}  // namespace poseidon

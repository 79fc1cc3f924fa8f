#include "transport/membership/event_writer.h"

#include <glog/logging.h>
#include <unistd.h>

#include <utility>

#include "core/atomic_file.h"
#include "core/files/directories.h"
#include "core/process/machine_clock.h"
#include "core/process/memory.h"
#include "transport/membership/member.h"

namespace poseidon {

EventWriter::EventWriter(const ZmqRuntime& runtime, std::string host, std::string directory,
                         std::function<void(const Error&)> told)
    : runtime_(runtime),
      host_(std::move(host)),
      directory_(std::move(directory)),
      told_(std::move(told)),
      wall_clock_(WallClockOffset()),
      kills_before_(OutOfMemoryKills()) {}

void EventWriter::SetNames(std::vector<std::string> layers, std::vector<std::string> buckets) {
  const std::lock_guard lock(mutex_);
  layers_ = std::move(layers);
  buckets_ = std::move(buckets);
}

void EventWriter::Observe(const Envelope& envelope) {
  if (const auto failure = FailureIn(envelope)) Write(failure->exit_code(), failure->what());
}

void EventWriter::Write(ExitCode code, const std::string& reason) {
  if (told_ && code != ExitCode::kSuccess) told_(Error(code, reason));
  const std::lock_guard lock(mutex_);
  if (directory_.empty() || std::exchange(written_, true)) return;
  EventFile file = runtime_.Events();
  if (file.node.rank < 0) return;  // a node that has not joined is nobody yet
  file.process = getpid();
  file.host = host_;
  file.clock = MachineClock();
  file.wall_clock = wall_clock_;
  file.exit_code = static_cast<int>(code);
  file.reason = reason;
  file.layers = layers_;
  file.buckets = buckets_;
  file.available_memory = AvailableMemory();
  file.resident_memory = ResidentMemory();
  file.out_of_memory_kills = OutOfMemoryKills() - kills_before_;
  try {
    MakeDirectories(directory_);
    // The job's end is not to wait for a disk that is busy.
    WriteFileQuickly(directory_ + "/" + EventFileName(file.node), EventFileText(file));
  } catch (const Error& error) {
    LOG(WARNING) << error.what();
  }
}

void EventWriter::WriteTrace(const Trace& trace, const std::string& node) const {
  if (directory_.empty()) return;
  try {
    MakeDirectories(directory_);
    trace.Write(directory_ + "/" + node + ".trace.json");
  } catch (const Error& error) {
    LOG(WARNING) << "there is no trace of " << node << ": " << error.what();
  }
}

std::vector<std::string> LayerNames(const ModelSpec& model) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : model.layers()) names.push_back(layer.name());
  return names;
}

std::vector<std::string> BucketNames(const Plan& plan) {
  std::vector<std::string> names;
  for (const BucketPlan& bucket : plan.buckets()) names.push_back(bucket.name());
  return names;
}

}  // namespace poseidon

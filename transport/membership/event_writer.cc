#include "transport/membership/event_writer.h"

#include <glog/logging.h>
#include <unistd.h>

#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "core/atomic_file.h"
#include "core/files/directories.h"
#include "core/process/blocked_signals.h"
#include "core/process/machine_clock.h"
#include "core/process/memory.h"
#include "core/steady_now.h"
#include "core/units.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// A disk that others use, too, takes some seconds at most; the process has to end within
// EndDeadline::kPatience.
constexpr Duration kDiskPatience = Seconds(5);

void WriteEventFile(const std::string& directory, const EventFile& file) {
  try {
    MakeDirectories(directory);
    // The job's end is not to wait for a disk that is busy.
    WriteFileQuickly(directory + "/" + EventFileName(file.node), EventFileText(file));
  } catch (const std::exception& error) {
    LOG(WARNING) << error.what();
  }
}

// In a thread that nobody has to join; where there is none, at once.
std::shared_future<void> RunDetached(std::function<void()> action) {
  // The thread may outlive the caller.
  const auto task = std::make_shared<std::packaged_task<void()>>(std::move(action));
  std::shared_future<void> done = task->get_future().share();
  const BlockedSignals blocked(kEndingSignals);
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {
    (*task)();
  }
  return done;
}

}  // namespace

EventWriter::EventWriter(const ZmqRuntime& runtime, std::string host, std::string directory,
                         std::function<void(const Error&)> told)
    : runtime_(runtime),
      host_(std::move(host)),
      directory_(std::move(directory)),
      told_(std::move(told)),
      wall_clock_(WallClockOffset()),
      kills_before_(OutOfMemoryKills()) {}

EventWriter::~EventWriter() { AwaitWritten(); }

void EventWriter::SetNames(std::vector<std::string> layers, std::vector<std::string> buckets) {
  const std::lock_guard lock(mutex_);
  layers_ = std::move(layers);
  buckets_ = std::move(buckets);
}

void EventWriter::Observe(const Envelope& envelope) {
  if (const auto failure = FailureIn(envelope)) Begin(failure->exit_code(), failure->what());
}

void EventWriter::Write(ExitCode code, const std::string& reason) {
  Begin(code, reason);
  AwaitWritten();
}

void EventWriter::Begin(ExitCode code, const std::string& reason) {
  if (told_ && code != ExitCode::kSuccess) told_(Error(code, reason));
  const std::lock_guard lock(mutex_);
  if (directory_.empty() || std::exchange(begun_, true)) return;
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
  patience_ends_ = SteadyNow() + kDiskPatience;
  written_ = RunDetached(
      [directory = directory_, file = std::move(file)] { WriteEventFile(directory, file); });
}

void EventWriter::AwaitWritten() {
  std::shared_future<void> written;
  Time patience_ends;
  {
    const std::lock_guard lock(mutex_);
    written = written_;
    patience_ends = patience_ends_;
  }
  if (!written.valid()) return;
  if (written.wait_for(patience_ends - SteadyNow()) == std::future_status::ready) return;
  const std::lock_guard lock(mutex_);
  if (!written_.valid()) return;
  written_ = {};  // is said once
  LOG(WARNING) << "this node's last events are not in " << directory_
               << ", as its disk has not answered for " << FormatDuration(kDiskPatience)
               << ": `poseidon explain` has to do without them";
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

// EventWriter: writes what a node has kept of its last events (transport/events/) into the job's
// output directory, when the job ends badly, or wants a trace.
//
//   const auto writer = std::make_shared<EventWriter>(runtime, host, directory, told);
//   runtime.Observe([writer](const Envelope& envelope) { writer->Observe(envelope); });
//   ...
//   writer->Write(ExitCode::kFailure, error.what());
//
// The disk may not answer, as a file server's, and the news of the end is not to wait for it: the
// file is written by a thread of its own, which is waited for a few seconds.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "core/trace.h"
#include "proto/model.pb.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

// Thread-safe.
class EventWriter {
 public:
  // `host`: at which others reach this node. Writes to `directory`, which is made if it is not
  // there; nothing if that is empty. `runtime` outlives this. `told` is told of each failure before
  // that is written down; may be empty.
  EventWriter(const ZmqRuntime& runtime, std::string host, std::string directory,
              std::function<void(const Error&)> told = {});
  // Waits for what is being written.
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // Names for the numbers of layers and buckets.
  void SetNames(std::vector<std::string> layers, std::vector<std::string> buckets);

  // For ZmqRuntime::Observe: begins to write at once when the job is told to end badly, or one of
  // the node's actors has failed, for the program itself may hang. Does not wait.
  void Observe(const Envelope& envelope);

  // Writes NAME.events.json, unless this has been done or begun, and waits for that, until it has
  // been at work for 5 s. A file that can't be written is logged: why the job ends says more.
  void Write(ExitCode code, const std::string& reason);
  // Writes NODE.trace.json ("worker-0"), and logs likewise: a training that is done ends well
  // without its trace, too.
  void WriteTrace(const Trace& trace, const std::string& node) const;

 private:
  // Has a thread write what is known by now, unless this has been done.
  void Begin(ExitCode code, const std::string& reason);
  void AwaitWritten();

  const ZmqRuntime& runtime_;
  const std::string host_;
  const std::string directory_;
  const std::function<void(const Error&)> told_;
  const Duration wall_clock_;
  const int64_t kills_before_;
  std::mutex mutex_;
  std::vector<std::string> layers_;
  std::vector<std::string> buckets_;
  bool begun_ = false;
  std::shared_future<void> written_;  // valid if there is anything to write
  Time patience_ends_{};
};

// Of a model and a plan, in their order.
std::vector<std::string> LayerNames(const ModelSpec& model);
std::vector<std::string> BucketNames(const Plan& plan);

}  // namespace poseidon

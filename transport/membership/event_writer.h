// EventWriter: writes what a node has kept of its last events (transport/events/) into the job's
// output directory, when the job ends badly, or wants a trace.
//
//   const auto writer = std::make_shared<EventWriter>(runtime, host, directory, told);
//   runtime.Observe([writer](const Envelope& envelope) { writer->Observe(envelope); });
//   ...
//   writer->Write(ExitCode::kFailure, error.what());
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/trace.h"
#include "proto/model.pb.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

// Thread-safe.
class EventWriter {
 public:
  // `host`: at which others reach this node. Writes to `directory`, which is made if it is not
  // there; nothing if that is empty. `runtime` outlives this. `told` is told of each failure before
  // that is written down, for the directory's disk may not answer; may be empty.
  EventWriter(const ZmqRuntime& runtime, std::string host, std::string directory,
              std::function<void(const Error&)> told = {});

  // Names for the numbers of layers and buckets.
  void SetNames(std::vector<std::string> layers, std::vector<std::string> buckets);

  // For ZmqRuntime::Observe: writes at once when the job is told to end badly, or one of the node's
  // actors has failed, for the program itself may hang.
  void Observe(const Envelope& envelope);

  // Writes NAME.events.json, unless this has been done. A file that can't be written is logged:
  // why the job ends says more.
  void Write(ExitCode code, const std::string& reason);
  // Writes NODE.trace.json ("worker-0"), and logs likewise: a training that is done ends well
  // without its trace, too.
  void WriteTrace(const Trace& trace, const std::string& node) const;

 private:
  const ZmqRuntime& runtime_;
  const std::string host_;
  const std::string directory_;
  const std::function<void(const Error&)> told_;
  const Duration wall_clock_;
  const int64_t kills_before_;
  std::mutex mutex_;
  std::vector<std::string> layers_;
  std::vector<std::string> buckets_;
  bool written_ = false;
};

// Of a model and a plan, in their order.
std::vector<std::string> LayerNames(const ModelSpec& model);
std::vector<std::string> BucketNames(const Plan& plan);

}  // namespace poseidon

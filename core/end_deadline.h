// EndDeadline: ends a process that has been told to end and does not, because what its main thread
// does hangs: an engine's layer, a lock, a disk that does not answer.
//
//   EndDeadline deadline("poseidon_worker");
//   ... in whatever thread hears that the job has failed: deadline.Start(error);
//   ... main ends by itself, or is ended after half a minute
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/time.h"

namespace poseidon {

// Thread-safe.
class EndDeadline {
 public:
  // Half a minute: what a daemon needs on a machine whose cores others want, too, is some seconds,
  // and whoever waits for it to end, as to start another, should not wait for long.
  static constexpr Duration kPatience = Seconds(30);

  // `program`: the name with which its last line begins.
  explicit EndDeadline(std::string program, Duration patience = kPatience);
  // The process has come to its end by itself.
  ~EndDeadline();
  EndDeadline(const EndDeadline&) = delete;
  EndDeadline& operator=(const EndDeadline&) = delete;

  // From now on the process has `patience`; then it ends as by EndAtOnce (core/program.h), with the
  // code of `why` and a line that says that it has not ended by itself. The first call counts.
  // Throws nothing: where no thread can be started that is logged, and the next call counts.
  void Start(const Error& why);

 private:
  void Run();

  const std::string program_;
  const Duration patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> why_;
  bool ends_ = false;  // by itself
  std::thread thread_;
};

}  // namespace poseidon

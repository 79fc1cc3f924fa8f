#include "device/host_device.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/alignment.h"
#include "core/error.h"
#include "core/process/blocked_signals.h"
#include "core/steady_now.h"

namespace poseidon {
namespace {

// An event as it was recorded once: a moment in one stream. The next recording, in another stream
// perhaps, which may come there earlier, is another moment.
class Moment {
 public:
  void Reach(bool by_failing) {
    {
      const std::lock_guard lock(mutex_);
      reached_ = SteadyNow();
      failed_ = by_failing;
    }
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_.has_value(); });
    if (failed_) throw std::runtime_error("it waited for a device that has failed");
  }
  // When it was reached, if it has been, and not by failing.
  std::optional<Time> reached() const {
    const std::lock_guard lock(mutex_);
    return failed_ ? std::nullopt : reached_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Time> reached_;
  bool failed_ = false;  // its device has
};

class HostEvent : public DeviceEvent {
 public:
  std::shared_ptr<Moment> Next() {
    const std::lock_guard lock(mutex_);
    latest_ = std::make_shared<Moment>();
    return latest_;
  }
  // Null if it never was recorded.
  std::shared_ptr<Moment> Latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Moment> latest_;
};

// The system makes a page when it is first written, so that what a pool keeps for later costs
// nothing; with memset it took a quarter of the time of tests that declare many small models.
DeviceMemory AllocateZeros(size_t bytes) {
  size_t space = bytes + kVectorAlignment;
  void* const block = std::calloc(space, 1);
  if (block == nullptr) {
    throw Error(ExitCode::kFailure,
                "the host has no " + std::to_string(bytes >> 20U) + " MiB of memory left");
  }
  void* aligned = block;
  std::align(kVectorAlignment, bytes, aligned, space);
  return {static_cast<std::byte*>(aligned), [block](std::byte*) { std::free(block); }};
}

}  // namespace

// A thread that does tasks in order.
class HostDevice::Stream {
 public:
  struct Task {
    std::function<void()> run;
    // Instead of it, once the device has failed; may be empty.
    std::function<void()> skip;
  };

  Stream(HostDevice& device, CopyDirection direction)
      : direction_(direction), device_(device), thread_([this] { Loop(); }) {}
  ~Stream() {
    Put({});
    thread_.join();
  }

  CopyDirection direction() const { return direction_; }

  void Put(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  // Ends with a task that does nothing.
  void Loop() {
    while (true) {
      Task task = Take();
      if (task.run == nullptr) return;
      if (!Do(task) && task.skip != nullptr) task.skip();
    }
  }

  // Whether it is done, which it is not if the device has failed.
  bool Do(const Task& task) {
    if (!device_.Begin()) return false;
    bool done = false;
    try {
      task.run();
      done = true;
    } catch (const std::exception& error) {
      device_.Fail(error.what());
    }
    device_.End();
    return done;
  }

  Task Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !tasks_.empty(); });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  CopyDirection direction_;
  HostDevice& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::thread thread_;
};

HostDevice::HostDevice(Options options)
    : options_(std::move(options)),
      to_host_(AddStream(CopyDirection::kToHost)),
      to_device_(AddStream(CopyDirection::kToDevice)),
      packing_(AddStream(CopyDirection::kToHost)),
      updates_(AddStream(CopyDirection::kToDevice)),
      batches_(AddStream(CopyDirection::kToDevice)) {}

HostDevice::~HostDevice() {
  // Streams wait for each other, and so must all be there until the last has come to its end.
  for (const auto& stream : streams_) Synchronize(stream.get());
}

DeviceStream HostDevice::MakeStream() { return AddStream(CopyDirection::kToDevice); }

DeviceStream HostDevice::AddStream(CopyDirection direction) {
  // An engine may compute in it, and its products of matrices ask for this
  // (worker/torch/torch_engine.cc).
  const BlockedSignals blocked(kEndingSignals);
  auto stream = std::make_unique<Stream>(*this, direction);
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::move(stream));
  return streams_.back().get();
}

void HostDevice::Run(DeviceStream stream, std::function<void()> work) {
  static_cast<Stream*>(stream)->Put({std::move(work), {}});
}

void HostDevice::Synchronize(DeviceStream stream) {
  const auto end = std::make_shared<Moment>();
  const auto reach = [end] { end->Reach(false); };
  static_cast<Stream*>(stream)->Put({reach, reach});
  end->Await();
}

DeviceStream HostDevice::copy_stream(CopyDirection direction) const {
  return direction == CopyDirection::kToHost ? to_host_ : to_device_;
}

std::unique_ptr<DeviceEvent> HostDevice::MakeEvent() { return std::make_unique<HostEvent>(); }

void HostDevice::Record(DeviceEvent& event, DeviceStream stream) {
  const std::shared_ptr<Moment> moment = static_cast<HostEvent&>(event).Next();
  static_cast<Stream*>(stream)->Put(
      {[moment] { moment->Reach(false); }, [moment] { moment->Reach(true); }});
}

void HostDevice::Wait(DeviceStream stream, const DeviceEvent& event) {
  const std::shared_ptr<Moment> moment = static_cast<const HostEvent&>(event).Latest();
  if (moment == nullptr) return;
  static_cast<Stream*>(stream)->Put({[moment] { moment->Await(); }, {}});
}

void HostDevice::Await(const DeviceEvent& event) {
  const std::shared_ptr<Moment> moment = static_cast<const HostEvent&>(event).Latest();
  if (moment == nullptr) return;
  try {
    moment->Await();
  } catch (const std::exception& error) {
    // Not by Check, which would wait for the stream that this is called in.
    const std::lock_guard lock(mutex_);
    throw Error(ExitCode::kFailure,
                options_.name + " has failed: " + (failure_.empty() ? error.what() : failure_));
  }
}

bool HostDevice::HasCome(const DeviceEvent& event) {
  const std::shared_ptr<Moment> moment = static_cast<const HostEvent&>(event).Latest();
  return moment != nullptr && moment->reached();
}

std::optional<Duration> HostDevice::Elapsed(const DeviceEvent& begin, const DeviceEvent& end) {
  const auto first = static_cast<const HostEvent&>(begin).Latest()->reached();
  const auto last = static_cast<const HostEvent&>(end).Latest()->reached();
  if (!first || !last) return std::nullopt;
  return *last - *first;
}

void HostDevice::Copy(DeviceStream stream, void* to, const void* from, size_t bytes) {
  const CopyDirection direction = static_cast<Stream*>(stream)->direction();
  Run(stream, [=, this] {
    if (options_.before_copy != nullptr) options_.before_copy(direction, bytes);
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}

void HostDevice::Notify(DeviceStream stream, std::function<void()> function) {
  Run(stream, std::move(function));
}

DeviceMemory HostDevice::AllocatePinned(size_t bytes) { return AllocateZeros(bytes); }
DeviceMemory HostDevice::Allocate(size_t bytes) {
  if (options_.before_allocate != nullptr) options_.before_allocate(bytes);
  DeviceMemory memory = AllocateZeros(bytes);
  if (options_.after_free == nullptr) return memory;
  return {memory.get(), [memory, bytes, after_free = options_.after_free](std::byte*) mutable {
            memory.reset();
            after_free(bytes);
          }};
}

void HostDevice::Check() const {
  std::unique_lock lock(mutex_);
  if (failure_.empty()) return;
  all_ended_.wait(lock, [&] { return under_way_ == 0; });
  throw Error(ExitCode::kFailure, options_.name + " has failed: " + failure_);
}

bool HostDevice::Begin() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return false;
  ++under_way_;
  return true;
}

void HostDevice::End() {
  const std::lock_guard lock(mutex_);
  if (--under_way_ == 0) all_ended_.notify_all();
}

void HostDevice::Fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = reason;
}

}  // namespace poseidon

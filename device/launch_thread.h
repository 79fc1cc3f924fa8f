// LaunchThread: puts an engine's work in its device's stream, where a worker has several devices:
// so all of them are fed at the same time, and the engine's work is always done by the same thread.
//
//   launches.Run([&] { engine.Backward(step, target); });   // returns at once
//   launches.Await();                                       // it is in the stream
//   device.Record(event, stream);
//
// Thread safety: Run and Await are one thread's.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace poseidon {

class LaunchThread {
 public:
  LaunchThread();
  // When all work is done.
  ~LaunchThread();
  LaunchThread(const LaunchThread&) = delete;
  LaunchThread& operator=(const LaunchThread&) = delete;

  // Does `work` after what was asked for before, unless some of that has thrown.
  void Run(std::function<void()> work);
  // Returns when all work is done. Throws what the first that failed has thrown, now and later.
  void Await();

 private:
  void Loop();

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool ends_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;
};

}  // namespace poseidon

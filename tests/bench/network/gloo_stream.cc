// One rank of a data-parallel training with Gloo: sleeps the times of a net's layers as Poseidon's
// replay engine does, and all-reduces gradients of their sizes as PyTorch's DistributedDataParallel
// would. A thread does the all-reduces, one after the other, of every bucket as soon as the
// backward passes of its layers are done; the next forward pass starts when all are done. Without
// an update of the parameters: in this Gloo is given the edge.
//
//   --layers=floats:forward_ms:backward_ms,...  in forward order
//   --bucket_bytes=N                            consecutive layers from the last on until so many
//                                               bytes; 0: every layer by itself
#include <gflags/gflags.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/bench/network/all_reduce_cells.h"
#include "tests/bench/network/gloo_all_reduce.h"

DECLARE_string(out);
DEFINE_int32(rank, 0, "this rank");
DEFINE_int32(ranks, 1, "all ranks");
DEFINE_string(host, "", "this rank's address");
DEFINE_string(store, "", "empty directory where ranks meet");
DEFINE_string(algorithm, "new_ring", "Gloo's algorithm");
DEFINE_string(layers, "", "floats:forward_ms:backward_ms of each, with commas");
DEFINE_int64(bucket_bytes, 0, "bytes of a bucket");
DEFINE_int32(iterations, 10, "iterations");

namespace poseidon::network {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Layer {
  int64_t floats = 0;
  Milliseconds forward{};
  Milliseconds backward{};
  int bucket = 0;
};

std::vector<Layer> Layers() {
  std::vector<Layer> layers;
  std::istringstream stream(FLAGS_layers);
  for (std::string text; std::getline(stream, text, ',');) {
    std::istringstream fields(text);
    char colon = 0;
    double forward = 0;
    double backward = 0;
    Layer& layer = layers.emplace_back();
    fields >> layer.floats >> colon >> forward >> colon >> backward;
    if (!fields) throw std::runtime_error("--layers: can't read '" + text + "'");
    layer.forward = Milliseconds(forward);
    layer.backward = Milliseconds(backward);
  }
  return layers;
}

// Gives each layer its bucket, from the last layer on; returns the buckets' floats.
std::vector<int64_t> Bucketize(std::vector<Layer>& layers) {
  const auto full = [](int64_t floats) {
    return floats * static_cast<int64_t>(sizeof(float)) >= FLAGS_bucket_bytes;
  };
  std::vector<int64_t> buckets;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (buckets.empty() || full(buckets.back())) buckets.push_back(0);
    buckets.back() += layer->floats;
    layer->bucket = static_cast<int>(buckets.size()) - 1;
  }
  return buckets;
}

// All-reduces buckets on a thread of its own.
class Reducer {
 public:
  Reducer(GlooRanks& gloo, const std::vector<int64_t>& buckets) {
    for (const int64_t floats : buckets) {
      gradients_.emplace_back(floats);
      all_reduces_.push_back(gloo.Prepare(FLAGS_algorithm, gradients_.back()));
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~Reducer() {
    Start(kEnd);
    thread_.join();
  }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void Start(int bucket) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(bucket);
    changed_.notify_all();
  }

  // Until all that was started is done; throws what went wrong.
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return (queue_.empty() && !busy_) || error_; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  static constexpr int kEnd = -1;

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const int bucket = queue_.front();
      if (bucket == kEnd) return;
      busy_ = true;
      queue_.pop_front();
      lock.unlock();
      AllReduce(bucket);
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  void AllReduce(int bucket) {
    try {
      all_reduces_[bucket]();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }

  std::deque<std::vector<float>> gradients_;
  std::vector<std::function<void()>> all_reduces_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> queue_;  // guarded by mutex_, as are the next two
  bool busy_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

void Pass(Milliseconds milliseconds, Clock::time_point& now) {
  now += std::chrono::duration_cast<Clock::duration>(milliseconds);
  std::this_thread::sleep_until(now);
}

void Iterate(const std::vector<Layer>& layers, Reducer& reducer) {
  Clock::time_point now = Clock::now();
  for (const Layer& layer : layers) Pass(layer.forward, now);
  for (size_t i = layers.size(); i-- > 0;) {
    Pass(layers[i].backward, now);
    const bool last = i == 0 || layers[i - 1].bucket != layers[i].bucket;
    if (last) reducer.Start(layers[i].bucket);
  }
  reducer.Wait();
}

void Run() {
  std::vector<Layer> layers = Layers();
  GlooRanks gloo(FLAGS_rank, FLAGS_ranks, FLAGS_store, FLAGS_host);
  Reducer reducer(gloo, Bucketize(layers));
  std::vector<double> begins;
  for (int i = 0; i < FLAGS_iterations; ++i) {
    begins.push_back(Seconds());
    Iterate(layers, reducer);
  }
  begins.push_back(Seconds());
  std::ofstream(FLAGS_out) << nlohmann::json{{"begins", begins}} << std::endl;
}

}  // namespace
}  // namespace poseidon::network

int main(int argc, char** argv) {
  return poseidon::network::Main(argc, argv, poseidon::network::Run);
}

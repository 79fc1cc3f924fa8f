// BatchReader: the batches of a layer that reads samples, one ahead of the training.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "caffe_adapter/data/data_order.h"
#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/net/net.h"
#include "proto/wire.pb.h"
#include "worker/engine/batch_memory.h"
#include "worker/engine/data_feed.h"
#include "worker/engine/patient_read.h"

namespace poseidon {

// Which records a worker reads (caffe_adapter/data/data_order.h), and how they are cropped and
// mirrored.
struct BatchReaderOptions {
  int rank = 0;
  int workers = 1;
  bool shuffle = false;  // a layer may ask for it itself
  uint64_t seed = 1;
  DataFeed feed = nullptr;  // for layers that read no file
  // A batch that is waited for longer is told of in the log, and again after twice as long.
  Duration patience = kReadPatience;
};

struct Batch {
  int slot = 0;                        // of the reader's memory
  std::vector<std::span<float>> tops;  // one a top of the layer, of its shape, on the host
  std::vector<int64_t> records;        // one a sample: where it was read
};

// Reads and transforms the samples of a layer's batches. While the caller works on a batch, a
// thread of the reader's own makes the next, so memory is two batches; for an engine with a device
// it is pinned, and the thread waits until what the caller has sent from there has arrived. All
// calls from one thread.
class BatchReader {
 public:
  // `layer` is one that ReadsSamples. The engine's device, which may be null, outlives this. Throws
  // as MakeSampleSource, DataError for a rand_skip beyond the last record, and as BatchMemory.
  BatchReader(const LayerDescription& layer, const BatchReaderOptions& options,
              EngineDevice* device = nullptr);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // What the layer reads: for comparing with other workers (caffe_adapter/data/fingerprint.h).
  const wire::TrainingData& data() const { return data_; }
  const DataOrder& order() const { return order_; }
  int64_t batch() const { return batch_; }  // samples

  // The shape of each top.
  const std::vector<Shape>& shapes() const { return shapes_; }

  // The batch of `iteration`, valid until the next batch is read; then `next` is read ahead. Waits
  // for the reading only if `iteration` was not the `next` of the call before or is not done yet.
  // Throws the DataError of reading `iteration`.
  const Batch& Read(int64_t iteration, int64_t next);
  // The same in two steps, for who looks whether the batch has been read ahead and does not wait:
  // null if it has not, or if reading it has failed.
  const Batch* TakeIfRead(int64_t iteration);
  void ReadAhead(int64_t next);

  BatchMemory& memory() { return memory_; }

  // The next batch read is this share's, whatever had been read ahead.
  void SetShare(const DataShare& share);

  // "record 17 of PATH", of a sample of the batch last read or, until the next is read ahead, of
  // the one before.
  std::string DescribeSample(int64_t iteration, int64_t sample) const;

 private:
  void Run();
  void Fill(int64_t iteration, Batch& batch);
  // Returns when nothing is requested; as long as a file server that hangs takes, which says so in
  // the log.
  void AwaitIdle(std::unique_lock<std::mutex>& lock);
  // With the lock held, while nothing is requested:
  void Request(int64_t iteration);
  const Batch& Take(int64_t iteration);

  std::unique_ptr<SampleSource> source_;
  wire::TrainingData data_;
  std::vector<Shape> shapes_;
  int64_t batch_;
  DataOrder order_;
  int64_t rank_;  // or the place, if the number of workers may change
  uint64_t transform_seed_;
  Duration patience_;

  // The caller reads batches_[current_] while the thread may write the other.
  BatchMemory memory_;
  std::array<Batch, BatchMemory::kSlots> batches_;
  int current_ = 0;
  std::array<std::optional<int64_t>, BatchMemory::kSlots> taken_;  // iterations, by slot

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::optional<int64_t> requested_;  // until the thread is done with it
  std::optional<int64_t> done_;       // what the thread made last: a batch or an error
  std::exception_ptr error_;
  std::thread thread_;  // last, so that it starts when all else is there
};

// The reader whose records name the samples of all of a net's readers: the first, if all read
// records of the same numbers together; null if some go their own way, and of none. Throws
// ConfigError for two that would read the same samples, were it not for the job's `shuffle`, which
// is on or off.
const BatchReader* ReaderOfSamples(std::span<const BatchReader* const> readers, bool shuffle);

}  // namespace poseidon

#include "worker/engine/batch_reader.h"

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "worker/engine/patient_read.h"

namespace poseidon {

namespace {

std::vector<Shape> TopShapes(const LayerDescription& layer) {
  std::vector<Shape> shapes;
  for (const BlobDescription& top : layer.tops) shapes.push_back(top.shape);
  return shapes;
}

std::vector<size_t> FloatsOf(const std::vector<Shape>& shapes) {
  std::vector<size_t> floats;
  for (const Shape& shape : shapes) floats.push_back(static_cast<size_t>(Count(shape)));
  return floats;
}

// As many records as Caffe's rand_skip leaves out at the start, the same on all workers.
int64_t Skip(const LayerDescription& layer, int64_t records, uint64_t seed) {
  const uint32_t most = OrderOf(layer.parameter).rand_skip;
  if (most == 0) return 0;
  const auto skip = static_cast<int64_t>(Random(DeriveSeed(seed, "skip")).Below(most));
  if (skip >= records) {
    throw DataError("layer \"" + layer.name() + "\": rand_skip is " + std::to_string(most) +
                    "; expected at most " + std::to_string(records) + ", the number of records");
  }
  return skip;
}

DataOrder MakeOrder(const LayerDescription& layer, const SampleSource& source,
                    const BatchReaderOptions& options) {
  OrderedRecords records = source.records();
  const int64_t skip = Skip(layer, records.records, options.seed);
  return {std::move(records),     options.workers,
          layer.tops[0].shape[0], options.shuffle || OrderOf(layer.parameter).shuffle,
          options.seed,           skip};
}

// Also a job that is run again may come before its file server is there again.
void ReadBeforeTraining(const std::function<void()>& read) {
  ReadPatiently(read, [](Duration pause) {
    std::this_thread::sleep_for(pause);
    return true;
  });
}

wire::TrainingData DescribeData(const LayerDescription& layer, SampleSource& source) {
  wire::TrainingData data;
  data.set_layer(layer.name());
  data.set_records(source.records().records);
  ReadBeforeTraining([&] { data.set_fingerprint(source.Fingerprint()); });
  return data;
}

[[noreturn]] void ThrowShuffledApart(const wire::TrainingData& a, const wire::TrainingData& b) {
  throw ConfigError("layers \"" + a.layer() + "\" and \"" + b.layer() + "\" read " +
                    std::to_string(a.records()) +
                    " records each, but HDF5 files are shuffled one by one, and theirs are not cut "
                    "alike: what one layer reads would meet another sample's of the other. Cut the "
                    "files alike (for a database: one file), or write shuffle: false in the job's "
                    "training; a layer whose samples are its own affair may say shuffle: true "
                    "then");
}

std::unique_ptr<SampleSource> OpenSource(const LayerDescription& layer) {
  std::unique_ptr<SampleSource> source;
  ReadBeforeTraining([&] { source = MakeSampleSource(layer); });
  return source;
}

}  // namespace

BatchReader::BatchReader(const LayerDescription& layer, const BatchReaderOptions& options,
                         EngineDevice* device)
    : source_(OpenSource(layer)),
      data_(DescribeData(layer, *source_)),
      shapes_(TopShapes(layer)),
      batch_(shapes_[0][0]),
      order_(MakeOrder(layer, *source_, options)),
      rank_(options.rank),
      transform_seed_(DeriveSeed(options.seed, "transform")),
      patience_(options.patience),
      memory_(device, FloatsOf(shapes_)) {
  for (int slot = 0; slot < BatchMemory::kSlots; ++slot) {
    Batch& batch = batches_[slot];
    batch.slot = slot;
    for (size_t top = 0; top < shapes_.size(); ++top) {
      batch.tops.push_back(memory_.host(slot, top));
    }
    batch.records.resize(batch_);
  }
  thread_ = std::thread([this] { Run(); });
}

BatchReader::~BatchReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const Batch& BatchReader::Read(int64_t iteration, int64_t next) {
  std::unique_lock lock(mutex_);
  AwaitIdle(lock);
  if (done_ != iteration) {
    Request(iteration);
    AwaitIdle(lock);
  }
  if (error_) {
    done_.reset();
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  const Batch& batch = Take(iteration);
  Request(next);
  return batch;
}

const Batch* BatchReader::TakeIfRead(int64_t iteration) {
  const std::lock_guard lock(mutex_);
  if (requested_ || done_ != iteration || error_) return nullptr;
  return &Take(iteration);
}

void BatchReader::ReadAhead(int64_t next) {
  std::unique_lock lock(mutex_);
  AwaitIdle(lock);
  Request(next);
}

const Batch& BatchReader::Take(int64_t iteration) {
  done_.reset();
  current_ = 1 - current_;
  taken_[current_] = iteration;
  return batches_[current_];
}

void BatchReader::SetShare(const DataShare& share) {
  std::unique_lock lock(mutex_);
  AwaitIdle(lock);
  done_.reset();
  error_ = nullptr;
  order_.SetShare(share);
  rank_ = share.place;
}

void BatchReader::AwaitIdle(std::unique_lock<std::mutex>& lock) {
  const auto idle = [this] { return !requested_; };
  Duration waited{};
  // There is no deadline: a hard mount is to outlast its file server, and where only some workers
  // hang the others' stall deadline ends the job. What the batch is of is not asked, since that may
  // read, too.
  for (Duration pause = patience_; !changed_.wait_for(lock, pause, idle); pause = waited) {
    waited += pause;
    LOG(WARNING) << "layer \"" << data_.layer() << "\" has been reading a batch for "
                 << ToSeconds(waited)
                 << " s: the disk or file server of its data, or the device, is slow or hangs";
  }
}

void BatchReader::Request(int64_t iteration) {
  requested_ = iteration;
  taken_[1 - current_].reset();
  error_ = nullptr;
  changed_.notify_all();
}

void BatchReader::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || requested_; });
    if (stopping_) return;
    const int64_t iteration = *requested_;
    Batch& batch = batches_[1 - current_];
    lock.unlock();
    std::exception_ptr error;
    try {
      Fill(iteration, batch);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    done_ = iteration;
    requested_.reset();
    changed_.notify_all();
  }
}

void BatchReader::Fill(int64_t iteration, Batch& batch) {
  memory_.AwaitHost(batch.slot);
  std::vector<std::span<float>> sample(batch.tops.size());
  const auto wait = [this](Duration pause) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, pause, [this] { return stopping_; });
  };
  for (int64_t i = 0; i < batch_; ++i) {
    const int64_t position = order_.Position(iteration, rank_, i);
    const int64_t record = order_.Record(position);
    for (size_t top = 0; top < sample.size(); ++top) {
      const size_t values = batch.tops[top].size() / batch_;
      sample[top] = std::span(batch.tops[top]).subspan(i * values, values);
    }
    const uint64_t seed = DeriveSeed(transform_seed_, static_cast<uint64_t>(position));
    ReadPatiently([&] { source_->Read(record, seed, sample); }, wait);
    batch.records[i] = record;
  }
}

std::string BatchReader::DescribeSample(int64_t iteration, int64_t sample) const {
  const auto slot = std::ranges::find(taken_, iteration);
  CHECK(slot != taken_.end());
  return source_->Describe(batches_[slot - taken_.begin()].records.at(sample));
}

const BatchReader* ReaderOfSamples(std::span<const BatchReader* const> readers, bool shuffle) {
  bool together = !readers.empty();
  for (size_t i = 0; i < readers.size(); ++i) {
    for (const BatchReader* const other : readers.subspan(i + 1)) {
      if (readers[i]->order().ReadsTheSame(other->order())) continue;
      together = false;
      // Layers that shuffle by themselves do so independently in Caffe, too.
      if (shuffle && readers[i]->order().ReadsSideBySide(other->order())) {
        ThrowShuffledApart(readers[i]->data(), other->data());
      }
    }
  }
  return together ? readers[0] : nullptr;
}

}  // namespace poseidon

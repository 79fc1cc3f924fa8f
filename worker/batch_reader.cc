#include "worker/batch_reader.h"

#include <span>
#include <utility>

#include "core/random.h"

namespace poseidon {

BatchReader::BatchReader(const LayerDescription& layer, const BatchReaderOptions& options)
    : dataset_(layer.parameter.data_param().source()),
      transformer_(layer.parameter.transform_param(), layer.parameter.phase(),
                   dataset_.record_shape(), layer.where),
      shape_(layer.tops[0].shape),
      order_(dataset_.size(), options.workers, shape_[0], options.shuffle, options.seed),
      rank_(options.rank),
      transform_seed_(DeriveSeed(options.seed, "transform")) {
  for (Batch& batch : batches_) {
    batch.data.resize(Count(shape_));
    batch.labels.resize(shape_[0]);
    batch.records.resize(shape_[0]);
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
  const auto idle = [this] { return !requested_; };
  changed_.wait(lock, idle);
  if (done_ != iteration) {
    Request(iteration);
    changed_.wait(lock, idle);
  }
  done_.reset();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  current_ = 1 - current_;
  Request(next);
  return batches_[current_];
}

void BatchReader::Request(int64_t iteration) {
  requested_ = iteration;
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
  const size_t values = Count(transformer_.output_shape());
  const std::span<float> data(batch.data);
  for (int64_t i = 0; i < shape_[0]; ++i) {
    const int64_t position = order_.Position(iteration, rank_, i);
    const int64_t record = order_.Record(position);
    const caffe::Datum datum = dataset_.Read(record);
    transformer_.Apply(datum, DeriveSeed(transform_seed_, static_cast<uint64_t>(position)),
                       data.subspan(i * values, values));
    batch.labels[i] = static_cast<float>(datum.label());
    batch.records[i] = record;
  }
}

std::string BatchReader::DescribeSample(int64_t sample) const {
  return "record " + std::to_string(batches_[current_].records[sample]) + " of " + dataset_.path();
}

}  // namespace poseidon

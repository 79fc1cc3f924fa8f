#include "tests/bench/network/gloo_all_reduce.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

namespace poseidon::network {
namespace {

// Far beyond the slowest call, and within run.py's deadlines.
constexpr std::chrono::seconds kTimeout(30);

template <typename Algorithm>
std::function<void()> Old(const std::shared_ptr<gloo::Context>& context, std::span<float> floats) {
  auto algorithm =
      std::make_shared<Algorithm>(context, std::vector<float*>{floats.data()}, floats.size());
  return [algorithm] { algorithm->run(); };
}

std::function<void()> New(const std::shared_ptr<gloo::Context>& context, std::span<float> floats,
                          gloo::AllreduceOptions::Algorithm algorithm) {
  auto options = std::make_shared<gloo::AllreduceOptions>(context);
  void (*const sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
  options->setAlgorithm(algorithm);
  options->setOutput(floats.data(), floats.size());
  options->setReduceFunction(sum);
  return [options] { gloo::allreduce(*options); };
}

}  // namespace

GlooRanks::GlooRanks(int rank, int ranks, std::string store, const std::string& host)
    : rank_(rank),
      ranks_(ranks),
      store_(std::move(store)),
      device_(gloo::transport::tcp::CreateDevice(host.c_str())) {}

std::shared_ptr<gloo::Context> GlooRanks::ContextOf(const std::string& algorithm) {
  std::shared_ptr<gloo::rendezvous::Context>& context = contexts_[algorithm];
  if (!context) {
    gloo::rendezvous::FileStore files(store_);
    gloo::rendezvous::PrefixStore prefixed(algorithm, files);
    context = std::make_shared<gloo::rendezvous::Context>(rank_, ranks_);
    context->setTimeout(kTimeout);
    context->connectFullMesh(prefixed, device_);
  }
  return context;
}

std::function<void()> GlooRanks::Prepare(const std::string& algorithm, std::span<float> floats) {
  using Kind = gloo::detail::AllreduceOptionsImpl;
  const std::shared_ptr<gloo::Context> context = ContextOf(algorithm);
  if (algorithm == "ring") return Old<gloo::AllreduceRing<float>>(context, floats);
  if (algorithm == "ring_chunked") return Old<gloo::AllreduceRingChunked<float>>(context, floats);
  if (algorithm == "halving_doubling") {
    return Old<gloo::AllreduceHalvingDoubling<float>>(context, floats);
  }
  if (algorithm == "new_ring") return New(context, floats, Kind::RING);
  if (algorithm == "new_bcube") return New(context, floats, Kind::BCUBE);
  throw std::runtime_error("no algorithm '" + algorithm + "'");
}

}  // namespace poseidon::network

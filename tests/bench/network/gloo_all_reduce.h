// Gloo's all-reduce by name. The old interface (a class an algorithm) has ring, ring_chunked and
// halving_doubling; the new one (gloo::allreduce) has new_ring and new_bcube. They must not be
// mixed on one context: each name gets a context, that is connections, of its own. The old
// AllreduceBcube is left out: where calls follow each other, one rank's next call overwrites
// another's result.
//
// Thread safety: one thread at a time. Errors: gloo::Exception.
#pragma once

#include <gloo/rendezvous/context.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace poseidon::network {

class GlooRanks {
 public:
  // `store` is an empty directory that all ranks see; they meet there. `host` is this rank's
  // address.
  GlooRanks(int rank, int ranks, std::string store, const std::string& host);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // A function that replaces the floats by the sums of all ranks' floats. Functions of one
  // algorithm share a context; all ranks must make and call them in the same order.
  std::function<void()> Prepare(const std::string& algorithm, std::span<float> floats);

 private:
  std::shared_ptr<gloo::Context> ContextOf(const std::string& algorithm);

  const int rank_;
  const int ranks_;
  const std::string store_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::map<std::string, std::shared_ptr<gloo::rendezvous::Context>> contexts_;
};

}  // namespace poseidon::network

// ReduceShapes: the all-reduces' schedules in the form in which the exchange model runs them, each
// made once however many chunks have it.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "proto/model.pb.h"

namespace poseidon {

// One message that a worker sends or waits for; what it does in between costs no message.
struct ShapeOperation {
  int peer : 30 = 0;
  bool send : 1 = false;
  bool adds : 1 = false;  // whoever receives it adds it up; else it is copied
  // For a send, the index of the operation at the peer that waits for it.
  int awaited_as = 0;
  double share = 0;  // of the chunk's floats
};
using ShapeOperations = std::vector<ShapeOperation>;

// By worker.
using ReduceShape = std::vector<ShapeOperations>;

class ReduceShapes {
 public:
  // Above 0 shapes are of so many workers that stand for all; for schemes under which all workers
  // have the same operations, only with other peers. One of them alone sends to itself; several (a
  // power of two) send to each other: along rings to a neighbor, in pairs to partners that are
  // another bit away at every distance.
  explicit ReduceShapes(int representatives) : representatives_(representatives) {}

  // The all-reduce of a chunk of `floats` floats with this index in its bucket; `plan` gives
  // the grid, and the workers, of whom there are as many in all calls.
  const ReduceShape& Get(const Plan& plan, Scheme scheme, int chunk, int64_t floats);

 private:
  ReduceShape OfAll(const Plan& plan, Scheme scheme, int variant, int64_t floats) const;
  ReduceShape OfRepresentatives(const Plan& plan, Scheme scheme, int variant, int64_t floats) const;

  int representatives_;
  std::map<std::tuple<Scheme, std::string, int, int64_t>, ReduceShape> shapes_;
};

}  // namespace poseidon

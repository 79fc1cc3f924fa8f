// What a stock Caffe says of its test phases, read from its log: nothing else tells of them, as
// Solver::Test has no callback and returns nothing.
//
//   CaffeTestLog log("accuracy");
//   log.Read("Iteration 500, Testing net (#0)");
//   log.Read("    Test net output #0: accuracy = 0.9713");
//   log.Read("    Test net output #1: loss = 0.0893 (* 1 = 0.0893 loss)");
//   log.Take();  // iteration 500, accuracy 0.9713, loss 0.0893
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "proto/wire.pb.h"

namespace poseidon {

class CaffeTestLog {
 public:
  // `accuracy_blob`: the result of the first test net's Accuracy layer; empty: it has none.
  explicit CaffeTestLog(std::string accuracy_blob) : accuracy_blob_(std::move(accuracy_blob)) {}

  // A message of the solver's thread, as glog has it: without prefix and line end. What is not of a
  // test phase is passed over.
  void Read(const std::string& message);

  // What the first test net's last phase has shown since the last call: iteration, accuracy (of an
  // Accuracy layer with a value a class the first), and the sum of the weighted losses. Nothing if
  // there was none, or it has neither.
  std::optional<wire::Progress> Take();

 private:
  std::string accuracy_blob_;
  int net_ = 0;  // that is being tested
  wire::Progress result_;
};

}  // namespace poseidon

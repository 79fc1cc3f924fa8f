// What a worker declares beside its model, so that workers whose files differ find out before they
// train: nothing would tell afterwards, as the parameters that they end with are the same.
//
//   session.Declare(model, InputsOf(engine, options.weights, options.from));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caffe_adapter/files/found_snapshot.h"
#include "caffe_adapter/net/net.h"
#include "proto/wire.pb.h"
#include "worker/engine/engine.h"

namespace poseidon {

// Of what the net's layers are to compute, in their order. Where files lie, how they are read, the
// samples of a batch and the library that computes a layer have no part in it: these may differ
// from machine to machine, and what is read and the batch are compared by themselves. What is in a
// mean_file, or in InfogainLoss's matrix, has; throws DataError if it can't be read.
uint64_t HashOfNet(const NetDescription& net);

// What the engine reads, draws and computes, the snapshot that training goes on from, and with
// which values that are not trained it starts: those of the snapshot, or else of the files, which
// are read for it, else the engine's; unset where one of these can't be read or does not fit, as
// who comes to a job later needs none of them. Before the engine's parameters are bound. Throws
// DataError for another file, of the net's or the snapshot's, that can't be read or does not fit.
wire::TrainingInputs InputsOf(const Engine& engine, const std::vector<std::string>& weights,
                              const std::optional<FoundSnapshot>& from);

// Throws DataError if a layer reads other data than it did: of the layers that read, in their
// order, before and after their files were opened anew.
void CheckSameData(const std::vector<wire::TrainingData>& before,
                   const std::vector<wire::TrainingData>& now);

}  // namespace poseidon

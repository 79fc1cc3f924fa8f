// What a recorded network (the config's Replay, a profile) says of a model.
#pragma once

#include <optional>
#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Throws ConfigError if there are no layers, none has parameters, or a layer's name, size or time
// makes no sense.
void ValidateReplay(const Replay& replay);

struct ReplayModel {
  // Times are those of the layers with parameters; those of a layer without count to the next
  // below. The update rule is SGD with momentum.
  ModelSpec model;
  // By the replay's layers: which of the model's it is, if it has parameters.
  std::vector<std::optional<int>> layer_of_step;
};

// Throws ConfigError as ValidateReplay does.
ReplayModel DescribeReplay(const Replay& replay);

// The inverse: a replay of the model's layers, whose description has the same names, floats,
// factors and times. The update rule is not the model's. Throws ConfigError, naming the layer, if a
// layer has factors whose rows are no multiple of the batch.
Replay ReplayOf(const ModelSpec& model);

}  // namespace poseidon

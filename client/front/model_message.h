// From the front door's Model (include/poseidon/model.h) to the message that workers declare.
#pragma once

#include "poseidon/model.h"
#include "proto/model.pb.h"

namespace poseidon {

// Throws ConfigError that names the layer or the optimizer's field that can't work: no layers,
// names that are missing, the same or no UTF-8, shapes without floats, more floats than can be
// counted, factors that do not fit the blobs, a negative count or multiplier, a batch that is too
// large, and what Validate(UpdateRule) refuses.
ModelSpec ToModelSpec(const Model& model);

// Whether that can be how long something takes: finite and not negative.
bool IsDuration(double milliseconds);

}  // namespace poseidon

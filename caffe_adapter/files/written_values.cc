// Values that a net has in itself, as one that is read out of a .caffemodel does.
#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/net/layer_types.h"
#include "core/error.h"

namespace poseidon {

void TakeWrittenValues(const LayerInput& input, std::vector<ParameterDescription>& parameters) {
  const int given = input.layer.blobs_size();
  if (given == 0) return;
  if (given != static_cast<int>(parameters.size())) {
    input.Fail("blobs.0", "has the values of " + std::to_string(given) +
                              (given == 1 ? " blob" : " blobs") + "; expected those of " +
                              std::to_string(parameters.size()) + ", as many as it has, or none");
  }
  for (int i = 0; i < given; ++i) {
    const std::string field = "blobs." + std::to_string(i);
    const std::string which = "blob " + std::to_string(i);
    const caffe::BlobProto& blob = input.layer.blobs(i);
    if (!HasShape(blob, parameters[i].shape)) {
      input.Fail(field, "the values of " + which + " are of " + ToString(BlobProtoShape(blob)) +
                            "; expected " + ToString(parameters[i].shape));
    }
    try {
      parameters[i].first_values = ToValues(blob);
    } catch (const DataError& error) {
      input.Fail(field, which + ": " + error.what());
    }
  }
}

}  // namespace poseidon

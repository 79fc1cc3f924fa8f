#include "proto/caffe_forks.h"

#include <algorithm>
#include <iterator>

namespace poseidon {
namespace {

struct ForkLayer {
  std::string_view type;
  std::string_view fork;
  std::string_view instead = "";
};

struct ForkField {
  std::string_view message;
  std::string_view field;
  std::string_view fork;
  std::string_view instead = "";
};

constexpr std::string_view kSsd = "SSD's fork";
constexpr std::string_view kFastRcnn = "Fast R-CNN's fork";
constexpr std::string_view kRfcn = "R-FCN's fork";
constexpr std::string_view kDeepLab = "DeepLab's fork";
constexpr std::string_view kSegNet = "SegNet's fork";
constexpr std::string_view kFlowNet = "FlowNet's fork";
constexpr std::string_view kNvidia = "NVIDIA's fork";

constexpr ForkLayer kLayers[] = {
    {"AnnotatedData", kSsd},
    {"BN", "a fork for SegNet, ENet or PSPNet", "BatchNorm and then Scale compute the same"},
    {"BoxAnnotatorOHEM", kRfcn},
    {"CenterLoss", "the fork for face recognition with center loss"},
    {"ConvolutionDepthwise", "a fork for MobileNet",
     "Convolution computes the same with num_output and group the number of channels"},
    {"Correlation", kFlowNet},
    {"DenseCRF", kDeepLab},
    {"DenseImageData", kSegNet},
    {"DepthwiseConvolution", "a fork for MobileNet", "Convolution computes the same"},
    {"DetectNetTransformation", kNvidia},
    {"DetectionEvaluate", kSsd},
    {"DetectionOutput", kSsd},
    {"ImageSegData", kDeepLab},
    {"Interp", "DeepLab's and PSPNet's fork"},
    {"MatRead", kDeepLab},
    {"MatWrite", kDeepLab},
    {"MultiBoxLoss", kSsd},
    {"Normalize", kSsd},
    {"PSROIPooling", kRfcn},
    {"Permute", kSsd},
    {"PriorBox", kSsd},
    {"ROIPooling", kFastRcnn},
    {"ReLU6", "a fork for MobileNet", "Clip with min: 0 and max: 6 computes the same"},
    {"Resample", kFlowNet},
    {"SegAccuracy", kDeepLab},
    {"ShuffleChannel", "a fork for ShuffleNet"},
    {"SmoothL1Loss", kFastRcnn},
    {"SpatialDropout", "a fork for ENet"},
    {"Upsample", kSegNet},
    {"VideoData", kSsd},
};

constexpr ForkField kFields[] = {
    {"BatchNormParameter", "scale_bias", kNvidia, "write a Scale layer with bias_term after it"},
    {"BatchNormParameter", "scale_filler", kNvidia, "write a Scale layer with a filler after it"},
    {"BatchNormParameter", "bias_filler", kNvidia, "write a Scale layer with bias_filler after it"},
    {"LayerParameter", "annotated_data_param", kSsd},
    {"LayerParameter", "bn_param", "a fork for SegNet, ENet or PSPNet"},
    {"LayerParameter", "detection_evaluate_param", kSsd},
    {"LayerParameter", "detection_output_param", kSsd},
    {"LayerParameter", "interp_param", "DeepLab's and PSPNet's fork"},
    {"LayerParameter", "multibox_loss_param", kSsd},
    {"LayerParameter", "norm_param", kSsd},
    {"LayerParameter", "permute_param", kSsd},
    {"LayerParameter", "prior_box_param", kSsd},
    {"LayerParameter", "psroi_pooling_param", kRfcn},
    {"LayerParameter", "roi_pooling_param", kFastRcnn},
    {"LayerParameter", "shuffle_channel_param", "a fork for ShuffleNet"},
    {"LayerParameter", "smooth_l1_loss_param", kFastRcnn},
    {"LayerParameter", "upsample_param", kSegNet},
    {"LayerParameter", "video_data_param", kSsd},
    {"NetParameter", "default_forward_type", kNvidia, "training.precision of the job says it"},
    {"NetParameter", "default_backward_type", kNvidia, "training.precision of the job says it"},
    {"SolverParameter", "eval_type", kSsd},
    {"TransformationParameter", "distort_param", kSsd},
    {"TransformationParameter", "emit_constraint", kSsd},
    {"TransformationParameter", "expand_param", kSsd},
    {"TransformationParameter", "noise_param", kSsd},
    {"TransformationParameter", "resize_param", kSsd},
};

template <typename Entry>
std::string Note(const Entry* found, const Entry* end) {
  if (found == end) return "";
  std::string note = std::string(found->fork) + " of Caffe has it";
  if (!found->instead.empty()) note += "; " + std::string(found->instead);
  return note;
}

}  // namespace

std::string NoteOnForkLayer(std::string_view type) {
  return Note(std::find_if(std::begin(kLayers), std::end(kLayers),
                           [&](const ForkLayer& layer) { return layer.type == type; }),
              std::end(kLayers));
}

std::string NoteOnForkField(std::string_view message, std::string_view field) {
  return Note(
      std::find_if(std::begin(kFields), std::end(kFields),
                   [&](const ForkField& it) { return it.message == message && it.field == field; }),
      std::end(kFields));
}

}  // namespace poseidon

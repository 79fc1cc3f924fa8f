// How long oneDNN alone computes the layers of AlexNet, forward and backward, in one or another
// memory format: what `poseidon time` of the same net could reach with its primitives.
//
//   OMP_NUM_THREADS=1 taskset -c 0 bench_onednn_layers [--batch=16] [--rounds=9]
//
// "channels last" is the format in which libtorch hands blobs from layer to layer; "blocked" is
// what oneDNN would choose itself (nChw16c where there is AVX-512), with nothing brought into that
// format or out of it. Shown is each primitive's median in milliseconds, and whose it is: "ref"
// computes one value at a time.
#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

DEFINE_int32(batch, 16, "images");
DEFINE_int32(rounds, 9, "times that a primitive is computed");

namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;

class Bench {
 public:
  Bench() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  const dnnl::engine& engine() const { return engine_; }

  memory Filled(const memory::desc& description) const {
    memory made(description, engine_);
    auto* values = static_cast<float*>(made.get_data_handle());
    for (size_t i = 0; i < description.get_size() / sizeof(float); ++i) {
      values[i] = static_cast<float>(i * 7919 % 1000) * 1e-3F;
    }
    return made;
  }

  double Milliseconds(const dnnl::primitive& primitive, const Arguments& arguments) {
    std::vector<double> times;
    for (int round = 0; round < FLAGS_rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      primitive.execute(stream_, arguments);
      stream_.wait();
      times.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
              .count());
    }
    std::nth_element(times.begin(), times.begin() + FLAGS_rounds / 2, times.end());
    return times[FLAGS_rounds / 2];
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
};

memory::desc Floats(const memory::dims& extents, Tag format) {
  return {extents, memory::data_type::f32, format};
}

// A table's line, and its part of the sum over the net.
double Report(const std::string& layer, const char* format, const std::vector<double>& times,
              const std::string& implementation) {
  double sum = 0;
  std::printf("%-24s %-14s", layer.c_str(), format);
  for (const double time : times) {
    std::printf(" %8.2f", time);
    sum += time;
  }
  std::printf("   %s\n", implementation.c_str());
  return sum;
}

struct Format {
  const char* name;
  Tag blobs;         // of 16 channels and more
  Tag image;         // of the data
  Tag convolutions;  // what a convolution is asked for
};

struct ConvolutionShape {
  int bottom, extent, top, kernel, pad, stride, group;
};

double Convolve(Bench& bench, const Format& format, const ConvolutionShape& shape, bool relu) {
  const int extent = (shape.extent + 2 * shape.pad - shape.kernel) / shape.stride + 1;
  const memory::desc bottom = Floats({FLAGS_batch, shape.bottom, shape.extent, shape.extent},
                                     shape.bottom < 16 ? format.image : format.convolutions);
  const memory::desc top = Floats({FLAGS_batch, shape.top, extent, extent}, format.convolutions);
  const memory::dims single = {shape.top, shape.bottom, shape.kernel, shape.kernel};
  const memory::dims grouped = {shape.group, shape.top / shape.group, shape.bottom / shape.group,
                                shape.kernel, shape.kernel};
  const memory::desc weights = Floats(shape.group == 1 ? single : grouped, Tag::any);
  const memory::desc bias = Floats({shape.top}, Tag::x);
  const memory::dims stride(2, shape.stride);
  const memory::dims pad(2, shape.pad);
  const auto direct = dnnl::algorithm::convolution_direct;
  dnnl::primitive_attr attributes;
  if (relu) {
    dnnl::post_ops after;
    after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
  }
  using Forward = dnnl::convolution_forward;
  const Forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, direct, bottom, weights, bias, top, stride, pad, pad},
      attributes, bench.engine());
  std::vector<double> times = {bench.Milliseconds(
      Forward(forward), {{DNNL_ARG_SRC, bench.Filled(forward.src_desc())},
                         {DNNL_ARG_WEIGHTS, bench.Filled(forward.weights_desc())},
                         {DNNL_ARG_BIAS, bench.Filled(bias)},
                         {DNNL_ARG_DST, bench.Filled(forward.dst_desc())}})};
  if (!relu) {
    using Data = dnnl::convolution_backward_data;
    const Data::primitive_desc data({direct, bottom, weights, top, stride, pad, pad},
                                    bench.engine(), forward);
    times.push_back(
        shape.bottom < 16
            ? 0.0
            : bench.Milliseconds(Data(data),
                                 {{DNNL_ARG_DIFF_SRC, bench.Filled(data.diff_src_desc())},
                                  {DNNL_ARG_WEIGHTS, bench.Filled(data.weights_desc())},
                                  {DNNL_ARG_DIFF_DST, bench.Filled(data.diff_dst_desc())}}));
    using Weights = dnnl::convolution_backward_weights;
    const Weights::primitive_desc gradient({direct, bottom, weights, bias, top, stride, pad, pad},
                                           bench.engine(), forward);
    times.push_back(bench.Milliseconds(
        Weights(gradient), {{DNNL_ARG_SRC, bench.Filled(gradient.src_desc())},
                            {DNNL_ARG_DIFF_DST, bench.Filled(gradient.diff_dst_desc())},
                            {DNNL_ARG_DIFF_WEIGHTS, bench.Filled(gradient.diff_weights_desc())},
                            {DNNL_ARG_DIFF_BIAS, bench.Filled(bias)}}));
  }
  const std::string name = std::to_string(shape.bottom) + " -> " + std::to_string(shape.top) +
                           ", kernel " + std::to_string(shape.kernel);
  return Report(name, relu ? "... with ReLU" : format.name, times, forward.impl_info_str());
}

double Normalize(Bench& bench, const Format& format, int channels, int extent) {
  const memory::desc blob = Floats({FLAGS_batch, channels, extent, extent}, format.blobs);
  const auto across = dnnl::algorithm::lrn_across_channels;
  using Forward = dnnl::lrn_forward;
  const Forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, across, blob, 5, 1e-4F, 0.75F, 1.0F}, bench.engine());
  const memory bottom = bench.Filled(blob);
  const memory kept = bench.Filled(forward.workspace_desc());
  const double first = bench.Milliseconds(
      Forward(forward),
      {{DNNL_ARG_SRC, bottom}, {DNNL_ARG_DST, bench.Filled(blob)}, {DNNL_ARG_WORKSPACE, kept}});
  using Backward = dnnl::lrn_backward;
  const Backward::primitive_desc backward({across, blob, blob, 5, 1e-4F, 0.75F, 1.0F},
                                          bench.engine(), forward);
  const double second =
      bench.Milliseconds(Backward(backward), {{DNNL_ARG_SRC, bottom},
                                              {DNNL_ARG_DIFF_DST, bench.Filled(blob)},
                                              {DNNL_ARG_WORKSPACE, kept},
                                              {DNNL_ARG_DIFF_SRC, bench.Filled(blob)}});
  return Report("LRN of " + std::to_string(channels), format.name, {first, second},
                backward.impl_info_str());
}

double Pool(Bench& bench, const Format& format, int channels, int extent) {
  const memory::desc blob = Floats({FLAGS_batch, channels, extent, extent}, format.blobs);
  const int pooled = (extent - 3) / 2 + 1;
  const memory::desc top = Floats({FLAGS_batch, channels, pooled, pooled}, format.blobs);
  const memory::dims stride = {2, 2};
  const memory::dims kernel = {3, 3};
  const memory::dims none = {0, 0};
  const auto most = dnnl::algorithm::pooling_max;
  using Forward = dnnl::pooling_v2_forward;
  const Forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, most, blob, top, stride, kernel, none, none, none},
      bench.engine());
  const memory kept = bench.Filled(forward.workspace_desc());
  const double first = bench.Milliseconds(Forward(forward), {{DNNL_ARG_SRC, bench.Filled(blob)},
                                                             {DNNL_ARG_DST, bench.Filled(top)},
                                                             {DNNL_ARG_WORKSPACE, kept}});
  using Backward = dnnl::pooling_v2_backward;
  const Backward::primitive_desc backward({most, blob, top, stride, kernel, none, none, none},
                                          bench.engine(), forward);
  const double second =
      bench.Milliseconds(Backward(backward), {{DNNL_ARG_DIFF_DST, bench.Filled(top)},
                                              {DNNL_ARG_WORKSPACE, kept},
                                              {DNNL_ARG_DIFF_SRC, bench.Filled(blob)}});
  return Report("pooling of " + std::to_string(channels), format.name, {first, second},
                backward.impl_info_str());
}

}  // namespace

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  Bench bench;
  const ConvolutionShape shapes[] = {{3, 227, 96, 11, 0, 4, 1},
                                     {96, 27, 256, 5, 2, 1, 2},
                                     {256, 13, 384, 3, 1, 1, 1},
                                     {384, 13, 384, 3, 1, 1, 2},
                                     {384, 13, 256, 3, 1, 1, 2}};
  for (const Format& format : {Format{"channels last", Tag::nhwc, Tag::nhwc, Tag::nhwc},
                               Format{"blocked", Tag::nChw16c, Tag::nchw, Tag::any}}) {
    double convolutions = 0;
    double fused = 0;
    for (const ConvolutionShape& shape : shapes) {
      convolutions += Convolve(bench, format, shape, false);
      fused += Convolve(bench, format, shape, true);
    }
    const double norms = Normalize(bench, format, 96, 55) + Normalize(bench, format, 256, 27);
    const double pools =
        Pool(bench, format, 96, 55) + Pool(bench, format, 256, 27) + Pool(bench, format, 256, 13);
    std::printf("%s: convolutions %.0f ms (forward with ReLU %.0f), LRN %.0f, pooling %.0f\n\n",
                format.name, convolutions, fused, norms, pools);
  }
}

// The layers of three well-known nets, for tests of the planner: sizes and multiply-adds as of
// their papers (VGG19: arXiv 1409.1556; GoogLeNet: arXiv 1409.4842, table 1, without the auxiliary
// classifiers; ResNet-50: arXiv 1512.03385, table 1).
#pragma once

#include <cstdint>
#include <string>

#include "proto/model.pb.h"

namespace poseidon {

inline void AddConvolution(const std::string& name, int64_t inputs, int64_t outputs, int64_t kernel,
                           int64_t extent, bool bias, ModelSpec& model) {
  LayerSpec& layer = *model.add_layers();
  layer.set_name(name);
  layer.set_type("Convolution");
  layer.add_blobs()->add_shape(outputs * inputs * kernel * kernel);
  if (bias) layer.add_blobs()->add_shape(outputs);
  layer.set_multiply_adds(outputs * inputs * kernel * kernel * extent * extent);
}

inline void AddInnerProduct(const std::string& name, int64_t inputs, int64_t outputs,
                            ModelSpec& model) {
  LayerSpec& layer = *model.add_layers();
  layer.set_name(name);
  layer.set_type("InnerProduct");
  layer.add_blobs()->add_shape(outputs);
  layer.mutable_blobs(0)->add_shape(inputs);
  layer.add_blobs()->add_shape(outputs);
  layer.set_multiply_adds(inputs * outputs);
  layer.mutable_inner_product()->set_outputs(outputs);
  layer.mutable_inner_product()->set_inputs(inputs);
  layer.mutable_inner_product()->set_rows(model.batch());
}

// As Krizhevsky et al. 2012 have it, in two groups.
inline ModelSpec AlexNet(int64_t batch) {
  ModelSpec model;
  model.set_batch(batch);
  AddConvolution("conv1", 3, 96, 11, 55, true, model);
  AddConvolution("conv2", 48, 256, 5, 27, true, model);
  AddConvolution("conv3", 256, 384, 3, 13, true, model);
  AddConvolution("conv4", 192, 384, 3, 13, true, model);
  AddConvolution("conv5", 192, 256, 3, 13, true, model);
  AddInnerProduct("fc6", 9216, 4096, model);
  AddInnerProduct("fc7", 4096, 4096, model);
  AddInnerProduct("fc8", 4096, 1000, model);
  return model;
}

inline ModelSpec Vgg19(int64_t batch) {
  ModelSpec model;
  model.set_batch(batch);
  constexpr int64_t kChannels[] = {64, 128, 256, 512, 512};
  constexpr int kLayers[] = {2, 2, 4, 4, 4};
  int64_t inputs = 3;
  for (int block = 0; block < 5; ++block) {
    for (int i = 0; i < kLayers[block]; ++i) {
      AddConvolution("conv" + std::to_string(block + 1) + "_" + std::to_string(i + 1), inputs,
                     kChannels[block], 3, 224 >> block, true, model);
      inputs = kChannels[block];
    }
  }
  AddInnerProduct("fc6", 25088, 4096, model);
  AddInnerProduct("fc7", 4096, 4096, model);
  AddInnerProduct("fc8", 4096, 1000, model);
  return model;
}

inline ModelSpec GoogLeNet(int64_t batch) {
  struct Module {
    int64_t inputs, one, reduce3, three, reduce5, five, pool, extent;
  };
  constexpr Module kModules[] = {
      {192, 64, 96, 128, 16, 32, 32, 28},     {256, 128, 128, 192, 32, 96, 64, 28},
      {480, 192, 96, 208, 16, 48, 64, 14},    {512, 160, 112, 224, 24, 64, 64, 14},
      {512, 128, 128, 256, 24, 64, 64, 14},   {512, 112, 144, 288, 32, 64, 64, 14},
      {528, 256, 160, 320, 32, 128, 128, 14}, {832, 256, 160, 320, 32, 128, 128, 7},
      {832, 384, 192, 384, 48, 128, 128, 7}};
  ModelSpec model;
  model.set_batch(batch);
  AddConvolution("conv1", 3, 64, 7, 112, true, model);
  AddConvolution("conv2_reduce", 64, 64, 1, 56, true, model);
  AddConvolution("conv2", 64, 192, 3, 56, true, model);
  int number = 0;
  for (const Module& m : kModules) {
    const std::string name = "inception" + std::to_string(++number) + "_";
    AddConvolution(name + "1x1", m.inputs, m.one, 1, m.extent, true, model);
    AddConvolution(name + "3x3_reduce", m.inputs, m.reduce3, 1, m.extent, true, model);
    AddConvolution(name + "3x3", m.reduce3, m.three, 3, m.extent, true, model);
    AddConvolution(name + "5x5_reduce", m.inputs, m.reduce5, 1, m.extent, true, model);
    AddConvolution(name + "5x5", m.reduce5, m.five, 5, m.extent, true, model);
    AddConvolution(name + "pool", m.inputs, m.pool, 1, m.extent, true, model);
  }
  AddInnerProduct("classifier", 1024, 1000, model);
  return model;
}

// Each convolution is followed by a learned scale and shift, as batch normalization has in Caffe.
inline ModelSpec ResNet50(int64_t batch) {
  ModelSpec model;
  model.set_batch(batch);
  const auto add = [&](const std::string& name, int64_t inputs, int64_t outputs, int64_t kernel,
                       int64_t extent) {
    AddConvolution(name, inputs, outputs, kernel, extent, false, model);
    LayerSpec& scale = *model.add_layers();
    scale.set_name(name + "_scale");
    scale.set_type("Scale");
    scale.add_blobs()->add_shape(outputs);
    scale.add_blobs()->add_shape(outputs);
    scale.set_multiply_adds(outputs * extent * extent);
  };
  add("conv1", 3, 64, 7, 112);
  constexpr int kBlocks[] = {3, 4, 6, 3};
  int64_t inputs = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage;
    const int64_t extent = 56 >> stage;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string name = "res" + std::to_string(stage + 2) + "_" + std::to_string(block);
      if (block == 0) add(name + "_shortcut", inputs, 4 * width, 1, extent);
      add(name + "_a", inputs, width, 1, extent);
      add(name + "_b", width, width, 3, extent);
      add(name + "_c", width, 4 * width, 1, extent);
      inputs = 4 * width;
    }
  }
  AddInnerProduct("fc", 2048, 1000, model);
  return model;
}

}  // namespace poseidon

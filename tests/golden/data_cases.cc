#include "tests/golden/data_cases.h"

namespace poseidon {
namespace {

std::string Transform(const std::string& fields) {
  return fields.empty() ? "" : "transform_param { " + fields + " } ";
}

std::string Data(const std::string& source, int batch, const std::string& transform,
                 const std::string& more = "") {
  return "top: 'data' top: 'label' " + Transform(transform) + "data_param { source: '" + source +
         "' backend: LMDB batch_size: " + std::to_string(batch) + " " + more + "}";
}

std::string Images(const std::string& source, int batch, const std::string& fields,
                   const std::string& transform = "") {
  return "top: 'data' top: 'label' " + Transform(transform) + "image_data_param { source: '" +
         source + "' batch_size: " + std::to_string(batch) + " " + fields + "}";
}

// Records of pixels are 3 x 5 x 4: a crop of 3 is in the middle of 5 rows, and one column is left
// over; of 2, one row.
void AddPixels(std::vector<DataCase>& cases) {
  const auto add = [&](const char* setting, const std::string& transform) {
    cases.push_back({"Data", setting, Data("pixels", 4, transform)});
  };
  cases.push_back({"Data", "three batches of 4 from 5 records", Data("pixels", 4, ""), 3});
  cases.push_back(
      {"Data", "no labels",
       "top: 'data' data_param { source: 'pixels' backend: LMDB batch_size: 1 rand_skip: 0 }"});
  add("scale", "scale: 0.00390625");
  add("mean_value", "mean_value: 104.5");
  add("mean_value a channel, scale",
      "mean_value: 104 mean_value: 117 mean_value: 123 scale: 0.017");
  add("mean_file", "mean_file: 'mean.binaryproto'");
  add("mean_file with a shape", "mean_file: 'mean_shape.binaryproto' scale: 0.5");
  add("crop of an odd extent", "crop_size: 3");
  add("crop of an even extent", "crop_size: 2");
  add("crop, mean_file, scale", "crop_size: 2 mean_file: 'mean.binaryproto' scale: 3");
  add("crop, mean_value a channel", "crop_size: 3 mean_value: 1 mean_value: 2 mean_value: 3");
  add("crop as large as the record", "crop_size: 4");
  add("force_gray has no effect on pixels", "force_gray: true");
  cases.push_back(
      {"Data", "cropped records of several sizes", Data("sizes", 3, "crop_size: 3 scale: 2")});
  cases.push_back({"Data", "LevelDB, the default",
                   "top: 'data' top: 'label' data_param { source: 'leveldb' batch_size: 3 }", 2});
  cases.push_back({"Data", "floats", Data("floats", 2, ""), 3});
  cases.push_back({"Data", "floats, crop, mean_value, scale",
                   Data("floats", 3, "crop_size: 2 mean_value: 0.25 scale: -1.5")});
}

void AddEncoded(std::vector<DataCase>& cases) {
  const auto add = [&](const char* setting, const char* source, const std::string& transform,
                       const std::string& more = "") {
    cases.push_back({"Data", setting, Data(source, 2, transform, more)});
  };
  add("encoded in color", "encoded_color", "");
  add("encoded in gray", "encoded_gray", "");
  add("encoded in gray, force_color", "encoded_gray", "force_color: true");
  add("encoded in color, force_gray", "encoded_color", "force_gray: true");
  add("encoded in both, force_color, crop, mean_value", "encoded_both",
      "force_color: true crop_size: 4 mean_value: 100 mean_value: 110 mean_value: 120 scale: 0.5");
  add("encoded with transparency", "encoded_alpha", "");
  add("encoded, force_encoded_color has no effect", "encoded_gray", "crop_size: 4",
      "force_encoded_color: true ");
}

void AddImages(std::vector<DataCase>& cases) {
  const auto add = [&](const char* setting, const std::string& fields,
                       const std::string& transform = "") {
    cases.push_back({"ImageData", setting, Images("images.txt", 7, fields, transform)});
  };
  add("as it is", "");
  add("is_color: false", "is_color: false");
  add("made smaller", "new_height: 4 new_width: 5");
  add("made larger in one direction, gray", "new_height: 5 new_width: 13 is_color: false");
  add("made smaller, crop, mean_value a channel, scale", "new_height: 6 new_width: 5",
      "crop_size: 3 mean_value: 104 mean_value: 117 mean_value: 123 scale: 0.017");
  add("made smaller, mean_file", "new_height: 5 new_width: 4", "mean_file: 'mean.binaryproto'");
  add("crop", "", "crop_size: 4");
  cases.push_back(
      {"ImageData", "root_folder, three batches of 3 from 7 images",
       Images("names.txt", 3, "root_folder: 'images/' new_height: 2 new_width: 3 is_color: false"),
       3});
  cases.push_back(
      {"ImageData", "a turned JPEG", Images("turned.txt", 1, "root_folder: 'images/'")});
  cases.push_back({"ImageData", "a turned JPEG, made smaller",
                   Images("turned.txt", 1, "root_folder: 'images/' new_height: 3 new_width: 2")});
}

void AddRows(std::vector<DataCase>& cases) {
  const auto add = [&](const char* setting, const char* tops, int batch, int batches) {
    cases.push_back({"HDF5Data", setting,
                     std::string(tops) + " hdf5_data_param { source: 'rows.txt' batch_size: " +
                         std::to_string(batch) + " }",
                     batches});
  };
  add("three batches of 3 from files of 4, 1 and 2 rows", "top: 'data' top: 'label'", 3, 3);
  add("three tops", "top: 'label' top: 'pairs' top: 'data'", 2, 4);
  add("a batch of more than all rows", "top: 'pairs'", 9, 2);
}

void AddConstants(std::vector<DataCase>& cases) {
  const auto add = [&](const char* type, const char* setting, const char* fields) {
    cases.push_back({type, setting, fields, 2});
  };
  add("DummyData", "zeros", "top: 'a' dummy_data_param { shape { dim: 2 dim: 3 } }");
  add("DummyData", "one shape, one filler, two tops",
      "top: 'a' top: 'b' dummy_data_param { shape { dim: 2 dim: 3 } data_filler { type: "
      "'constant' value: 1.5 } }");
  add("DummyData", "a shape and a filler a top",
      "top: 'a' top: 'b' dummy_data_param { shape { dim: 2 dim: 1 dim: 2 } shape { dim: 3 } "
      "data_filler { value: -1 } data_filler { type: 'constant' value: 7 } }");
  add("DummyData", "the older fields",
      "top: 'a' top: 'b' dummy_data_param { num: 2 channels: 3 channels: 1 height: 1 width: 2 "
      "data_filler { value: 4 } }");
  add("DummyData", "bilinear",
      "top: 'a' top: 'b' dummy_data_param { shape { dim: 2 dim: 1 dim: 4 dim: 4 } "
      "shape { dim: 1 dim: 2 dim: 3 dim: 3 } data_filler { type: 'bilinear' } }");
  add("Input", "one shape, two tops", "top: 'a' top: 'b' input_param { shape { dim: 2 dim: 3 } }");
  add("Input", "a shape a top",
      "top: 'a' top: 'b' input_param { shape { dim: 2 dim: 3 } shape { dim: 4 } }");
  cases.push_back(
      {"MemoryData", "three batches of 2 from 4 images",
       "top: 'data' top: 'label' memory_data_param { batch_size: 2 channels: 1 height: 2 "
       "width: 3 }",
       3});
}

}  // namespace

std::vector<DataCase> DataCases() {
  std::vector<DataCase> cases;
  AddPixels(cases);
  AddEncoded(cases);
  AddImages(cases);
  AddRows(cases);
  AddConstants(cases);
  return cases;
}

std::vector<DataCase> RandomDataCases() {
  std::vector<DataCase> cases;
  const auto add = [&](const char* setting, const std::string& transform, bool training) {
    cases.push_back(
        {"Data", std::string("pixels, ") + setting, Data("one", 50, transform), 8, training});
    cases.push_back({"Data", std::string("encoded, ") + setting, Data("one_encoded", 50, transform),
                     8, training});
    cases.push_back(
        {"ImageData", setting, Images("one.txt", 50, "is_color: false", transform), 8, training});
  };
  add("mirror in TEST", "mirror: true", false);
  add("crop, mirror in TEST", "mirror: true crop_size: 2", false);
  add("mirror, mean_file in TRAIN", "mirror: true mean_file: 'mean_one.binaryproto'", true);
  add("crop in TRAIN", "crop_size: 2", true);
  add("crop, mirror, mean_file, scale in TRAIN",
      "crop_size: 2 mirror: true mean_file: 'mean_one.binaryproto' scale: 0.5", true);
  return cases;
}

std::vector<DataCase> WindowCases() {
  std::vector<DataCase> cases;
  const auto add = [&](const char* setting, const std::string& fields,
                       const std::string& transform) {
    cases.push_back({"WindowData", setting,
                     "top: 'data' top: 'label' " + Transform(transform) +
                         "window_data_param { source: 'windows.txt' root_folder: 'images/' "
                         "batch_size: 50 fg_fraction: 0.5 " +
                         fields + "}",
                     8, true});
  };
  add("warp", "", "crop_size: 6");
  add("warp, mirror, mean_value a channel, scale", "scale: 0.5 ",
      "crop_size: 5 mirror: true mean_value: 104 mean_value: 117 mean_value: 123");
  add("warp, context_pad, mirror, mean_file", "context_pad: 1 ",
      "crop_size: 6 mirror: true mean_file: 'mean_windows.binaryproto'");
  add("warp, much context_pad, mirror", "context_pad: 3 crop_mode: 'warp' ",
      "crop_size: 8 mirror: true");
  add("square", "crop_mode: 'square' ", "crop_size: 6");
  add("square, context_pad, mirror, mean_file, scale",
      "crop_mode: 'square' context_pad: 2 scale: 0.25 ",
      "crop_size: 7 mirror: true mean_file: 'mean_windows.binaryproto'");
  add("other thresholds, images kept in memory",
      "fg_threshold: 0.75 bg_threshold: 0.2 cache_images: true ", "crop_size: 4 mirror: true");
  return cases;
}

// Of so many values that their quantiles are within 1% of their spread.
std::vector<DataCase> FillerCases() {
  std::vector<DataCase> cases;
  for (const char* const filler :
       {"type: 'uniform' min: -2 max: 3", "type: 'gaussian' mean: 1 std: 0.5",
        "type: 'gaussian' std: 2 sparse: 35", "type: 'xavier'",
        "type: 'xavier' variance_norm: FAN_OUT", "type: 'xavier' variance_norm: AVERAGE",
        "type: 'msra'", "type: 'msra' variance_norm: FAN_OUT",
        "type: 'msra' variance_norm: AVERAGE", "type: 'positive_unitball'"}) {
    cases.push_back({"DummyData", filler,
                     "top: 'a' dummy_data_param { shape { dim: 100 dim: 60 dim: 8 dim: 5 } "
                     "data_filler { " +
                         std::string(filler) + " } }"});
  }
  return cases;
}

}  // namespace poseidon

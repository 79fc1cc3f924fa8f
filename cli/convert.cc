#include "cli/convert.h"

#include <gflags/gflags.h>

#include <chrono>
#include <iostream>

#include "caffe_adapter/convert/convert.h"
#include "cli/input/flags.h"
#include "core/process/counting_line.h"

namespace poseidon {
namespace {

void CheckPaths() {
  if (FLAGS_source.empty()) throw ConfigError("--source is missing; name what to convert");
  if (FLAGS_out.empty()) throw ConfigError("--out is missing; name the directory to write to");
}

ConvertOptions DirectoryOptions() {
  CheckPaths();
  ConvertOptions options;
  options.source = FLAGS_source;
  options.out = FLAGS_out;
  options.replace = FLAGS_replace;
  return options;
}

ExitCode Show(const ConvertResult& result) {
  for (const WrittenDatabase& database : result.databases) {
    std::cout << database.path << ": " << database.records << " records of "
              << ToString(database.record_shape) << std::endl;
  }
  for (const std::string& file : result.other_files) std::cout << file << std::endl;
  for (const double mean : result.channel_means) std::cout << "mean_value: " << mean << std::endl;
  for (const std::string& warning : result.warnings) {
    std::cerr << "poseidon: " << warning << std::endl;
  }
  return ExitCode::kSuccess;
}

// Short conversions need no progress.
constexpr std::chrono::seconds kUnnoticed{1};

ConvertProgress ShownOn(CountingLine& line) {
  return [&line](int64_t done, int64_t all) { line.Show(done, all); };
}

// Shows how it goes on, and what it has written.
template <typename Options>
ExitCode RunConversion(ConvertResult (*convert)(const Options&), Options options) {
  CountingLine line("record", kUnnoticed);
  options.progress = ShownOn(line);
  return Show(convert(options));
}

}  // namespace

ExitCode ConvertCsvVerb() {
  CheckPaths();
  CsvOptions options;
  options.source = FLAGS_source;
  options.out = FLAGS_out;
  options.label_column = FLAGS_label_column;
  options.height = FLAGS_height;
  options.width = FLAGS_width;
  options.max_value = FLAGS_max_value;
  options.scale_height = FLAGS_scale_height;
  options.scale_width = FLAGS_scale_width;
  options.shuffle = FLAGS_shuffle;
  options.shuffle_seed = FLAGS_shuffle_seed;
  options.train_records = FLAGS_train_records;
  options.replace = FLAGS_replace;
  return RunConversion(ConvertCsv, options);
}

ExitCode ConvertMnistVerb() { return RunConversion(ConvertMnist, DirectoryOptions()); }

ExitCode ConvertCifar10Verb() { return RunConversion(ConvertCifar10, DirectoryOptions()); }

ExitCode ConvertImagesetVerb() {
  CheckPaths();
  ImagesetOptions options;
  options.source = FLAGS_source;
  options.root_folder = FLAGS_root_folder;
  options.out = FLAGS_out;
  options.resize_height = FLAGS_resize_height;
  options.resize_width = FLAGS_resize_width;
  options.gray = FLAGS_gray;
  options.shuffle = FLAGS_shuffle;
  options.shuffle_seed = FLAGS_shuffle_seed;
  options.encoded = FLAGS_encoded;
  options.encode_type = FLAGS_encode_type;
  options.check_size = FLAGS_check_size;
  options.replace = FLAGS_replace;
  return RunConversion(ConvertImageset, options);
}

ExitCode ConvertMeanVerb() {
  CheckPaths();
  CountingLine line("record", kUnnoticed);
  return Show(ComputeMean(FLAGS_source, FLAGS_out, ShownOn(line)));
}

}  // namespace poseidon

// From published data sets to LMDBs of Datum.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "caffe_adapter/net/shape.h"

namespace poseidon {

// What a conversion wrote, for the user to see.
struct WrittenDatabase {
  std::string path;
  int64_t records = 0;
  Shape record_shape;  // channels, height, width
};

struct ConvertResult {
  std::vector<WrittenDatabase> databases;
  std::vector<std::string> other_files;  // the mean image
  std::vector<double> channel_means;     // of the mean image, where that was asked for
  std::vector<std::string> warnings;     // of what training may refuse, a sentence each
};

// Called after each record, with how many of all are done.
using ConvertProgress = std::function<void(int64_t done, int64_t all)>;

// A table of numbers, one image a line: a label and the pixels of one channel, row by row.
struct CsvOptions {
  std::string source;     // the CSV file; a line that starts with a letter is a heading
  std::string out;        // gets train_lmdb and, if records are left over, test_lmdb; else has none
  int label_column = -1;  // from 0; negative counts from the end
  int64_t height = 0;     // of an image in the file; 0: images are square
  int64_t width = 0;
  double max_value = 255;    // a pixel of this value becomes 255
  int64_t scale_height = 0;  // height and width written, by bilinear interpolation; 0 as read
  int64_t scale_width = 0;
  // Puts the images in a random order before they are parted into those to train on and those to
  // test on. Files are often sorted, by class or by writer; then the parts would differ in kind.
  bool shuffle = true;
  uint64_t shuffle_seed = 1;  // the same seed gives the same order on every platform
  int64_t train_records = 0;  // the first ones; 0: all
  bool replace = false;       // databases that are there already; otherwise they are an error
  ConvertProgress progress = nullptr;
};

// Throws ConfigError for options out of range, DataError naming file and line for a line that is
// not what the first one was.
ConvertResult ConvertCsv(const CsvOptions& options);

// Image files named in a list, as Caffe's convert_imageset takes them. Needs OpenCV.
struct ImagesetOptions {
  std::string source;         // the list: a path and a label a line
  std::string root_folder;    // put before each path as it is
  std::string out;            // the database
  int64_t resize_height = 0;  // height and width written; 0 as read
  int64_t resize_width = 0;
  bool gray = false;  // one channel; else three
  bool shuffle = false;
  uint64_t shuffle_seed = 1;  // the same seed gives the same order on every platform
  // Compressed images rather than pixels; of the files' own types unless there is an encode_type
  // ("jpg", "png"), which alone says the same.
  bool encoded = false;
  std::string encode_type;
  bool check_size = false;  // all records must be of one shape
  bool replace = false;
  ConvertProgress progress = nullptr;
};

// A record's key is its number and its path. Throws ConfigError for options out of range, DataError
// naming list and line for an image that can't be read.
ConvertResult ConvertImageset(const ImagesetOptions& options);

// Writes the mean image of a database (LMDB or LevelDB) to file `out`, as Caffe's
// compute_image_mean does. Throws DataError for records of several shapes, and before anything is
// read what CheckCanWrite (core/atomic_file.h) throws for `out`.
ConvertResult ComputeMean(const std::string& source, const std::string& out,
                          const ConvertProgress& progress = nullptr);

struct ConvertOptions {
  std::string source;    // directory of the files as published, decompressed
  std::string out;       // gets train_lmdb and test_lmdb
  bool replace = false;  // what is there already; otherwise it is an error
  ConvertProgress progress = nullptr;
};

// MNIST's idx files: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-... Throws DataError.
ConvertResult ConvertMnist(const ConvertOptions& options);

// CIFAR-10's binary version: data_batch_1.bin .. data_batch_5.bin, test_batch.bin. Also writes
// mean.binaryproto, the mean training image. Throws DataError.
ConvertResult ConvertCifar10(const ConvertOptions& options);

}  // namespace poseidon

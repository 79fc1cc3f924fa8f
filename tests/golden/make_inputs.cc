#include <glog/logging.h>

#include <caffe/caffe.hpp>
#include <caffe/util/db.hpp>
#include <caffe/util/format.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <opencv2/imgcodecs.hpp>
#include <string>
#include <vector>

#include "caffe_adapter/files/hdf5_library.h"
#include "core/random.h"
#include "tests/golden/golden.h"

namespace poseidon {
namespace {

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  CHECK(file << text << std::flush) << "can't write " << path;
}

// --- Images: colors that change slowly, as decoders differ least in those. ---

constexpr int kHeight = 9;  // a little more than one of JPEG's blocks of 8 x 8
constexpr int kWidth = 10;

// `depth` is CV_8U or CV_16U; `start` makes images differ.
cv::Mat MakeImage(int height, int width, int depth, int channels, int start) {
  cv::Mat image(height, width, CV_MAKETYPE(depth, channels));
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const int values[] = {start + 20 * x + 3 * y, start + 22 * y, 250 - start - 10 * (x + y),
                            90 + 5 * x + 7 * y};
      for (int c = 0; c < channels; ++c) {
        const int place = x * channels + c;
        if (depth == CV_8U) {
          image.ptr<uint8_t>(y)[place] = static_cast<uint8_t>(values[c]);
        } else {
          image.ptr<uint16_t>(y)[place] = static_cast<uint16_t>(values[c] * 256 + 37 * x);
        }
      }
    }
  }
  return image;
}

std::string Encode(const cv::Mat& image, const std::string& type) {
  std::vector<uint8_t> bytes;
  CHECK(cv::imencode("." + type, image, bytes));
  return {bytes.begin(), bytes.end()};
}

// A JPEG with an Exif segment that says: turn it by a quarter to see it upright (orientation 6).
std::string Turned(const std::string& jpeg) {
  using std::string_literals::operator""s;
  const std::string segment =
      "\xff\xe1\x00\x22"                    // APP1, 34 bytes
      "Exif\0\0"                            //
      "II*\0\x08\0\0\0"                     // TIFF, its directory at byte 8
      "\x01\0"                              // of one entry:
      "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"  // orientation, one short, 6
      "\0\0\0\0"s;                          // no other directory
  CHECK_EQ(segment.size(), 36u);
  return jpeg.substr(0, 2) + segment + jpeg.substr(2);
}

void MakeImages(const std::string& directory) {
  std::filesystem::create_directories(directory + "images");
  const auto write = [&](const std::string& name, const std::string& bytes) {
    WriteText(directory + "images/" + name, bytes);
  };
  const auto image = [](int channels, int start) {
    return MakeImage(kHeight, kWidth, CV_8U, channels, start);
  };
  write("color.png", Encode(image(3, 5), "png"));
  write("color.jpg", Encode(image(3, 30), "jpg"));
  write("gray.png", Encode(image(1, 10), "png"));
  write("gray.jpg", Encode(image(1, 40), "jpg"));
  write("alpha.png", Encode(image(4, 20), "png"));
  write("a name with blanks.png", Encode(image(3, 0), "png"));
  write("deep.png", Encode(MakeImage(kHeight, kWidth, CV_16U, 3, 15), "png"));
  write("turned.jpg", Turned(Encode(image(3, 25), "jpg")));
  write("one.png", Encode(MakeImage(3, 4, CV_8U, 1, 1), "png"));
}

void MakeImageLists(const std::string& directory) {
  std::string images;
  std::string names;
  int label = 5;
  for (const char* const name : {"color.png", "color.jpg", "gray.png", "gray.jpg", "alpha.png",
                                 "a name with blanks.png", "deep.png"}) {
    const std::string line = std::string(name) + " " + std::to_string(label) + "\n";
    images += "images/" + line;
    names += line;
    label = label * 7 % 23 - 4;
  }
  WriteText(directory + "images.txt", images);
  WriteText(directory + "names.txt", names);
  WriteText(directory + "turned.txt", "turned.jpg 2\n");
  // Some windows reach the images' edges, some are thin, and one is a whole image.
  WriteText(directory + "windows.txt",
            "# 0\ncolor.png\n3 9 10\n4\n"
            "3 0.9 2 1 7 6\n1 0.6 0 0 3 8\n2 0.2 5 4 9 8\n0 0 3 3 3 3\n"
            "# 1\nalpha.png\n3 9 10\n3\n"
            "5 1 0 0 9 8\n0 0.1 1 2 9 3\n4 0.5 6 0 9 1\n"
            "# 2\ngray.png\n3 9 10\n0\n"
            "# 3\ndeep.png\n3 9 10\n2\n"
            "7 0.75 4 2 8 8\n1 0.49 0 5 2 8\n");
  WriteText(directory + "one.txt", "images/one.png 8\n");
}

// --- HDF5 files with datasets of many types. ---

void AddDataset(hid_t file, const char* name, const std::vector<hsize_t>& extents, hid_t type,
                Random& random) {
  size_t count = 1;
  for (const hsize_t extent : extents) count *= extent;
  std::vector<double> values;
  while (values.size() < count) {
    const auto number = static_cast<double>(random.Below(100));
    values.push_back(H5Tget_class(type) == H5T_FLOAT ? number / 7 - 5 : number);
  }
  const Hdf5Handle space(
      H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
  // Without the time, so that the file is the same whenever it is made.
  const Hdf5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  CHECK_GE(H5Pset_obj_track_times(properties.id(), false), 0);
  const Hdf5Handle dataset(
      H5Dcreate2(file, name, type, space.id(), H5P_DEFAULT, properties.id(), H5P_DEFAULT),
      H5Dclose);
  CHECK(dataset.ok());
  CHECK_GE(H5Dwrite(dataset.id(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
           0);
}

struct RowTypes {
  hsize_t rows;
  hid_t data;
  hid_t label;
  hid_t pairs;
};

void MakeRows(const std::string& directory) {
  Random random(11);
  std::string list;
  for (const RowTypes& types : {RowTypes{4, H5T_IEEE_F32LE, H5T_STD_I32LE, H5T_IEEE_F64LE},
                                RowTypes{1, H5T_IEEE_F64LE, H5T_IEEE_F32LE, H5T_STD_U8LE},
                                RowTypes{2, H5T_STD_I16BE, H5T_STD_I64LE, H5T_IEEE_F32BE}}) {
    const std::string name = "rows" + std::to_string(types.rows) + ".h5";
    const Hdf5Handle file(
        H5Fcreate((directory + name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    CHECK(file.ok()) << name;
    AddDataset(file.id(), "data", {types.rows, 2, 3}, types.data, random);
    AddDataset(file.id(), "label", {types.rows}, types.label, random);
    AddDataset(file.id(), "pairs", {types.rows, 2}, types.pairs, random);
    list += name + "\n";
  }
  WriteText(directory + "rows.txt", list);
}

// --- A database as Caffe's tools write it; an LMDB is the same whoever writes it. ---

void MakeLevelDb(const std::string& path) {
  std::filesystem::remove_all(path);
  {
    const std::unique_ptr<::caffe::db::DB> database(::caffe::db::GetDB("leveldb"));
    database->Open(path, ::caffe::db::NEW);
    const std::unique_ptr<::caffe::db::Transaction> transaction(database->NewTransaction());
    for (const int i : {2, 0, 3, 1}) {
      ::caffe::Datum datum;
      datum.set_channels(2);
      datum.set_height(1);
      datum.set_width(3);
      datum.set_label(10 * i);
      for (int value = 0; value < 6; ++value) {
        datum.mutable_data()->push_back(static_cast<char>(40 * value + i));
      }
      transaction->Put(::caffe::format_int(i, 8) + "_name", datum.SerializeAsString());
    }
    transaction->Commit();
  }
  // They hold the time and nothing else.
  for (const char* const file : {"/LOG", "/LOCK"}) std::filesystem::remove(path + file);
}

}  // namespace

void MakeInputFiles(const std::string& directory) {
  const std::string inputs = directory + "/data/inputs/";
  std::filesystem::create_directories(inputs);
  MakeImages(inputs);
  MakeImageLists(inputs);
  MakeRows(inputs);
  MakeLevelDb(inputs + "leveldb");
}

}  // namespace poseidon

// Makes images and sentences about them, in the files of Caffe's captioning example (coco_caption):
//   make_captions --out=DIR
//
// DIR/images.txt lists the images in the order in which all workers together read them. A stream
// has an image in each batch, and DIR/P_workers.txt lists the HDF5 files with the sentences about
// them for P workers, who share the streams: in each batch of kSteps rows the first worker's come
// first.
#include <gflags/gflags.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

#include "caffe_adapter/data/image_file.h"
#include "caffe_adapter/files/hdf5_writer.h"
#include "core/program.h"
#include "core/random.h"

DEFINE_string(out, "", "The directory.");

namespace poseidon {
namespace {

constexpr int kStreams = 4;
constexpr int kSteps = 6;
constexpr int kBatches = 12;
constexpr int kClasses = 3;
constexpr int kExtent = 40;

// Numbers of words; 0 ends a sentence. All have as many words, because each worker's loss is the
// mean over its own words: with others, workers would not learn what one with their batches learns.
constexpr std::array<std::array<float, 5>, kClasses> kSentences = {
    {{1, 4, 5, 8, 0}, {2, 4, 6, 8, 0}, {3, 7, 5, 9, 0}}};

int ClassOf(int image) {
  return static_cast<int>(Random(DeriveSeed(1, static_cast<uint64_t>(image))).Below(kClasses));
}

// Noise, in which one color is bright: that is the class.
void WriteImages() {
  std::filesystem::create_directories(FLAGS_out);
  std::ofstream list(FLAGS_out + "/images.txt");
  for (int image = 0; image < kBatches * kStreams; ++image) {
    Random random(DeriveSeed(2, static_cast<uint64_t>(image)));
    ByteImage pixels{{3, kExtent, kExtent}, {}};
    for (int i = 0; i < 3 * kExtent * kExtent; ++i) {
      const bool bright = i / (kExtent * kExtent) == ClassOf(image);
      pixels.bytes.push_back(static_cast<char>(random.Below(100) + (bright ? 100 : 0)));
    }
    const std::string name = std::to_string(image) + ".png";
    std::ofstream(FLAGS_out + "/" + name, std::ios::binary) << EncodeImage(pixels, "png");
    list << name << " 0\n";  // labels are needed, and nothing reads them
  }
}

// A row for each time step: whether a sentence goes on, the word before, the word to say, which is
// -1 where there is nothing to say.
struct Rows {
  std::vector<float> goes_on;
  std::vector<float> before;
  std::vector<float> next;

  void AddBatch(int first_image, int streams) {
    for (int step = 0; step < kSteps; ++step) {
      for (int image = first_image; image < first_image + streams; ++image) {
        const auto& words = kSentences[ClassOf(image)];
        goes_on.push_back(step == 0 ? 0.0F : 1.0F);
        before.push_back(step == 0 ? 0.0F : words[step - 1]);
        next.push_back(step < static_cast<int>(words.size()) ? words[step] : -1.0F);
      }
    }
  }

  void Write(const std::string& path, int streams) const {
    const Shape shape = {static_cast<int64_t>(next.size()) / streams, streams};
    Hdf5Writer writer(path);
    writer.AddFloats("cont_sentence", shape, goes_on);
    writer.AddFloats("input_sentence", shape, before);
    writer.AddFloats("target_sentence", shape, next);
    writer.Write();
  }
};

// In two files, as the example has many.
void WriteSentences(int workers) {
  const std::string name = FLAGS_out + "/" + std::to_string(workers) + "_workers";
  const int streams = kStreams / workers;
  std::ofstream list(name + ".txt");
  for (int file = 0; file < 2; ++file) {
    Rows rows;
    for (int batch = file * kBatches / 2; batch < (file + 1) * kBatches / 2; ++batch) {
      for (int worker = 0; worker < workers; ++worker) {
        rows.AddBatch(batch * kStreams + worker * streams, streams);
      }
    }
    const std::string path = name + "_" + std::to_string(file) + ".h5";
    rows.Write(path, streams);
    list << path << "\n";
  }
}

ExitCode Run() {
  WriteImages();
  for (const int workers : {1, 2}) WriteSentences(workers);
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return poseidon::RunProgram("make_captions", argv[0], poseidon::Run);
}

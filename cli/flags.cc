#include "cli/flags.h"

#include <gflags/gflags.h>

DEFINE_string(config, "", "Job config (docs/configuration.md).");
DEFINE_string(net, "", "Caffe net prototxt.");
DEFINE_string(solver, "", "Caffe solver prototxt; its net is taken.");

DEFINE_int32(workers, 0, "Number of workers.");
DEFINE_int32(servers, 0, "Number of parameter servers.");
DEFINE_int64(batch, 0, "Samples a worker processes per iteration, instead of the net's.");
DEFINE_string(policy, "bytes",
              "bytes: the paper's Algorithm 1, whichever moves fewer floats; ps: parameter servers "
              "for all layers; sfb: sufficient factors for all layers that can use them.");
DEFINE_int32(lanes, 1, "Data lanes of every node.");
DEFINE_int64(kv_pair_bytes, 2097152, "Largest size of a KV pair, in bytes.");

DEFINE_string(input, "",
              "Shape of the data's records, such as 3x32x32 (channels, height, width). Without it "
              "the net's databases are opened to see.");
DEFINE_string(source, "", "What to convert.");
DEFINE_int32(label_column, -1, "Column of the label, from 0; negative counts from the end.");
DEFINE_int64(height, 0, "Height of an image in the file; 0: images are square.");
DEFINE_int64(width, 0, "Width of an image in the file; 0: images are square.");
DEFINE_double(max_value, 255, "The pixel value that becomes 255.");
DEFINE_int64(scale_height, 0, "Height to scale images to (bilinear); 0: as they are.");
DEFINE_int64(scale_width, 0, "Width to scale images to; 0: as they are.");
DEFINE_bool(shuffle, true,
            "Leave the images in the file's order. By default they are put in a random one before "
            "they are parted, because files are often sorted.");
DEFINE_uint64(shuffle_seed, 1,
              "Seed of the random order; the same seed gives the same order on every machine.");
DEFINE_int64(train_records, 0, "Images to train on; the others are to test. 0: all.");

DEFINE_string(out, "", "Directory to write to; made if it is not there.");
DEFINE_string(format, "table", "table: for people; json: for programs.");
DEFINE_bool(replace, false, "Replace databases that are there already, instead of refusing to.");

namespace poseidon {

bool FlagGiven(const char* name) { return !gflags::GetCommandLineFlagInfoOrDie(name).is_default; }

}  // namespace poseidon

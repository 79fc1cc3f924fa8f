// Files that another file names: a job config its solver, a solver its net.
#pragma once

#include <optional>
#include <string>

namespace poseidon {

// Where the file called `path` in the file `named_in` is: under that path, which is relative to the
// working directory, as Caffe reads it; else beside `named_in`; else in the nearest directory above
// that has it. So files that were written for one working directory, a repository's root, are found
// from others. Nothing if it is in none of these; the path itself if it is a loop of links or the
// like. Pure but for asking the file system; thread-safe.
//
//   FindNamedFile("/repository/configs/job.prototxt", "configs/models/solver.prototxt")
//     // "/repository/configs/models/solver.prototxt", unless the working directory has such a file
std::optional<std::string> FindNamedFile(const std::string& named_in, const std::string& path);

}  // namespace poseidon

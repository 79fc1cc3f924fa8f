// DirectoryLock: that a directory is one program's own for a while, such as a job's for its
// results.
#pragma once

#include <string>

namespace poseidon {

// Held until it is destroyed or the process ends, however it ends. Programs on other machines see
// it where the directory's file system has locks in common.
//
//   const DirectoryLock lock("out/lenet", "the job \"lenet\"");
class DirectoryLock {
 public:
  // `directory` exists. `owner` says who holds it, for whoever comes later. Throws ConfigError if
  // somebody holds it, with who that is, and Error if the directory can't be written to.
  DirectoryLock(const std::string& directory, const std::string& owner);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace poseidon

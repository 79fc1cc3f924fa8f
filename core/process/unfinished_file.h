// UnfinishedFile: what a program has begun to write under a name that it will not keep, and that
// must not be left behind when a signal ends the program at once.
#pragma once

#include <functional>
#include <string>

namespace poseidon {

// While it lives, RemoveUnfinishedFiles removes the file or directory. Removing it otherwise is its
// owner's. Thread-safe. What has a path of more than 4,095 bytes, and what comes when 64 are at
// work, is left behind.
//
//   int file = -1;
//   UnfinishedFile unfinished([&] {
//     file = open("summary.json.tmp4711", O_CREAT | O_WRONLY, 0644);
//     return std::string("summary.json.tmp4711");
//   });
//   ...
//   if (const int error = unfinished.FinishAs("summary.json")) ...
class UnfinishedFile {
 public:
  // `make` makes it, in a moment, and returns its path. Does not return where a signal has ended
  // the program meanwhile.
  explicit UnfinishedFile(const std::function<std::string()>& make);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  // Gives it its name, as rename() does. Returns 0, or the error's number; then it is unfinished
  // still. Does not return, likewise.
  int FinishAs(const std::string& name);
  // The same where something has the name: that is unfinished from now on, for its owner to remove.
  // At no time has nothing the name. EINVAL and ENOSYS: this file system or this kernel can't.
  int ExchangeWith(const std::string& name);

 private:
  // `flags` are renameat2()'s.
  int Rename(const std::string& name, unsigned flags);

  std::string path_;
  int slot_ = -1;  // -1: it is not known
};

// For a signal handler that ends the process right afterwards: calls only what a handler may.
// Removes what is unfinished: files first, then the directories that are empty by then. Threads
// that begin or finish another one from now on wait for the process's end. What one of them is just
// making or naming is left behind if that takes more than a second, and removing takes as long as
// the disk does.
void RemoveUnfinishedFiles() noexcept;

}  // namespace poseidon

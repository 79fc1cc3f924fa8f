// FileLock: that something is one program's own for a while, such as a directory a job's for its
// results. A file says so to whoever comes later.
#pragma once

#include <string>

namespace poseidon {

// Whether a lock was refused with this error (errno) as the file system has no locks, which some
// network file systems have not. With ENOLCK that may pass: from NFS it also says that the lock
// service does not answer. Pure.
bool HasNoLocks(int error);

// Held until it is destroyed, which removes the file, or the process ends, however it ends.
// Programs on other machines see it where the file system has locks in common. Not thread-safe.
//
//   const FileLock lock("out/lenet/lock", "the job \"lenet\"");
//   if (!lock.holder().empty()) throw ConfigError("out/lenet is in use by " + lock.holder());
class FileLock {
 public:
  // Takes the file at `path`, which is made if it is not there, unless somebody has it. `owner`
  // says who, for whoever comes later. Throws Error if the file can't be written to, ConfigError if
  // it may not.
  FileLock(std::string path, const std::string& owner);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether this has it. False where the file system has no locks.
  bool is_own() const { return descriptor_ >= 0; }
  // Who else has it: the other's `owner`, process and machine. Empty if this has it, and where the
  // file system has no locks, which the log says.
  const std::string& holder() const { return holder_; }
  // Whether that is a process of this machine, and so alive. A file server may keep the lock of a
  // machine that has died for a minute or two.
  bool is_held_here() const;

 private:
  // Whether this has the file now. False too if its last owner has just removed it.
  bool Take();
  void WriteOwner(const std::string& owner);

  std::string path_;
  int descriptor_ = -1;  // of the file if this has it
  std::string holder_;
};

}  // namespace poseidon

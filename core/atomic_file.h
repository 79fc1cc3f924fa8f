// Files that are there whole or not at all.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace poseidon {

// Writes to a temporary name beside `path`, syncs, and renames it to `path`. Whatever happens,
// `path` is either what it was or all of `content`. A symbolic link stays one, and the regular file
// that it leads to is replaced. Throws Error naming the path and the cause (no such directory, disk
// full, ...), ConfigError where writing is forbidden, or a directory, a device, a pipe or a socket
// is there.
void WriteFileAtomically(const std::string& path, std::string_view content);

class UnplacedFile;

// The same in two steps, for files that are of use only together: what may fail for lack of room is
// done when it is made, and what was there is untouched until Place. Removed if it is not placed.
//
//   PreparedFile values("x.caffemodel", net), state("x.solverstate", history);
//   values.Place();
//   state.Place();
class PreparedFile {
 public:
  // Writes the temporary file and syncs it. Throws as above.
  PreparedFile(const std::string& path, std::string_view content);
  PreparedFile(PreparedFile&&) noexcept;
  ~PreparedFile();

  // Renames it to the path, once. Likewise.
  void Place();

 private:
  std::string target_;
  std::unique_ptr<UnplacedFile> file_;
};

// Likewise without the sync, which may take seconds where others use the disk: after a power cut
// the file may be empty. For what nobody who comes after a power cut depends on.
void WriteFileQuickly(const std::string& path, std::string_view content);

// Throws as WriteFileAtomically to `path` would, as far as can be seen without writing there: for
// whoever has hours to go until there is something to write. Nothing is changed.
void CheckCanWrite(const std::string& path);

// Writes a new file that only its owner may read or write (mode 0600), whole or not at all, with
// the sync. False, and nothing is changed, if there is something of that name. Throws as above.
bool WriteNewPrivateFile(const std::string& path, std::string_view content);

// Removes what the functions above had begun to write, to paths that begin with `prefix`, when
// their processes were killed. `alone`: nobody writes there now, so that is all there is of it.
// Otherwise a file is taken for such if this machine has no other process of its number and nobody
// has written to it for ten minutes, since the process may be another machine's. Returns how many;
// where nothing can be removed, 0.
int RemoveAbandonedFiles(const std::string& prefix, bool alone);

}  // namespace poseidon

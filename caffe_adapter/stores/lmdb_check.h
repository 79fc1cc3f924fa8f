// Whether LMDB can read a database file without leaving it.
#pragma once

#include <string>

#include "caffe_adapter/stores/record_store.h"

namespace poseidon {

// LMDB trusts the pages of its file: where a page number, an offset or a size in them is damaged,
// it reads outside the memory map and the process dies. So this walks the tree of the main database
// first, by the layout of LMDB 0.9 (mdb.c, "Page Format"), and throws DataError naming file and
// page for a file shorter than its header says, a page that is not what its parent expects, and an
// entry or a value that does not lie within its page or the file. It reads branch and leaf pages
// only, those that LMDB's own listing is about to read; for Records::kFirst just the way to the
// first record. What is in a value is not looked at. Of a file that can't be read it throws as
// CheckRegularFile does (core/files/regular_file.h).
//
// Files that LMDB refuses by itself (no LMDB at all, another version) pass, so that its words are
// the ones a user gets; so do all on machines whose layout differs (big-endian or 32 bits).
void CheckLmdbPages(const std::string& file, Records records);

}  // namespace poseidon

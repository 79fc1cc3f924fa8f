#include "caffe_adapter/stores/lmdb_check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/files/regular_file.h"

namespace poseidon {
namespace {

// Of LMDB's layout, all in bytes.
constexpr uint64_t kPageHeader = 16;
constexpr uint64_t kPageFlags = 10;  // offsets in a page
constexpr uint64_t kPageLower = 12;
constexpr uint64_t kPageUpper = 14;
constexpr uint64_t kNodeHeader = 8;
constexpr uint64_t kNodeFlags = 4;  // offsets in a node
constexpr uint64_t kNodeKeySize = 6;
constexpr uint64_t kMetaVersion = 4;  // offsets in a meta page, behind its page header
constexpr uint64_t kMetaPageSize = 24;
constexpr uint64_t kMetaMain = 72;  // the main database's record
constexpr uint64_t kMetaLastPage = 120;
constexpr uint64_t kMetaTransaction = 128;
constexpr uint64_t kMetaEnd = 136;
constexpr uint64_t kDatabaseFlags = 4;  // offsets in a database's record
constexpr uint64_t kDatabaseDepth = 6;
constexpr uint64_t kDatabaseRoot = 40;

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kVersion = 1;
constexpr uint16_t kBranch = 0x01;
constexpr uint16_t kLeaf = 0x02;
constexpr uint16_t kBigData = 0x01;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr uint64_t kMaxDepth = 32;  // of LMDB's cursors

// A file as memory.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    CheckRegularFile(path, ExitCode::kDataError);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || fstat(file, &status) != 0) {
      const int error = errno;
      if (file >= 0) close(file);
      ThrowReadError(path, error, ExitCode::kDataError);
    }
    size_ = static_cast<uint64_t>(status.st_size);
    if (size_ > 0) data_ = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    const int error = errno;
    close(file);
    if (data_ == MAP_FAILED) ThrowReadError(path, error, ExitCode::kDataError);
  }
  ~MappedFile() {
    if (data_) munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  uint64_t size() const { return size_; }
  template <typename T>
  T At(uint64_t offset) const {
    T value;
    std::memcpy(&value, static_cast<const char*>(data_) + offset, sizeof value);
    return value;
  }

 private:
  void* data_ = nullptr;
  uint64_t size_ = 0;
};

class PageChecker {
 public:
  explicit PageChecker(const std::string& path) : path_(path), file_(path) {}

  void Run(Records records) {
    if (!ReadHeader()) return;
    const uint64_t expected = pages_ * page_size_;
    if (pages_ == 0 || pages_ > UINT64_MAX / page_size_) Fail("its header has no sane page count");
    if (file_.size() < expected) {
      Fail("truncated: its header says " + std::to_string(expected) + " bytes, the file has " +
           std::to_string(file_.size()));
    }
    const uint64_t database = meta_ + kMetaMain;
    const uint64_t root = file_.At<uint64_t>(database + kDatabaseRoot);
    const uint64_t depth = file_.At<uint16_t>(database + kDatabaseDepth);
    if (root == kNoPage) return;  // no records
    if (file_.At<uint16_t>(database + kDatabaseFlags) != 0) {
      Fail("is damaged or no database of Caffe's: keys with several values");
    }
    if (depth < 1 || depth > kMaxDepth) Fail("its header has depth " + std::to_string(depth));
    seen_.resize(pages_);
    CheckPage(root, depth, records == Records::kFirst);
  }

 private:
  [[noreturn]] void Fail(const std::string& message) const {
    throw DataError(path_ + ": " + message + "; make or copy it anew");
  }
  [[noreturn]] void FailPage(uint64_t page, const std::string& message) const {
    Fail("page " + std::to_string(page) + " is damaged: " + message);
  }

  // Of the two meta pages, the one of the later transaction, as LMDB does. False if it will refuse
  // them itself.
  bool ReadHeader() {
    if (file_.size() < kPageHeader + kMetaEnd || !HasMagic(kPageHeader)) return false;
    page_size_ = file_.At<uint32_t>(kPageHeader + kMetaPageSize);
    // A page's offsets are of 16 bits.
    if (!std::has_single_bit(page_size_) || page_size_ < 512 || page_size_ > 32768) {
      Fail("its header has a page size of " + std::to_string(page_size_));
    }
    const uint64_t second = page_size_ + kPageHeader;
    if (file_.size() < second + kMetaEnd || !HasMagic(second)) return false;
    if (file_.At<uint32_t>(second + kMetaPageSize) != page_size_) {
      Fail("its two headers have different page sizes");
    }
    const auto transaction = [&](uint64_t meta) {
      return file_.At<uint64_t>(meta + kMetaTransaction);
    };
    meta_ = transaction(kPageHeader) < transaction(second) ? second : kPageHeader;
    pages_ = file_.At<uint64_t>(meta_ + kMetaLastPage) + 1;
    return true;
  }

  bool HasMagic(uint64_t meta) const {
    return file_.At<uint32_t>(meta) == kMagic &&
           file_.At<uint32_t>(meta + kMetaVersion) == kVersion;
  }

  // A page `height` levels above none: 1 for leaves.
  void CheckPage(uint64_t page, uint64_t height, bool first_only) {
    if (page >= pages_) FailPage(page, "there are only " + std::to_string(pages_) + " pages");
    if (seen_[page]) FailPage(page, "it is in the tree twice");
    seen_[page] = true;
    const uint64_t begin = page * page_size_;
    const auto flags = file_.At<uint16_t>(begin + kPageFlags);
    const uint64_t lower = file_.At<uint16_t>(begin + kPageLower);
    const uint64_t upper = file_.At<uint16_t>(begin + kPageUpper);
    if (file_.At<uint64_t>(begin) != page || flags != (height == 1 ? kLeaf : kBranch)) {
      FailPage(page, "it is no such page of the tree as its parent expects");
    }
    if (lower < kPageHeader || lower > upper || upper > page_size_ || lower % 2 != 0) {
      FailPage(page, "its entries would end at " + std::to_string(lower));
    }
    const uint64_t entries = (lower - kPageHeader) / 2;
    if (entries < (height == 1 ? 1u : 2u)) FailPage(page, "it has too few entries");
    for (uint64_t i = 0; i < (first_only ? 1 : entries); ++i) {
      CheckNode(page, file_.At<uint16_t>(begin + kPageHeader + 2 * i), upper, height, first_only);
    }
  }

  void CheckNode(uint64_t page, uint64_t offset, uint64_t upper, uint64_t height, bool first_only) {
    if (offset < upper || offset + kNodeHeader > page_size_) FailPage(page, "an entry is outside");
    const uint64_t node = page * page_size_ + offset;
    const uint64_t low = file_.At<uint32_t>(node);  // a value's size, or bits of a page number
    const uint64_t flags = file_.At<uint16_t>(node + kNodeFlags);
    const uint64_t key_end = offset + kNodeHeader + file_.At<uint16_t>(node + kNodeKeySize);
    if (key_end > page_size_) FailPage(page, "a key is outside");
    if (height > 1) {
      CheckPage(low | flags << 32, height - 1, first_only);
    } else if (flags == 0) {
      if (key_end + low > page_size_) FailPage(page, "a value is outside");
    } else if (flags == kBigData) {
      if (key_end + sizeof(uint64_t) > page_size_) FailPage(page, "a value's place is outside");
      const auto first = file_.At<uint64_t>(page * page_size_ + key_end);
      const uint64_t length = (kPageHeader + low + page_size_ - 1) / page_size_;
      if (first >= pages_ || length > pages_ - first) FailPage(page, "a value is beyond the end");
    } else {
      FailPage(page, "an entry is of an unknown kind");
    }
  }

  std::string path_;
  MappedFile file_;
  uint64_t page_size_ = 0;
  uint64_t pages_ = 0;
  uint64_t meta_ = 0;  // where the meta page's content begins
  std::vector<bool> seen_;
};

}  // namespace

void CheckLmdbPages(const std::string& file, Records records) {
  if constexpr (std::endian::native == std::endian::little && sizeof(void*) == 8) {
    PageChecker(file).Run(records);
  }
}

}  // namespace poseidon

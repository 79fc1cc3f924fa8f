#include "caffe_adapter/data/window_list.h"

#include <charconv>
#include <string_view>

#include "caffe_adapter/data/fingerprint.h"
#include "caffe_adapter/files/file.h"
#include "core/error.h"

namespace poseidon {
namespace {

// The words of a text, as Caffe reads them: line ends are blanks like others.
class Words {
 public:
  Words(const std::string& path, std::string_view text) : path_(path), text_(text) { Skip(); }

  bool done() const { return at_ == text_.size(); }
  int64_t line() const { return line_; }

  std::string_view Next(const char* expected) {
    if (done()) Fail("the list ends", expected);
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(kBlanks, begin), text_.size());
    const std::string_view word = text_.substr(begin, at_ - begin);
    word_line_ = line_;
    Skip();
    return word;
  }

  template <typename Number>
  Number NextNumber(Number least, Number most, const char* expected) {
    const std::string_view word = Next(expected);
    Number number = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = error == std::errc() && stop == word.data() + word.size();
    if (!whole || !(number >= least && number <= most)) {
      FailAtWord("\"" + std::string(word) + "\"", expected);
    }
    return number;
  }

  // At the word that was read last.
  [[noreturn]] void FailAtWord(const std::string& found, const std::string& expected) const {
    throw DataError(path_ + ":" + std::to_string(word_line_) + ": " + found + "; expected " +
                    expected);
  }

 private:
  static constexpr std::string_view kBlanks = " \t\r\n";

  void Skip() {
    for (; !done() && kBlanks.find(text_[at_]) != std::string_view::npos; ++at_) {
      line_ += text_[at_] == '\n' ? 1 : 0;
    }
  }

  [[noreturn]] void Fail(const std::string& found, const std::string& expected) {
    word_line_ = line_;
    FailAtWord(found, expected);
  }

  const std::string& path_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  int64_t word_line_ = 1;
};

constexpr int32_t kMostInt = 0x7fffffff;
// Far beyond any image's extent, and a float holds each whole number up to it.
constexpr int32_t kMostCoordinate = 1 << 24;

struct OverlappingWindow {
  Window window;
  float overlap;
};

OverlappingWindow ReadWindow(Words& words) {
  constexpr const char* kExpected =
      "a window: class, overlap, left, top, right and bottom, whole numbers but for the overlap";
  OverlappingWindow read{};
  read.window.line = words.line();
  read.window.label = words.NextNumber<int32_t>(-kMostInt, kMostInt, kExpected);
  read.overlap = words.NextNumber<float>(-1e30F, 1e30F, kExpected);
  for (int32_t* const value :
       {&read.window.left, &read.window.top, &read.window.right, &read.window.bottom}) {
    *value = words.NextNumber<int32_t>(-kMostCoordinate, kMostCoordinate, kExpected);
  }
  if (read.window.right < read.window.left || read.window.bottom < read.window.top) {
    words.FailAtWord("the window has no pixel", "left, top, right and bottom in this order");
  }
  return read;
}

}  // namespace

WindowList ReadWindowList(const std::string& path, float foreground_threshold,
                          float background_threshold) {
  const std::string text = ReadText(path);
  WindowList list;
  list.fingerprint = ExtendFingerprint(0, text);
  Words words(path, text);
  if (words.done()) throw DataError(path + ": lists no images");
  while (!words.done()) {
    const std::string_view mark = words.Next("#");
    if (mark != "#") {
      words.FailAtWord("\"" + std::string(mark) + "\"", "# and an image's number");
    }
    words.NextNumber<int32_t>(0, kMostInt, "an image's number");
    list.images.emplace_back(words.Next("an image's path"));
    words.NextNumber<int32_t>(3, 3, "3, for images are read in color");
    words.NextNumber<int32_t>(1, kMostCoordinate, "the image's height");
    words.NextNumber<int32_t>(1, kMostCoordinate, "the image's width");
    const auto windows = words.NextNumber<int32_t>(0, kMostInt, "the number of windows");
    for (int32_t i = 0; i < windows; ++i) {
      OverlappingWindow read = ReadWindow(words);
      read.window.image = static_cast<int32_t>(list.images.size()) - 1;
      if (read.overlap >= foreground_threshold) {
        if (read.window.label < 1) {
          words.FailAtWord(
              "a window of the foreground has class " + std::to_string(read.window.label),
              "at least 1, for 0 is the background");
        }
        list.foreground.push_back(read.window);
      } else if (read.overlap < background_threshold) {
        read.window.label = 0;
        list.background.push_back(read.window);
      }
    }
  }
  return list;
}

}  // namespace poseidon

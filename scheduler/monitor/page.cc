#include "scheduler/monitor/page.h"

#include "scheduler/monitor/page_files.h"

namespace poseidon {
namespace {

void Replace(const std::string& mark, const std::string& text, std::string& page) {
  page.replace(page.find(mark), mark.size(), text);
}

// Nothing in it ends the script that it stands in.
std::string WithoutTags(const std::string& json) {
  std::string safe;
  for (const char character : json) {
    if (character == '<') {
      safe += "\\u003c";
    } else {
      safe += character;
    }
  }
  return safe;
}

std::string PageWith(const std::string& status) {
  std::string page = kPageHtml;
  // The last one first: what is filled in may have marks of its own.
  Replace("@SCRIPT@", kPageScript, page);
  Replace("@STATUS@", status, page);
  Replace("@STYLE@", kPageStyle, page);
  return page;
}

}  // namespace

std::string LivePage() { return PageWith(""); }

std::string StoredPage(const std::string& status_json) {
  return PageWith(WithoutTags(status_json));
}

}  // namespace poseidon

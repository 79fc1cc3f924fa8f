// The texts of page/, which the build puts into the program (cmake/EmbedText.cmake).
#pragma once

namespace poseidon {

extern const char* const kPageHtml;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace poseidon

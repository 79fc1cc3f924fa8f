#include "core/http/access.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/net/ip_networks.h"

namespace poseidon {
namespace {

constexpr size_t kShortestToken = 16;
constexpr size_t kLongestToken = 256;

// Takes as long whatever the first difference is, so that nobody finds a token letter by letter.
bool SameToken(std::string_view given, std::string_view token) {
  if (given.size() != token.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < token.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(token[i]);
  }
  return difference == 0;
}

// Of a header Host: "[::1]:80" is "[::1]".
std::string WithoutPort(const std::string& host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

// The cookie's value in "a=b; name=value"; empty if there is none.
std::string CookieValue(std::string_view cookies, const std::string& name) {
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    std::string_view cookie = cookies.substr(0, end);
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
    while (!cookie.empty() && cookie.front() == ' ') cookie.remove_prefix(1);
    if (cookie.substr(0, name.size() + 1) == name + "=") {
      return std::string(cookie.substr(name.size() + 1));
    }
  }
  return "";
}

// "a/b" of "a%2Fb"; what is no such escape stays.
std::string Unescaped(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const char* const digits = text.data() + 1;
    uint8_t byte = 0;
    const bool escaped = text.size() > 2 && text.front() == '%' &&
                         std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    plain += escaped ? static_cast<char>(byte) : text.front();
    text.remove_prefix(escaped ? 3 : 1);
  }
  return plain;
}

// The value of "/path?a=b&token=value"; empty if there is none. Not as forms write it, in which +
// is a blank and = parts: tokens have both, and a browser sends them as they are entered.
std::string QueryToken(std::string_view target) {
  constexpr std::string_view kName = "token=";
  size_t before = target.find('?');
  while (before != std::string_view::npos) {
    target.remove_prefix(before + 1);
    before = target.find('&');
    if (target.starts_with(kName)) {
      return Unescaped(target.substr(0, before).substr(kName.size()));
    }
  }
  return "";
}

bool IsTokenCharacter(char character) {
  constexpr std::string_view kOthers = "-._~+/=";
  return std::isalnum(static_cast<unsigned char>(character)) != 0 ||
         kOthers.find(character) != std::string_view::npos;
}

}  // namespace

Access::Access(std::string token, int port)
    : token_(std::move(token)), cookie_name_("poseidon_" + std::to_string(port)) {}

Access::Answer Access::Check(const Credentials& credentials) const {
  if (token_.empty()) {
    return IsLoopbackName(WithoutPort(credentials.host)) ? Answer::kAllowed : Answer::kForeignHost;
  }
  const bool knows = SameToken(credentials.authorization, "Bearer " + token_) ||
                     SameToken(QueryToken(credentials.target), token_) ||
                     SameToken(CookieValue(credentials.cookie, cookie_name_), token_);
  return knows ? Answer::kAllowed : Answer::kTokenNeeded;
}

std::string Access::Cookie() const {
  if (token_.empty()) return "";
  return cookie_name_ + "=" + token_ + "; HttpOnly; SameSite=Strict; Path=/";
}

std::string ReadToken(const std::string& path) {
  const std::string text = ReadRegularFile(path, ExitCode::kConfigError);
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw ConfigError("monitor.token_file, " + path +
                      ", can be read by others than its owner; run chmod 600 " + path);
  }
  std::string token = text.substr(0, text.find_first_of("\r\n"));
  if (token.size() < kShortestToken || token.size() > kLongestToken ||
      !std::ranges::all_of(token, IsTokenCharacter)) {
    throw ConfigError("monitor.token_file, " + path +
                      ": its first line must be 16 to 256 letters, digits or -._~+/=; make one "
                      "with: openssl rand -hex 32");
  }
  return token;
}

}  // namespace poseidon

#include "cli/help.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <sstream>

namespace poseidon {
namespace {

constexpr size_t kColumns = 80;  // of a terminal that nobody has widened

std::string Pad(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

std::string Summaries(const std::string& prefix) {
  size_t width = 0;
  for (const Verb& verb : Verbs()) width = std::max(width, verb.name.size());
  std::string text;
  for (const Verb& verb : Verbs()) {
    if (!verb.name.starts_with(prefix)) continue;
    text += "  " + Pad(verb.name, width + 2) + verb.summary + "\n";
  }
  return text;
}

// "workers=N", "replace", and "noshuffle" for a switch that is on by default.
std::string FlagForm(const VerbFlag& flag) {
  if (!flag.value.empty()) return flag.name + "=" + flag.value;
  const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(flag.name.c_str());
  return (info.default_value == "true" ? "no" : "") + flag.name;
}

std::string FlagText(const VerbFlag& flag) {
  const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(flag.name.c_str());
  std::string text = flag.text.empty() ? info.description : flag.text;
  // A default that only stands for "not given" says nothing, and a text may have said it itself.
  const std::string& value = info.default_value;
  const bool said = text.find("if not given") != std::string::npos;
  if (!flag.value.empty() && !value.empty() && value != "0" && !said) {
    text += " Default: " + value + ".";
  }
  return text;
}

}  // namespace

std::string Wrap(const std::string& text, size_t indent, size_t start) {
  std::string lines;
  size_t column = start;
  if (start == 0) {
    lines = std::string(indent, ' ');
    column = indent;
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool first = column == indent;
    if (!first && column + 1 + word.size() > kColumns) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines + "\n";
}

std::string ProgramHelp() {
  return "poseidon: train one deep network on many machines\n\n"
         "  poseidon VERB [flags]\n\n" +
         Summaries("") +
         "\n`poseidon VERB --help` tells more. The first thing to try is to train LeNet on\n"
         "handwritten digits: tools/demo in the repository's root, or, where Poseidon is\n"
         "installed, poseidon_demo in any directory.\n\n"
         "The daemons that `poseidon run` starts (poseidon_scheduler, poseidon_server,\n"
         "poseidon_worker) can be started by hand on several machines: docs/running.md.\n";
}

std::string GroupHelp(const std::string& group) {
  return "poseidon " + group + ": one of\n\n" + Summaries(group + " ") + "\n`poseidon " + group +
         " NAME --help` tells more.\n";
}

std::string VerbHelp(const Verb& verb) {
  std::string text = "poseidon " + verb.name + ": " + verb.summary + "\n\n  poseidon " +
                     verb.usage + "\n\n" + Wrap(verb.text, 0) + "\nFlags\n";
  size_t width = 0;
  std::vector<std::string> names;
  for (const VerbFlag& flag : verb.flags) {
    names.push_back("  --" + FlagForm(flag));
    width = std::max(width, names.back().size() + 2);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    text += Pad(names[i], width) + Wrap(FlagText(verb.flags[i]), width, width);
  }
  return text + "\nExample\n\n  " + verb.example + "\n";
}

}  // namespace poseidon

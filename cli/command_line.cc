#include "cli/command_line.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/help.h"
#include "cli/verbs.h"
#include "core/process/build_identity.h"
#include "core/text/nearest.h"

namespace poseidon {
namespace {

using Words = std::vector<std::string>;

bool AsksForHelp(const std::string& word) {
  return word == "--help" || word == "-h" || word == "-help" || word == "help";
}

std::string FirstWord(const std::string& text) { return text.substr(0, text.find(' ')); }

const Verb* FindVerb(const std::string& name) {
  const auto verb = std::find_if(Verbs().begin(), Verbs().end(),
                                 [&name](const Verb& candidate) { return candidate.name == name; });
  return verb == Verbs().end() ? nullptr : &*verb;
}

// Whether verbs of two words start with this one.
bool IsGroup(const std::string& word) {
  return std::any_of(Verbs().begin(), Verbs().end(),
                     [&word](const Verb& verb) { return verb.name.starts_with(word + " "); });
}

[[noreturn]] void RefuseVerb(const std::string& name) {
  // Within a group its verbs are the candidates, else first words.
  const bool in_group = name.find(' ') != std::string::npos;
  Words names;
  for (const Verb& verb : Verbs()) {
    if (!in_group) {
      names.push_back(FirstWord(verb.name));
    } else if (verb.name.starts_with(FirstWord(name) + " ")) {
      names.push_back(verb.name);
    }
  }
  const auto nearest = Nearest(name, names);
  throw ConfigError(
      "there is no verb \"" + name + "\"; " +
      (nearest ? "did you mean \"" + *nearest + "\"?" : "`poseidon --help` lists them"));
}

// A flag on the command line: its name with underscores, and its value if it stands behind a '='.
struct FlagWord {
  std::string name;
  std::optional<std::string> value;
};

FlagWord SplitFlag(const std::string& word) {
  FlagWord flag;
  const size_t begin = word.find_first_not_of('-');
  const size_t equals = word.find('=');
  flag.name = begin == std::string::npos ? "" : word.substr(begin, equals - begin);
  std::replace(flag.name.begin(), flag.name.end(), '-', '_');
  if (equals != std::string::npos) flag.value = word.substr(equals + 1);
  return flag;
}

const VerbFlag* FindFlag(const Verb& verb, const std::string& name) {
  for (const VerbFlag& flag : verb.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

[[noreturn]] void RefuseFlag(const Verb& verb, const std::string& name) {
  std::string message = "`poseidon " + verb.name + "` has no flag --" + name;
  Words names;
  for (const VerbFlag& flag : verb.flags) names.push_back(flag.name);
  const auto nearest = Nearest(name, names);
  if (nearest) throw ConfigError(message + "; did you mean --" + *nearest + "?");
  throw ConfigError(message + "; `poseidon " + verb.name + " --help` lists them");
}

void SetFlag(const std::string& name, const std::string& value) {
  if (!gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) return;
  const gflags::CommandLineFlagInfo info = gflags::GetCommandLineFlagInfoOrDie(name.c_str());
  throw ConfigError("--" + name + " can't be \"" + value + "\"; it is of type " + info.type);
}

// A word without dashes, which the verb does not take, with the place where it was meant to be.
[[noreturn]] void RefuseWord(const Verb& verb, const std::string& word) {
  std::string advice;
  if (word.ends_with(".prototxt") && FindFlag(verb, "config") != nullptr) {
    advice = "; did you mean --config=" + word + "?";
  } else if (verb.run_program != nullptr) {
    advice = "; a program and its arguments stand behind \"--\": `poseidon " + verb.name +
             (verb.flags.empty() ? "" : " [flags]") + " -- " + word + " ...`";
  }
  throw ConfigError("`poseidon " + verb.name + "` takes flags only, but there is \"" + word + "\"" +
                    advice);
}

// Sets the flags that `words` are; the verb says whether one may stand alone.
void SetFlags(const Verb& verb, const Words& words) {
  bool word_free = !verb.word_flag.empty();
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("-")) {
      if (std::exchange(word_free, false)) {
        SetFlag(verb.word_flag, words[i]);
        continue;
      }
      if (!verb.word_flag.empty()) {
        throw ConfigError("`poseidon " + verb.name + "` takes one file, but there is also \"" +
                          words[i] + "\"");
      }
      RefuseWord(verb, words[i]);
    }
    const FlagWord word = SplitFlag(words[i]);
    const VerbFlag* flag = FindFlag(verb, word.name);
    const bool negated = !flag && word.name.starts_with("no") && !word.value;
    if (negated) flag = FindFlag(verb, word.name.substr(2));
    if (!flag || (negated && !flag->value.empty())) RefuseFlag(verb, word.name);
    if (negated) {
      SetFlag(flag->name, "false");
    } else if (word.value) {
      SetFlag(flag->name, *word.value);
    } else if (flag->value.empty()) {
      SetFlag(flag->name, "true");
    } else if (i + 1 < words.size()) {
      SetFlag(flag->name, words[++i]);
    } else {
      throw ConfigError("--" + flag->name + " has no value; write --" + flag->name + "=" +
                        flag->value);
    }
  }
}

ExitCode RunVerbOrHelp(const Verb& verb, const Words& all, std::ostream& out) {
  // Behind "--" stands a program with flags of its own.
  const auto end = std::find(all.begin(), all.end(), "--");
  const Words words(all.begin(), end);
  if (std::any_of(words.begin(), words.end(), AsksForHelp)) {
    out << VerbHelp(verb);
    return ExitCode::kSuccess;
  }
  SetFlags(verb, words);
  if (end == all.end()) return verb.run();
  if (verb.run_program == nullptr) {
    throw ConfigError("`poseidon " + verb.name + "` runs no program, but there is \"--\"");
  }
  const Words program(end + 1, all.end());
  if (program.empty()) throw ConfigError("there is no program behind \"--\"");
  return verb.run_program(program);
}

}  // namespace

ExitCode RunCommand(const std::vector<std::string>& arguments, std::ostream& out) {
  Words words = arguments;
  // `poseidon help plan` is `poseidon plan --help`.
  if (words.size() > 1 && AsksForHelp(words[0])) {
    words.erase(words.begin());
    words.push_back("--help");
  }
  if (words.empty() || AsksForHelp(words[0])) {
    out << ProgramHelp();
    return ExitCode::kSuccess;
  }
  if (words[0] == "--version") {
    out << "poseidon " << BuildIdentity() << "\n";
    return ExitCode::kSuccess;
  }
  if (words[0].starts_with("-")) {
    throw ConfigError("the verb comes first: `poseidon VERB " + words[0] +
                      "`; `poseidon --help` lists them");
  }
  size_t used = 1;
  std::string name = words[0];
  if (IsGroup(name)) {
    if (words.size() == 1 || AsksForHelp(words[1])) {
      out << GroupHelp(name);
      return ExitCode::kSuccess;
    }
    name += " " + words[used++];
  }
  const Verb* verb = FindVerb(name);
  if (!verb) RefuseVerb(name);
  return RunVerbOrHelp(*verb, {words.begin() + static_cast<std::ptrdiff_t>(used), words.end()},
                       out);
}

}  // namespace poseidon

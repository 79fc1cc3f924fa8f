#include "cli/jobs/keys.h"

#include <gflags/gflags.h>
#include <google/protobuf/text_format.h>

#include <iostream>
#include <string>

#include "core/files/directories.h"
#include "proto/job.pb.h"
#include "transport/security/job_key.h"

DECLARE_string(out);

namespace poseidon {

ExitCode KeysVerb() {
  if (FLAGS_out.empty()) {
    throw ConfigError("--out is missing; name the directory that the key is to be written to");
  }
  MakeDirectories(FLAGS_out);
  const std::string path = FLAGS_out + "/job.key";
  JobKey::Make().Write(path);
  Security security;
  security.set_mode(Security::CURVE);
  security.set_key_file(path);
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  printer.PrintToString(security, &text);
  std::cout << path
            << " is the key of a job, readable by you alone; copy it to all machines of the "
            << "job (scp -p), and write into the job config:\n"
            << "  security { " << text << "}" << std::endl;
  return ExitCode::kSuccess;
}

}  // namespace poseidon

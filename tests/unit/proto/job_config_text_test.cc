// Text that nobody thought of, in each field of a job config that takes text: taken or refused with
// its place, and never anything else.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <functional>
#include <iterator>

#include "core/error.h"
#include "proto/job_config.h"

namespace poseidon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Calls `visit` for a job whose only text is `text`, in one field after the other. Messages in
// lists have one element.
void ForEachText(Message& message, const std::string& text,
                 const std::function<void(const std::string& field)>& visit) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      if (field.is_repeated()) {
        reflection.AddString(&message, &field, text);
      } else {
        reflection.SetString(&message, &field, text);
      }
      visit(field.full_name());
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      ForEachText(field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                      : *reflection.MutableMessage(&message, &field),
                  text, visit);
    }
    reflection.ClearField(&message, &field);
  }
}

TEST(JobConfigText, IsTakenOrRefusedWithItsPlace) {
  constexpr size_t kLongerThanAnyPath = 5000;
  const std::string texts[] = {"",
                               " ",
                               ".",
                               "/",
                               "\n",
                               "\xff",
                               "a/../../..",
                               "%s%n",
                               "/dev/null",
                               std::string(1, '\0'),
                               "-1",
                               "99999999999999999999",
                               std::string(kLongerThanAnyPath, 'x')};
  int fields = 0;
  for (const std::string& text : texts) {
    Job job;
    job.mutable_training();
    ForEachText(job, text, [&](const std::string& field) {
      ++fields;
      std::string config;
      ASSERT_TRUE(google::protobuf::TextFormat::PrintToString(job, &config));
      try {
        ParseJobConfig(config, "job.prototxt");
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("job.prototxt:")) << field << ": " << text;
      } catch (const std::exception& error) {
        ADD_FAILURE() << field << " of \"" << text << "\": " << error.what();
      }
    });
  }
  // A job has over 20 such fields.
  EXPECT_GT(fields, 20 * std::ssize(texts));
}

}  // namespace
}  // namespace poseidon

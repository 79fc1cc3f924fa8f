#include "core/paths/links.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

TEST(BehindLinksTest, WhatALinkLeadsToNeedNotBeThere) {
  const TemporaryDirectory directory;
  const std::string first = directory.Path("first");
  EXPECT_EQ(BehindLinks(first), first);
  std::filesystem::create_symlink("second", first);
  EXPECT_EQ(BehindLinks(first), directory.Path("second"));
  std::filesystem::create_symlink("/disk/database/", directory.Path("second"));
  EXPECT_EQ(BehindLinks(first), "/disk/database/") << "it is to be a directory";
  std::filesystem::remove(first);
  std::filesystem::create_symlink("third/", first);
  EXPECT_EQ(BehindLinks(first), directory.Path("third/"));
  std::filesystem::create_symlink("file", directory.Path("third"));
  EXPECT_EQ(BehindLinks(first), directory.Path("file/"));
}

TEST(BehindLinksTest, LinksThatLeadToEachOtherLeadNowhere) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("second", directory.Path("first"));
  std::filesystem::create_symlink("first", directory.Path("second"));
  EXPECT_EQ(BehindLinks(directory.Path("first")), std::nullopt);
}

}  // namespace
}  // namespace poseidon

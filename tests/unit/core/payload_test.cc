#include "core/payload.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace poseidon {
namespace {

TEST(Payload, IsEmptyByDefault) {
  const Payload payload;
  EXPECT_EQ(payload.size(), 0);
  EXPECT_FALSE(payload.phantom());
  EXPECT_TRUE(payload.bytes().empty());
  EXPECT_EQ(payload.owner(), nullptr);
  EXPECT_EQ(payload.ToString(), "");
}

TEST(Payload, ViewsWithoutCopyingAndKeepsTheOwnerAlive) {
  auto owner = std::make_shared<const std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::weak_ptr<const std::vector<float>> alive = owner;
  const void* data = owner->data();
  Payload payload = Payload::View(std::span(*owner), owner);
  owner.reset();
  EXPECT_EQ(payload.size(), 3 * sizeof(float));
  EXPECT_EQ(payload.bytes().data(), data);

  Payload copy = payload;
  payload = Payload();
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(copy.bytes().data(), data);
  std::thread([last = std::move(copy)] {}).join();
  EXPECT_TRUE(alive.expired());
}

TEST(Payload, ViewsAPartOfItsOwner) {
  const auto owner = std::make_shared<const std::string>("header|body");
  const Payload body = Payload::View(std::as_bytes(std::span(*owner)).subspan(7), owner);
  EXPECT_EQ(body.ToString(), "body");
  EXPECT_EQ(body.owner(), owner);
}

TEST(Payload, FromStringHoldsAnyBytes) {
  // Shorter than a string's inline buffer, where a move changes the address of the characters.
  for (const std::string& text : {std::string(), std::string("a\0b", 3), std::string(100, 'x')}) {
    const Payload payload = Payload::FromString(text);
    EXPECT_EQ(payload.size(), text.size());
    EXPECT_EQ(payload.ToString(), text);
    EXPECT_FALSE(payload.phantom());
  }
}

TEST(Payload, PhantomHasASizeAndNoBytes) {
  const Payload payload = Payload::Phantom(size_t{1} << 40);
  EXPECT_EQ(payload.size(), size_t{1} << 40);
  EXPECT_TRUE(payload.phantom());
  EXPECT_TRUE(payload.bytes().empty());
  EXPECT_EQ(payload.owner(), nullptr);
  EXPECT_FALSE(Payload::Phantom(0).phantom());
}

}  // namespace
}  // namespace poseidon

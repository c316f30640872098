// Claims about the first words of two ranks.
#include "tessera/cluster/tls_wire/greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cluster {
namespace {

using testing::HasSubstr;

const std::string kBinding(32, 'b');

WirePlace place() {
  return {.job_id = "a job",
          .generation = 7,
          .size = 4,
          .channel = 0,
          .secret = comm::Secret(std::string(32, 's'), "the test")};
}

std::string refusal(const WirePlace& of_sender, int from, int to, const std::string& binding = kBinding) {
  const GreetingCheck check = check_greeting(place(), 0, kBinding, print_greeting(of_sender, from, to, binding));
  EXPECT_EQ(check.from, -1);
  return check.reason;
}

TEST(Greeting, TellsWhoItIs) {
  const std::string text = print_greeting(place(), 3, 0, kBinding);
  EXPECT_EQ(text.size(), kGreetingBytes);
  const GreetingCheck check = check_greeting(place(), 0, kBinding, text);
  EXPECT_EQ(check.from, 3);
  EXPECT_EQ(check.reason, "");
}

TEST(Greeting, WhatDiffersIsNamed) {
  WirePlace other = place();
  other.generation = 6;
  EXPECT_EQ(refusal(other, 3, 0), "it is of generation 6, not 7");
  other = place();
  other.job_id = "another";
  EXPECT_EQ(refusal(other, 3, 0), "it is of another job");
  other = place();
  other.size = 5;
  EXPECT_EQ(refusal(other, 3, 0), "it is of a job of 5 ranks, not 4");
  other = place();
  other.channel = 1;
  EXPECT_EQ(refusal(other, 3, 0), "it says that it is rank 3 and seeks rank 0, channel 1");
  other = place();
  other.secret = comm::Secret(std::string(32, 't'), "the test");
  EXPECT_EQ(refusal(other, 3, 0), "it is of another job");
  EXPECT_EQ(refusal(place(), 3, 1), "it says that it is rank 3 and seeks rank 1, channel 0");
  EXPECT_EQ(refusal(place(), 4, 0), "it says that it is rank 4 and seeks rank 0, channel 0");
  EXPECT_EQ(refusal(place(), 0, 0), "it says that it is rank 0 and seeks rank 0, channel 0");
}

TEST(Greeting, ProvesNothingOnAnotherConnection) {
  EXPECT_EQ(refusal(place(), 3, 0, std::string(32, 'c')), "it does not prove who it is");
}

TEST(Greeting, OneThatIsReflectedIsNoAnswer) {
  const std::string said = print_greeting(place(), 0, 3, kBinding);
  EXPECT_THAT(check_greeting(place(), 0, kBinding, said).reason, HasSubstr("it says that it is rank 0"));
}

TEST(Greeting, EveryChangedBitIsFound) {
  const std::string text = print_greeting(place(), 3, 0, kBinding);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(check_greeting(place(), 0, kBinding, changed).from, -1) << bit;
  }
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(check_greeting(place(), 0, kBinding, text.substr(0, length)).from, -1) << length;
  }
  EXPECT_EQ(check_greeting(place(), 0, kBinding, text + "x").from, -1);
}

}  // namespace
}  // namespace tessera::cluster

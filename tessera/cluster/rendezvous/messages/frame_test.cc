// Claims about frames and messages: what is printed comes back, whatever else arrives is refused before it is believed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/cluster/rendezvous/membership/natural_order.h"
#include "tessera/cluster/rendezvous/messages/message_examples.h"
#include "tessera/cluster/rendezvous/messages/messages.h"

namespace tessera::cluster::rendezvous {
namespace {

Sender sender_of(const Message& message) { return find_rules(static_cast<uint8_t>(type_of(message)))->sender; }

// What arrives, in pieces of so many bytes.
std::vector<RawFrame> decode(std::string_view bytes, Sender from, size_t piece, std::string* error = nullptr) {
  FrameDecoder decoder(from);
  std::vector<RawFrame> frames;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    decoder.add(bytes.substr(at, piece));
    while (auto frame = decoder.next()) frames.push_back(*frame);
  }
  if (error != nullptr) *error = decoder.error().value_or(FrameError{}).what;
  return frames;
}

std::string error_of(std::string_view bytes, Sender from = Sender::kPeer) {
  std::string error;
  decode(bytes, from, 1, &error);
  return error;
}

std::string header(uint8_t type, uint32_t length) {
  std::string bytes = {'T', 'R', static_cast<char>(kProtocolVersion), static_cast<char>(type)};
  for (size_t i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xFFU));
  return bytes + std::string(8, '\0');
}

TEST(Frame, F69_EachTypeComesBackWithItsGenerationSplitAtEveryByte) {
  EXPECT_EQ(message_examples().size(), std::variant_size_v<Message>);
  for (const Message& message : message_examples()) {
    const std::string bytes = print_message(message, 0x0102030405060708);
    for (size_t cut = 1; cut <= bytes.size(); ++cut) {
      const auto frames = decode(bytes, sender_of(message), cut);
      ASSERT_EQ(frames.size(), 1U) << message.index();
      EXPECT_EQ(frames[0].generation, 0x0102030405060708U);
      FrameError error;
      const auto parsed = parse_message(frames[0], error);
      ASSERT_TRUE(parsed) << error.what;
      EXPECT_EQ(parsed->index(), message.index());
      EXPECT_EQ(print_message(*parsed, 0x0102030405060708), bytes);
    }
  }
}

TEST(Frame, SeveralThatArriveTogetherAreSeveral) {
  std::string bytes;
  for (uint64_t i = 0; i < 5; ++i) bytes += print_message(Heartbeat{static_cast<int64_t>(i)}, i);
  const auto frames = decode(bytes, Sender::kPeer, bytes.size());
  ASSERT_EQ(frames.size(), 5U);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(frames[i].generation, i);
}

TEST(Frame, F69_ALengthBeyondItsTypesIsRefusedByTheHeaderAlone) {
  for (const FrameRules& rules : all_rules()) {
    for (const uint64_t length : {uint64_t{rules.max_body_bytes} + 1, uint64_t{1} << 31, (uint64_t{1} << 32) - 1}) {
      const std::string error =
          error_of(header(static_cast<uint8_t>(rules.type), static_cast<uint32_t>(length)), rules.sender);
      EXPECT_NE(error.find(std::string(rules.name)), std::string::npos) << error;
      EXPECT_NE(error.find(std::to_string(length)), std::string::npos) << error;
    }
  }
}

TEST(Message, OfALauncherHasRoomForAllItsNodesWithTheLongestNames) {
  std::vector<std::string> ids;
  Assigned assigned{.size = kMaxNodesOfLauncher};
  Heartbeat heartbeat;
  for (uint32_t i = 0; i < kMaxNodesOfLauncher; ++i) {
    auto& id = ids.emplace_back(std::to_string(i));
    id.resize(kMaxNodeId, 'x');
    assigned.nodes.push_back({id, i});
    heartbeat.idle.push_back(i);
  }
  const std::vector<Message> messages = {Register{.host = std::string(kMaxHostName, 'h'), .node_ids = ids}, assigned,
                                         heartbeat};
  for (const Message& message : messages) {
    const std::string bytes = print_message(message, 1);
    const auto frames = decode(bytes, sender_of(message), bytes.size());
    ASSERT_EQ(frames.size(), 1U);
    FrameError error;
    EXPECT_TRUE(parse_message(frames[0], error)) << error.what;
  }
}

TEST(Frame, WhatIsNoFrameIsRefusedByItsFirstWrongByte) {
  EXPECT_EQ(error_of("G"), "what arrives is no frame of the rendezvous");
  EXPECT_EQ(error_of("T\xff"), "what arrives is no frame of the rendezvous");
  EXPECT_EQ(error_of(std::string("TR\x01", 3)),
            fmt::format("a frame of version 1, where version {} is spoken", kProtocolVersion));
  const std::string begin = {'T', 'R', static_cast<char>(kProtocolVersion)};
  EXPECT_EQ(error_of(begin + '\x63'), "a frame of unknown type 99");
  EXPECT_EQ(error_of(begin + '\0'), "a frame of unknown type 0");
}

TEST(Frame, OneInTheWrongDirectionIsRefused) {
  for (const Message& message : message_examples()) {
    const Sender other = sender_of(message) == Sender::kPeer ? Sender::kScheduler : Sender::kPeer;
    EXPECT_NE(error_of(print_message(message, 1), other).find("in the wrong direction"), std::string::npos);
  }
}

TEST(Frame, ADecoderThatHasFailedStaysSilentAndKeepsNothing) {
  FrameDecoder decoder(Sender::kPeer);
  decoder.add("garbage");
  EXPECT_FALSE(decoder.next());
  decoder.add(print_message(Heartbeat{}, 1));
  EXPECT_FALSE(decoder.next());
  EXPECT_EQ(decoder.waiting_bytes(), 0U);
}

TEST(Message, ABodyThatIsCutOrHasMoreIsRefused) {
  for (const Message& message : message_examples()) {
    const auto frames = decode(print_message(message, 1), sender_of(message), 4096);
    ASSERT_EQ(frames.size(), 1U);
    FrameError error;
    for (size_t length = 0; length < frames[0].body.size(); ++length) {
      EXPECT_FALSE(parse_message({frames[0].type, 1, frames[0].body.substr(0, length)}, error))
          << message.index() << " of " << length << " bytes";
    }
    EXPECT_FALSE(parse_message({frames[0].type, 1, frames[0].body + "x"}, error));
    EXPECT_NE(error.what.find("bytes behind its last field"), std::string::npos) << error.what;
  }
}

TEST(Message, F70_FieldsThatCannotBeAreRefused) {
  const auto why = [](const Message& message) {
    const auto frames = decode(print_message(message, 1), sender_of(message), 1 << 20);
    FrameError error;
    EXPECT_EQ(frames.size(), 1U);
    EXPECT_FALSE(parse_message(frames.at(0), error));
    return error.what;
  };
  EXPECT_NE(why(Register{.node_ids = {""}}).find("a node id that is empty"), std::string::npos);
  EXPECT_NE(why(Register{.node_ids = {"a\x1b[2J"}}).find("visible ASCII"), std::string::npos);
  EXPECT_NE(why(Register{.role = static_cast<PeerRole>(9), .node_ids = {"a"}}).find("none of its choices"),
            std::string::npos);
  std::vector<std::string> many(kMaxNodesOfLauncher + 1, "a");
  EXPECT_NE(why(Register{.node_ids = many}).find("a list that is too long"), std::string::npos);
}

TEST(Message, ATextLongerThanItsFieldIsCutWhereItIsOurs) {
  const std::string bytes = print_message(Refused{std::string(3 * kMaxReason, 'r')}, 1);
  FrameError error;
  const auto parsed = parse_message(decode(bytes, Sender::kScheduler, 4096).at(0), error);
  ASSERT_TRUE(parsed) << error.what;
  EXPECT_EQ(std::get<Refused>(*parsed).reason.size(), kMaxReason);
}

TEST(NaturalOrder, NumbersCompareByValue) {
  const std::vector<std::string> ordered = {"10.0.0.9", "10.0.0.10", "a",        "a1",        "a01",
                                            "a2",       "a10",       "worker_2", "worker_10", "worker_10b"};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      if (ordered[i] == "a1" || ordered[j] == "a1") continue;  // beside a01: either way, but one
      EXPECT_EQ(is_before(ordered[i], ordered[j]), i < j) << ordered[i] << " " << ordered[j];
    }
  }
  EXPECT_NE(is_before("a1", "a01"), is_before("a01", "a1"));
}

TEST(Messages, RanksThatNoSchedulerGivesAreNamed) {
  const std::vector<std::string> own = {"a", "b"};
  EXPECT_EQ(why_impossible({.size = 4, .nodes = {{"a", 3}, {"b", 0}}}, own), "");
  EXPECT_EQ(why_impossible({.size = 0, .nodes = {}}, own), "a job of 0 ranks");
  EXPECT_EQ(why_impossible({.size = 1U << 31, .nodes = {{"a", 3}, {"b", 0}}}, own), "a job of 2147483648 ranks");
  EXPECT_EQ(why_impossible({.size = 4, .nodes = {{"a", 4}, {"b", 0}}}, own), "rank 4 of 4");
  EXPECT_EQ(why_impossible({.size = 4, .nodes = {{"a", 1}}}, own), "ranks of other nodes than this process's");
  EXPECT_EQ(why_impossible({.size = 4, .nodes = {{"a", 1}, {"c", 0}}}, own),
            "ranks of other nodes than this process's");
  // Of a launcher whose job goes on without some of its nodes.
  EXPECT_EQ(why_impossible({.size = 4, .nodes = {{"a", 1}}}, own, /*may_lack_some=*/true), "");
  EXPECT_EQ(why_impossible({.size = 4, .nodes = {}}, own, /*may_lack_some=*/true),
            "ranks of other nodes than this process's");
  EXPECT_EQ(why_impossible({.size = 4, .nodes = {{"c", 1}}}, own, /*may_lack_some=*/true),
            "ranks of other nodes than this process's");
}

}  // namespace
}  // namespace tessera::cluster::rendezvous

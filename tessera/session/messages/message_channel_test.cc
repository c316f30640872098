// Rows of a table that messages have: as many as have numbers, once each, or read where the table lies.
#include "tessera/session/messages/message_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/comm/stretch_receiver.h"
#include "tessera/mesh/mesh.h"
#include "tessera/session/messages/rows_in_place.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Rank 0 sends rank 1 these numbers and their rows, which rank 1 has put where `received` lies.
void send_rows(const Tensor& numbers, const Tensor& rows, const Tensor& received, const CountedRows& counted) {
  run_ranks(2, [&](cluster::Context& context) {
    auto& pair = *context.create_group("pair", {0, 1});
    const bool sends = context.rank() == 0;
    Tensor own_numbers = Tensor::zeros(numbers.type());
    if (sends) own_numbers = numbers;
    const std::vector<std::vector<TensorView>> by_slot = {{own_numbers.view(), sends ? rows.view() : received.view()}};
    auto channel = make_message_channel(pair, sends, by_slot, nullptr, context.rank(), "rows", {}, {counted});
    channel.lane->wait(channel.lane->start(channel.tasks[0]));
    EXPECT_EQ(own_numbers.to_doubles(), numbers.to_doubles());
  });
}

const CountedRows kOfTable = {.numbers = 0, .rows = 1, .table = "clicks.table", .num_rows = 9};

TEST(CountedRows, TravelUpToTheLastThatHasANumber) {
  // A place without a number among others goes with them.
  const Tensor numbers = Tensor::of<int32_t>({3, 2}, {7, -1, 2, -1, -1, -1});
  const Tensor rows = Tensor::of<float>({3, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const Tensor received = Tensor::full(rows.type(), 50);
  send_rows(numbers, rows, received, kOfTable);
  EXPECT_THAT(received.to_doubles(), ElementsAre(1, 2, 3, 4, 5, 6, 50, 50, 50, 50, 50, 50));
  CountedRows clearing = kOfTable;
  clearing.clears_rest = true;
  send_rows(numbers, rows, received, clearing);
  EXPECT_THAT(received.to_doubles(), ElementsAre(1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0));
}

TEST(CountedRows, MayBeNoneOrAll) {
  const Tensor rows = Tensor::of<double>({2, 1}, {1, 2});
  const Tensor received = Tensor::full(rows.type(), 50);
  send_rows(Tensor::of<int64_t>({2}, {-1, -1}), rows, received, kOfTable);
  EXPECT_THAT(received.to_doubles(), ElementsAre(50, 50));
  send_rows(Tensor::of<int64_t>({2}, {3, 8}), rows, received, kOfTable);
  EXPECT_THAT(received.to_doubles(), ElementsAre(1, 2));
}

TEST(CountedRows, RefuseANumberOfNoRow) {
  const Tensor rows = Tensor::of<float>({3, 1}, {1, 2, 3});
  for (const int32_t wrong : {9, -2}) {
    try {
      send_rows(Tensor::of<int32_t>({3}, {0, wrong, 4}), rows, Tensor::full(rows.type(), 0), kOfTable);
      FAIL() << "nothing was thrown";
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank 0 sends rank 1, a parameter server, gradients of rows of "
                                                      "\"clicks.table\": the number {} at place 1 is none of the "
                                                      "table's 9 rows",
                                                      wrong)));
    }
  }
}

// Rows that a server has looked up, once for each of two workers: of the first [0, 3), of the second [3, 7).
struct LookedUp {
  Tensor rows = Tensor::of<float>({7, 3}, {1, 1, 1, 2, 2, 2, 50, 50, 50, 4, 4, 4, 5, 5, 5, 6, 6, 6, 50, 50, 50});
  Tensor places = Tensor::of<int32_t>({7}, {0, 1, 0, 0, 1, 1, 2});
};

// What a server sends of the places [first, first + count), and of their rows' elements [begin, begin + size).
MessageChannel sends_listed(comm::Communicator& pair, const LookedUp& all, mesh::Range places, mesh::Range elements) {
  const auto rows = mesh::piece_of(all.rows.view(), {{0, 7}, elements});
  ListedRows listed{.rows = 0, .places = {mesh::piece_of(all.places.view(), {places})}};
  for (int64_t at = places.offset; at < places.offset + places.size; ++at) listed.begins.push_back(at < 3 ? 0 : 3);
  return make_message_channel(pair, true, {{rows}}, nullptr, 0, "rows", {}, {}, {listed});
}

// A count that is not what is sent is an error.
TEST(ListedRows, AreSentOnceEach) {
  struct Case {
    mesh::Range places;
    mesh::Range elements;
    std::vector<double> expected_places;
    std::vector<double> expected_rows;
  };
  const std::vector<Case> cases = {
      {{0, 3}, {0, 3}, {0, 1, 0}, {1, 1, 1, 2, 2, 2}},
      {{3, 4}, {0, 3}, {0, 1, 1, 2}, {4, 4, 4, 5, 5, 5, 6, 6, 6}},
      // A part of a worker's, as one of several servers sends it: of elements, and of places.
      {{3, 4}, {1, 2}, {0, 1, 1, 2}, {4, 4, 5, 5, 6, 6}},
      {{4, 2}, {0, 3}, {0, 0}, {5, 5, 5}},
      // Of both workers.
      {{1, 4}, {2, 1}, {0, 1, 2, 3}, {2, 1, 4, 5}},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(fmt::format("places from {}, elements from {}", test.places.offset, test.elements.offset));
    run_ranks(2, [&](cluster::Context& context) {
      auto& pair = *context.create_group("pair", {0, 1});
      if (context.rank() == 0) {
        const LookedUp all{};
        const auto channel = sends_listed(pair, all, test.places, test.elements);
        channel.lane->wait(channel.lane->start(channel.tasks[0]));
        return;
      }
      const Tensor places = Tensor::zeros({DType::kI32, {test.places.size}});
      pair.receive(places.view().data, places.num_elements(), DType::kI32, 0, "rows");
      EXPECT_EQ(places.to_doubles(), test.expected_places);
      const Tensor rows = Tensor::zeros({DType::kF32, {std::ssize(test.expected_rows)}});
      pair.receive(rows.view().data, rows.num_elements(), DType::kF32, 0, "rows");
      EXPECT_EQ(rows.to_doubles(), test.expected_rows);
    });
  }
}

// A pair of ranks of different hosts, as far as messages go: none reaches the other's memory.
class Apart : public comm::Communicator {
 public:
  explicit Apart(comm::Communicator& pair) : Communicator(pair.name(), pair.rank(), pair.ranks()), pair_(pair) {}

  void all_reduce(void*, int64_t, DType, comm::ReduceOp, std::string_view) override { refuse(); }
  void all_gather(const void*, void*, std::span<const int64_t>, DType, std::string_view) override { refuse(); }
  void reduce_scatter(const void*, void*, std::span<const int64_t>, DType, comm::ReduceOp, std::string_view) override {
    refuse();
  }
  void broadcast(void*, int64_t, DType, int, std::string_view) override { refuse(); }
  void all_to_all(const void*, std::span<const int64_t>, void*, std::span<const int64_t>, DType,
                  std::string_view) override {
    refuse();
  }
  void send(const void* data, int64_t count, DType dtype, int to, std::string_view who) override {
    pair_.send(data, count, dtype, to, who);
  }
  void receive(void* data, int64_t count, DType dtype, int from, std::string_view who) override {
    pair_.receive(data, count, dtype, from, who);
  }
  void barrier(std::string_view) override { refuse(); }

 private:
  static void refuse() { throw InternalError("messages are no collectives"); }

  comm::Communicator& pair_;
};

// Sends these places and rows; returns what a receiver makes of them in a tensor of 5 places, or a part of one.
std::vector<double> received_from(bool is_apart, const std::vector<int32_t>& places, const std::vector<float>& rows,
                                  bool is_part) {
  std::vector<double> found;
  run_ranks(2, [&](cluster::Context& context) {
    auto& reaching = *context.create_group("pair", {0, 1});
    Apart apart(reaching);
    comm::Communicator& pair = is_apart ? apart : reaching;
    if (context.rank() == 0) {
      pair.send(places.data(), std::ssize(places), DType::kI32, 1, "rows");
      pair.send(rows.data(), std::ssize(rows), DType::kF32, 1, "rows");
      return;
    }
    const Tensor whole = Tensor::full({DType::kF32, {5, is_part ? 3 : 2}}, 50);
    const auto piece = is_part ? mesh::piece_of(whole.view(), {{0, 5}, {1, 2}}) : whole.view();
    const auto channel =
        make_message_channel(pair, false, {{piece}}, nullptr, 1, "rows", {}, {}, {{.table = "clicks"}});
    channel.lane->wait(channel.lane->start(channel.tasks[0]));
    found = whole.to_doubles();
  });
  return found;
}

std::vector<double> received(const std::vector<int32_t>& places, const std::vector<float>& rows, bool is_part) {
  auto found = received_from(false, places, rows, is_part);
  EXPECT_EQ(received_from(true, places, rows, is_part), found);
  return found;
}

TEST(ListedRows, GoToAllPlacesThatWantThem) {
  EXPECT_THAT(received({0, 1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, false),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(received({0, 0, 1, 0, 2}, {1, 2, 3, 4, 5, 6}, false), ElementsAre(1, 2, 1, 2, 3, 4, 1, 2, 5, 6));
  EXPECT_THAT(received({-1, 0, 1, -1, 1}, {1, 2, 3, 4}, false), ElementsAre(0, 0, 1, 2, 3, 4, 0, 0, 3, 4));
  EXPECT_THAT(received({-1, -1, -1, -1, -1}, {}, false), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(received({0, 0, 0, 1, 0}, {1, 2, 3, 4}, true),
              ElementsAre(50, 1, 2, 50, 1, 2, 50, 1, 2, 50, 3, 4, 50, 1, 2));
}

TEST(ListedRows, RefuseAPlaceOfNoRow) {
  for (const int32_t wrong : {2, -2}) {
    try {
      received({0, wrong, 1, 1, 1}, {1, 2, 3, 4}, false);
      FAIL() << "nothing was thrown";
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank 0, a parameter server, sends rank 1 rows of \"clicks\": "
                                                      "place 1 wants row {} of the message, where 1 or an earlier one "
                                                      "must come",
                                                      wrong)));
    }
  }
}

// Hands messages over in stretches of 5 bytes, as where a sender's bytes are copied on the way.
class InPieces final : public Apart, public comm::StretchReceiver {
 public:
  using Apart::Apart;
  bool is_in_reach(const void*, int64_t) const override { return false; }
  void receive_stretches(const Take& take, int64_t count, DType dtype, int from, std::string_view who) override {
    std::vector<std::byte> all(static_cast<size_t>(count) * size_bytes(dtype));
    receive(all.data(), count, dtype, from, who);
    for (size_t at = 0; at < all.size(); at += 5) {
      take(all.data() + at, static_cast<int64_t>(at), static_cast<int64_t>(std::min<size_t>(5, all.size() - at)));
    }
  }
};

// A table of 7 rows of 3, row r of r0, r1, r2, of which server 0 has 4 rows and server 1 three, or both have all.
Tensor part_of_table(const mesh::Range& rows) {
  const Tensor part = Tensor::zeros({DType::kF32, {rows.size, 3}});
  for (int64_t i = 0; i < 3 * rows.size; ++i) {
    part.values<float>()[static_cast<size_t>(i)] = static_cast<float>(10 * (rows.offset + i / 3) + i % 3);
  }
  return part;
}

struct InPlaceCase {
  std::vector<mesh::Range> parts;  // of the table, by server
  std::vector<mesh::Range> own;    // what each sends
  std::vector<int32_t> numbers;
  std::vector<int32_t> places;
  std::vector<int64_t> begins;  // of places
  mesh::Range elements = {0, 3};
};

// What a worker has at its places, which are 50 before.
std::vector<double> read_in_place(const InPlaceCase& test, bool in_pieces) {
  std::vector<double> found;
  const auto num_servers = static_cast<int>(test.parts.size());
  run_ranks(num_servers + 1, [&](cluster::Context& context) {
    std::vector<comm::Communicator*> pairs;
    for (int server = 0; server < num_servers; ++server) {
      pairs.push_back(context.create_group(fmt::format("pair {}", server), {server, num_servers}));
    }
    const auto num_places = std::ssize(test.places);
    if (const int server = context.rank(); server < num_servers) {
      const Tensor table = part_of_table(test.parts[static_cast<size_t>(server)]);
      const Tensor numbers = Tensor::of<int32_t>({std::ssize(test.numbers)}, test.numbers);
      const Tensor places = Tensor::of<int32_t>({num_places}, test.places);
      const ListedRows rows{.places = {places.view()},
                            .begins = test.begins,
                            .in_place = ListedRows::InPlace{.num_elements = table.num_elements(),
                                                            .own = test.own[static_cast<size_t>(server)],
                                                            .first_element = test.elements.offset,
                                                            .size = test.elements.size,
                                                            .says_none = server == 0,
                                                            .numbers = {numbers.view()}}};
      const auto channel = make_message_channel(*pairs[static_cast<size_t>(server)], true, {{table.view()}}, nullptr,
                                                server, "rows", {}, {}, {rows});
      channel.lane->wait(channel.lane->start(channel.tasks[0]));
      return;
    }
    const Tensor rows = Tensor::full({DType::kF32, {num_places, test.elements.size}}, 50);
    for (int server = 0; server < num_servers; ++server) {
      InPieces pieces(*pairs[static_cast<size_t>(server)]);
      comm::Communicator& pair = in_pieces ? pieces : *pairs[static_cast<size_t>(server)];
      const ListedRows listed{
          .table = "clicks",
          .in_place = ListedRows::InPlace{.num_elements = 3 * test.parts[static_cast<size_t>(server)].size}};
      const auto channel =
          make_message_channel(pair, false, {{rows.view()}}, nullptr, num_servers, "rows", {}, {}, {listed});
      channel.lane->wait(channel.lane->start(channel.tasks[0]));
    }
    found = rows.to_doubles();
  });
  return found;
}

TEST(RowsInPlace, ComeFromWhomeverHasThem) {
  const std::vector<mesh::Range> halves = {{0, 4}, {4, 3}};
  struct Case {
    InPlaceCase of;
    std::vector<double> expected;
  };
  const std::vector<Case> cases = {
      {{.parts = {{0, 7}}, .own = {{0, 7}}, .numbers = {6, 0, -1}, .places = {0, 1, 0}, .begins = {0, 0, 0}},
       {60, 61, 62, 0, 1, 2, 60, 61, 62}},
      // A place of no row gets zeros, whoever has what.
      {{.parts = halves, .own = halves, .numbers = {5, 2, 4}, .places = {0, 1, -1, 2, 0}, .begins = {0, 0, 0, 0, 0}},
       {50, 51, 52, 20, 21, 22, 0, 0, 0, 40, 41, 42, 50, 51, 52}},
      // A part of each row, and places that count from the second number.
      {{.parts = halves, .own = halves, .numbers = {1, 3, 6}, .places = {0, 1}, .begins = {1, 1}, .elements = {1, 2}},
       {31, 32, 61, 62}},
      // The second has none.
      {{.parts = {{0, 7}, {7, 0}}, .own = {{0, 7}, {7, 0}}, .numbers = {6}, .places = {0, 0}, .begins = {0, 0}},
       {60, 61, 62, 60, 61, 62}},
      // Both have all, and one sends it.
      {{.parts = {{0, 7}, {0, 7}}, .own = {{0, 7}, {0, 0}}, .numbers = {6}, .places = {0, -1}, .begins = {0, 0}},
       {60, 61, 62, 0, 0, 0}},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(read_in_place(test.of, false), test.expected);
    EXPECT_EQ(read_in_place(test.of, true), test.expected);
  }
}

TEST(RowsInPlace, RefuseAPositionBeyondTheTable) {
  for (const int64_t wrong : {int64_t{19}, int64_t{-3}, int64_t{1} << 62}) {
    try {
      run_ranks(2, [&](cluster::Context& context) {
        auto& pair = *context.create_group("pair", {0, 1});
        const std::vector<int64_t> positions = {18, wrong};
        if (context.rank() == 0) return pair.send(positions.data(), 2, DType::kI64, 1, "rows");
        const Tensor rows = Tensor::zeros({DType::kF32, {2, 3}});
        RowsInPlaceReceiver(rows.view(), 21, "clicks")(pair, "rows");
      });
      FAIL() << "nothing was thrown";
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank 0, a parameter server, sends rank 1 rows of \"clicks\": "
                                                      "that of place 1 is said to lie at element {}, and the server's "
                                                      "part of the table has 21",
                                                      wrong)));
    }
  }
}

}  // namespace
}  // namespace tessera::session

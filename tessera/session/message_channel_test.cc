// Rows of a table of which a message has as many as have numbers.
#include "tessera/session/message_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
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

}  // namespace
}  // namespace tessera::session
